"""Keras models; each file is one kind."""
