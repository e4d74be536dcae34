"""The folder of a run: which run it holds, and whether that run may be continued."""

import json
import os
from collections.abc import Mapping
from typing import Any

from albert_tf.errors import DataError, UsageError
from albert_tf.reports.environment import describe_environment
from albert_tf.storage import files

RUN_FILE = "run.json"


class RunFolder:
    """Opens the folder of a run, or prepares to make it.

    Args:
        path: str. Path of the folder.
        identity: dict. Settings that decide the result. A folder with another identity
            is refused, and nothing in it is touched.
        defaults: dict. Default values of settings. A run recorded before a setting
            existed was made with the setting's default.

    Raises:
        UsageError: If the folder holds another run, or anything else.
        DataError: If the record of the run in it is damaged.
    """

    def __init__(
        self,
        path: str | os.PathLike,
        identity: Mapping[str, Any],
        defaults: Mapping[str, Any] | None = None,
    ):
        self.path = os.fspath(path)
        self.identity = _as_read(identity)
        if files.exists(self.path) and not files.is_folder(self.path):
            raise UsageError(f"--output_dir={self.path}: must be a folder, is a file")
        found = files.list_folder(self.path) if files.is_folder(self.path) else []
        if RUN_FILE in found:
            self._check_same_run(_as_read(defaults or {}))
        elif found:
            raise UsageError(
                f"--output_dir={self.path}: must be empty or hold this run, holds "
                f"{found[0]!r}"
            )

    def join(self, *names: str) -> str:
        """Returns a path inside the folder."""
        return files.join(self.path, *names)

    def begin(self) -> None:
        """Makes the folder and records the run in it, unless that was done before."""
        files.make_folder(self.path)
        if not files.exists(self.join(RUN_FILE)):
            record = {"settings": self.identity, **describe_environment()}
            files.write_text(self.join(RUN_FILE), json.dumps(record, indent=2) + "\n")

    def _check_same_run(self, defaults: Mapping[str, Any]) -> None:
        path = self.join(RUN_FILE)
        try:
            recorded = dict(json.loads(files.read_text(path))["settings"])
        except (ValueError, KeyError, TypeError) as e:
            if isinstance(e, DataError):
                raise
            raise DataError(f"{path}: must be the JSON record of a run") from None
        for name in sorted({*recorded, *self.identity}):
            old = recorded.get(name, defaults.get(name))
            if old != self.identity.get(name):
                raise UsageError(
                    f"--output_dir={self.path}: holds another run, with "
                    f"--{name}={old!r}; received --{name}={self.identity.get(name)!r}"
                )


def _as_read(values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the values as they are after writing and reading JSON."""
    return json.loads(json.dumps(dict(values)))
