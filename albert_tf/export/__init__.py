"""Exports models as files that other programs run."""
