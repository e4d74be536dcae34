"""Checkpoint formats, each a table of names used in both directions."""
