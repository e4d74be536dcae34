"""What every backend of Keras computes, with the one that `KERAS_BACKEND` names.

`make test` runs these tests with TensorFlow, `make test-backends` with the others.
"""
