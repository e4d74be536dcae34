"""TensorFlow 1 checkpoints of the original code."""
