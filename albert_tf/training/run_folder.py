"""The folder of a run: what it is, whether it may be continued, what it measured."""

import json
import os
from typing import Any

from albert_tf.errors import DataError, UsageError
from albert_tf.reports.environment import describe_environment
from albert_tf.storage import files

RUN_FILE = "run.json"


class RunFolder:
    """Opens or makes the folder of a run.

    Args:
        path: The folder.
        identity: Settings that decide the result. A folder with another identity is
            refused: nothing in it is touched.

    Raises:
        UsageError: If the folder holds another run, or anything else.
    """

    def __init__(self, path: str | os.PathLike, identity: dict[str, Any]):
        self.path = os.fspath(path)
        self.identity = json.loads(json.dumps(identity))
        if files.exists(self.path) and not files.is_folder(self.path):
            raise UsageError(f"--output_dir={self.path}: is a file")
        found = files.list_folder(self.path) if files.is_folder(self.path) else []
        if RUN_FILE in found:
            self._check_same_run()
        elif found:
            raise UsageError(
                f"--output_dir={self.path}: must be empty or hold this run, holds "
                f"{found[0]!r}"
            )

    def join(self, *names: str) -> str:
        """A path inside the folder."""
        return files.join(self.path, *names)

    def begin(self) -> None:
        """Makes the folder and records what runs in it; once."""
        files.make_folder(self.path)
        if not files.exists(self.join(RUN_FILE)):
            record = {"settings": self.identity, **describe_environment()}
            files.write_text(self.join(RUN_FILE), json.dumps(record, indent=2) + "\n")

    def _check_same_run(self) -> None:
        try:
            there = json.loads(files.read_text(self.join(RUN_FILE)))["settings"]
        except (ValueError, KeyError, TypeError) as e:
            if isinstance(e, DataError):
                raise
            raise DataError(f"{self.join(RUN_FILE)}: not the record of a run") from None
        for name in sorted({*there, *self.identity}):
            if there.get(name) != self.identity.get(name):
                raise UsageError(
                    f"--output_dir={self.path}: holds another run, with "
                    f"--{name}={there.get(name)!r}; received "
                    f"--{name}={self.identity.get(name)!r}"
                )
