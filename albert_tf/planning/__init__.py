"""Plans a training: computes what a TPU needs for it, before it is rented."""
