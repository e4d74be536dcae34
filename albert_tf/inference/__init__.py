"""Answers questions about texts with a trained model, from Python."""
