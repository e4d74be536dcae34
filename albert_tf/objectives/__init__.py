"""Objectives: what is minimized, measured and shown, without a back end."""
