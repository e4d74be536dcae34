"""Writes models for runtimes other than TensorFlow's, which take token ids."""
