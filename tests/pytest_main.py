"""Runs the test files given as arguments: the `main` of Bazel's py_test rules."""

import sys

import pytest

if __name__ == "__main__":
    sys.exit(pytest.main(sys.argv[1:]))
