"""Holds what all checkpoint formats share: the model as stored, and its files."""
