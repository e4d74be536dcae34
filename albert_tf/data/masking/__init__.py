"""Choosing and applying masks, in NumPy and in TensorFlow with equal bits."""
