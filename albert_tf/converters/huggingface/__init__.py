"""Reads, writes and runs Hugging Face model folders."""
