"""Calls kernels of TensorFlow that Keras has no operation for."""
