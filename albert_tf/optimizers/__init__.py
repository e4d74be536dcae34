"""The original's LAMB and AdamW, and learning-rate schedules, on any Keras backend."""
