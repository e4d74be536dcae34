"""Data of downstream tasks, one file a task family."""
