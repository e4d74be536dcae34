"""Training with JAX: update, step, devices."""
