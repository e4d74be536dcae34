"""Turns text into records and records into batches."""
