"""Reads, writes and runs KerasHub presets."""
