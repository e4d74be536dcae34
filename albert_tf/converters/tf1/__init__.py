"""Reads and writes TensorFlow 1 checkpoints of the original code."""
