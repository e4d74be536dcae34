"""From encoded examples to batches, and through a model to outputs."""
