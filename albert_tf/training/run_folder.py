"""The folder of a run: what it is, whether it may be continued, what it measured."""

import importlib.metadata
import json
import os
import platform
import subprocess
from typing import Any

from albert_tf.errors import DataError, UsageError
from albert_tf.storage import files

RUN_FILE = "run.json"
METRICS_FILE = "metrics.jsonl"


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


class MetricsFile:
    """Measurements of a run as JSON lines, each with its `step`.

    Args:
        path: The file.
        last_step: int. Where the run continues; later lines, of a run that was
            stopped after its last checkpoint, are dropped.
    """

    def __init__(self, path: str | os.PathLike, last_step: int):
        self.path = os.fspath(path)
        self.lines = [m for m in read_metrics(self.path) if m["step"] <= last_step]
        self._write()

    def append(self, values: dict[str, Any]) -> None:
        """Adds a line."""
        self.lines.append(values)
        if files.is_remote(self.path):
            self._write()
            return
        with open(self.path, "a", encoding="utf-8") as f:
            f.write(json.dumps(values) + "\n")

    def _write(self) -> None:
        text = "".join(json.dumps(line) + "\n" for line in self.lines)
        files.write_text(self.path, text)


def read_metrics(path: str | os.PathLike) -> list[dict[str, Any]]:
    """The lines of a metrics file; none if it is not there.

    A last line cut off by a kill is left out.
    """
    if not files.exists(path):
        return []
    result = []
    lines = files.read_text(path).splitlines()
    for number, line in enumerate(lines, 1):
        try:
            result.append(json.loads(line))
        except json.JSONDecodeError:
            if number < len(lines):
                raise DataError(f"{path}: line {number} is not JSON") from None
    return result


def describe_environment() -> dict[str, Any]:
    """Versions and the git revision of the code, for the record."""
    packages = ("albert_tf", "tensorflow", "keras", "numpy", "sentencepiece")
    versions = {"python": platform.python_version()}
    for package in packages:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            versions[package] = None
    return {"versions": versions, "git_revision": _git_revision()}


def _git_revision() -> str | None:
    command = ["git", "describe", "--always", "--dirty", "--abbrev=40"]
    try:
        result = subprocess.run(
            command,
            cwd=os.path.dirname(__file__),
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return result.stdout.strip()
