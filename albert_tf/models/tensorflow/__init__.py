"""What a model computes where TensorFlow runs it, without gradients."""
