"""Says what computes answers, so that those of two environments are not mixed."""

import os
from typing import Any

from albert_tf.reports.environment import ONEDNN, versions

_PACKAGES = ("albert_tf", "keras", "tensorflow")


def environment() -> dict[str, Any]:
    """Returns versions, the back end and the choice of kernels, ready for JSON."""
    import keras

    found = versions(_PACKAGES)
    return {
        **{f"version of {name}": found[name] for name in _PACKAGES},
        "keras_backend": keras.backend.backend(),
        # None is TensorFlow's own choice for the CPU.
        ONEDNN: os.environ.get(ONEDNN),
    }
