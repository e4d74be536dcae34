"""Training with TensorFlow: step, strategy, checkpoints."""
