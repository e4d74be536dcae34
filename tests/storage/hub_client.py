"""A process that uses a hub: huggingface_hub reads its settings when it is imported.

It reads one JSON object a line, `{"do": ..., ...}`, and answers each with one line.
"""

import json
import logging
import sys


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
