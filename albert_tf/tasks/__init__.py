"""The fine-tuning tasks by name: opened from files, saved with a model."""
