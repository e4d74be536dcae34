"""Plans a training: what a TPU that is not here needs for it, before it is rented."""
