"""A process that uses a hub: huggingface_hub reads its settings when it is imported.

It reads one JSON object a line, `{"do": ..., ...}`, and answers each with one line.
"""

import json
import logging
import os
import pathlib
import subprocess
import sys
import tempfile

from albert_tf.errors import DataError, UsageError

ROOT = pathlib.Path(__file__).parents[2]


class Client:
    """A `hub_client` with environment variables of its own; calls return its answer."""

    def __init__(self, folder, **variables):
        others = ("HF_", "HUGGING", "TRANSFORMERS_")
        known = {k: v for k, v in os.environ.items() if not k.startswith(others)}
        local = {"NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}
        paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
        quiet = {"HF_HUB_DISABLE_PROGRESS_BARS": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}
        self._stderr = tempfile.TemporaryFile("w+", dir=folder)  # noqa: SIM115
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.storage.hub_client"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            text=True,
            cwd=folder,
            env=known
            | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
            | {"HF_HOME": str(folder / "home")}
            | local
            | quiet
            | variables,
        )

    def __call__(self, do, **values):
        self._process.stdin.write(json.dumps({"do": do, **values}) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        if "error" not in answer:
            return answer["result"]
        assert "\n" not in answer["message"]
        kind = UsageError if answer["error"] == "UsageError" else DataError
        raise kind(answer["message"])

    def close(self) -> str:
        """Ends the process; returns what it wrote to stderr."""
        self._process.stdin.close()
        self._process.wait(60)
        self._process.stdout.close()
        with self._stderr as file:
            file.seek(0)
            return file.read()


def download(name):
    from albert_tf.storage import hubs

    found = hubs.download(name)
    return {"folder": found.folder, "origin": found.origin}


def upload(folder, name):
    from albert_tf.storage import hubs

    return hubs.upload(folder, name, "a message")


def load(path, push=None, to=None):
    import albert_tf
    from albert_tf.converters import load as doors

    with doors.open_checkpoint(path) as checkpoint:
        facts = {
            "path": checkpoint.path,
            "origin": checkpoint.origin,
            "digest": checkpoint.digest(),
            "format": checkpoint.format,
            "vocabulary": checkpoint.tokenizer and checkpoint.make_tokenizer().sha256,
        }
    if push:
        model = albert_tf.from_pretrained(path)
        model.save_pretrained(to, push_to=push)
    return facts


def offline(value):
    from huggingface_hub import constants

    constants.HF_HUB_OFFLINE = value


def heavy():
    """The modules that must not be loaded before they are used."""
    names = ("huggingface_hub", "kagglehub", "tensorflow", "keras")
    return [name for name in names if name in sys.modules]


def main():
    actions = {f.__name__: f for f in (download, upload, load, offline, heavy)}
    logging.basicConfig(level=logging.INFO)  # as a command shows it
    # Whatever the libraries print does not come between the answers.
    answers, sys.stdout = sys.stdout, sys.stderr
    for line in sys.stdin:
        values = json.loads(line)
        try:
            answer = {"result": actions[values.pop("do")](**values)}
        except Exception as e:
            answer = {"error": type(e).__name__, "message": str(e)}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
