"""What pretraining minimizes."""
