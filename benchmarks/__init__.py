"""Measurements of this package, side by side with what it replaces."""
