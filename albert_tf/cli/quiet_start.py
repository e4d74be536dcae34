"""Hides the messages that TensorFlow prints while it starts.

TF_CPP_MIN_LOG_LEVEL=3 silences TensorFlow once it runs, but its libraries ignore that
variable while they are loaded. Therefore stderr is captured during the import, and only
lines that are not known start-up messages are printed afterwards.
"""

import contextlib
import os
import re
import sys
import tempfile
from collections.abc import Iterator

from albert_tf.import_hook import around_import

_CHATTER = re.compile(
    r"WARNING: All log messages before absl::InitializeLog"
    r"|[IWE]0000 \d\d:\d\d:"
    r"|To enable the following instructions:"
)


def install() -> None:
    """Silences a later `import tensorflow`, unless the user set a log level."""
    level = os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    if level == "3" and "tensorflow" not in sys.modules:
        around_import("tensorflow", _execute_quietly)


def _execute_quietly(execute, module) -> None:
    with _stderr_held():
        execute(module)


@contextlib.contextmanager
def _stderr_held() -> Iterator[None]:
    """Captures file descriptor 2, then prints all but start-up messages."""
    sys.stderr.flush()
    saved = os.dup(2)
    with tempfile.TemporaryFile() as held:
        os.dup2(held.fileno(), 2)
        try:
            yield
        finally:
            sys.stderr.flush()
            os.dup2(saved, 2)
            os.close(saved)
            held.seek(0)
            for line in held.read().decode(errors="replace").splitlines():
                if not _CHATTER.match(line):
                    print(line, file=sys.stderr)
