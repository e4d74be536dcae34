"""Answers files of any size: in parts, resumable, in several processes."""
