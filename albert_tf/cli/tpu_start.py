"""Keeps TensorFlow from waiting for a TPU where there cannot be one.

With libtpu installed, TensorFlow queries the metadata server of Google Cloud about the
TPU as soon as it starts, every query up to thirty times. Outside the cloud that took
more than eight minutes.
"""

import contextlib
import importlib.util
import os
import sys

from albert_tf.import_hook import around_import

_SKIP = "TPU_SKIP_MDS_QUERY"
_SERVER = "metadata.google.internal"
_SECONDS = 2.0


def install() -> None:
    """Makes a later `import tensorflow` skip the questions outside the cloud."""
    if "tensorflow" not in sys.modules and importlib.util.find_spec("libtpu"):
        around_import("tensorflow", _execute)


def _execute(execute, module) -> None:
    if _SKIP not in os.environ and not _in_the_cloud():
        os.environ[_SKIP] = "1"
    execute(module)


def _in_the_cloud() -> bool:
    import http.client  # slow to import, and seldom needed

    connection = http.client.HTTPConnection(_SERVER, timeout=_SECONDS)
    with contextlib.closing(connection):
        try:
            connection.request("GET", "/", headers={"Metadata-Flavor": "Google"})
            return connection.getresponse().getheader("Metadata-Flavor") == "Google"
        except (OSError, http.client.HTTPException):
            return False
