"""Starts `server.py` in a process of its own, and asks it."""

import json
import os
import pathlib
import subprocess
import sys
import urllib.error
import urllib.request

ROOT = pathlib.Path(__file__).parents[2]


class Server:
    """A running server; use it in a `with` statement.

    Args:
        base: path. The folder that holds the versions.
        name: str. Name of the model.

    Raises:
        RuntimeError: If a model or its warm-up cannot be loaded.
    """

    def __init__(self, base, name: str):
        self._process = subprocess.Popen(
            [sys.executable, ROOT / "tests/export/server.py", str(base), name],
            env=os.environ | {"PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "3"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        ready = self._process.stdout.readline().split()
        if not ready:
            _, errors = self._process.communicate()
            raise RuntimeError(errors)
        self.port, self.grpc_port, self.warmed, self.imported = map(int, ready[1:])
        self.address = f"http://localhost:{self.port}/v1/models/{name}"

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self._process.communicate()  # its input ends, and so does it

    def get(self, path: str = "", body: bytes | None = None) -> tuple[int, bytes]:
        """Returns the status and the body of the answer; with a body, to a POST."""
        request = urllib.request.Request(self.address + path, data=body)
        try:
            with urllib.request.urlopen(request, timeout=300) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as e:
            return e.code, e.read()

    def predict(self, request: dict | bytes, version: str = "") -> tuple[int, dict]:
        """Returns the status and the answer to a predict request."""
        body = request if isinstance(request, bytes) else json.dumps(request).encode()
        status, answer = self.get(f"{version}:predict", body)
        return status, json.loads(answer)

    def memory(self) -> int:
        """Returns the resident memory of the process, in megabytes."""
        lines = pathlib.Path(f"/proc/{self._process.pid}/status").read_text()
        (line,) = (x for x in lines.splitlines() if x.startswith("VmRSS:"))
        return int(line.split()[1]) >> 10
