"""Figures, tables and model cards that describe a run."""
