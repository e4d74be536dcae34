"""Runs a training: the loop, its progress and its folder, for any kind of model."""
