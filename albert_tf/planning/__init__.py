"""Estimates size, memory and time before anything is built."""
