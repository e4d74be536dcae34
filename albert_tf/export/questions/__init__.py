"""Answers questions inside an exported model."""
