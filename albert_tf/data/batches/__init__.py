"""From records on disk to batches in memory."""
