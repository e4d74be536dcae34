"""Keras layers of ALBERT; each file says what it computes."""
