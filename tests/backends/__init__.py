"""What JAX and PyTorch compute, in the process that `KERAS_BACKEND` has chosen one for.

`make test-backends` runs these tests; with TensorFlow they are left out.
"""
