"""Holds the Keras models: the backbone and one file per kind of head."""
