"""Training: strategies, the distributed step, checkpoints, the loop."""
