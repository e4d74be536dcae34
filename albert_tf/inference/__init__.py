"""Answers from a model in Python."""
