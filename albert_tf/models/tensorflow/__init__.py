"""Forward computations of models on TensorFlow, without gradients."""
