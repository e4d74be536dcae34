"""What every checkpoint format is read into and written from."""
