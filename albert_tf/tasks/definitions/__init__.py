"""What a fine-tuning task is, and what its family does."""
