"""Plans a training: computes what a device needs for it, before it is rented."""
