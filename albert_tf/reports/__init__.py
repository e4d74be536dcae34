"""Pictures, tables and cards of a run."""
