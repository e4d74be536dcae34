"""Holds the Keras layers of ALBERT."""
