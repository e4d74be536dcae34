"""Reads and writes checkpoints in every format; loads, saves, converts and compares."""
