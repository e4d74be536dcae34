"""Work without a model, whose workers start quickly, and what can go wrong in it.

As a program, `python fake_work.py output moment` answers a table and kills itself at a
file operation.
"""

import dataclasses
import os
import pathlib
import signal
import sys
import time

from albert_tf.errors import DataError
from albert_tf.jobs.folder import Part
from albert_tf.storage import files
from albert_tf.tasks.task import Portions
from albert_tf.tasks.text_tables import TextTable

BULK = {"rows_per_part": 3, "max_batch_tokens": 5}


@dataclasses.dataclass(frozen=True)
class Upper:
    """Writes texts in capitals.

    Attributes:
        folder: str. "die", "die once" and "fail" in a text are obeyed; the folder tells
            whether it happened before, and who answered what.
    """

    folder: str

    def open(self, num_threads):
        del num_threads
        folder = pathlib.Path(self.folder)

        def compute(job, on_rows):
            for text in job.rows.texts:
                marker = folder / f"{text}.happened"
                if text == "die" or (text == "die once" and not marker.exists()):
                    marker.touch()
                    os.kill(os.getpid(), signal.SIGKILL)
                if text == "fail":
                    raise DataError(f"{job.rows.where(0)}: refused")
                if text == "bug":
                    raise KeyError("bug")
            on_rows(len(job.rows))
            (folder / f"{job.index}-by-{os.getpid()}").touch()
            lines = [
                f"{job.first + i} {text.upper()}\n"
                for i, text in enumerate(job.rows.texts)
            ]
            return Part("".join(lines).encode(), {"rows": len(lines)})

        return compute


class Together(Upper):
    """A worker gets this only when another one has started, too, or far too late."""

    def __setstate__(self, state):
        self.__dict__.update(state)
        folder = pathlib.Path(self.folder)
        (folder / f"start-by-{os.getpid()}").touch()
        deadline = time.monotonic() + 30
        while len(list(folder.glob("start-by-*"))) < 2:
            if time.monotonic() > deadline:
                (folder / "alone").touch()
                return
            time.sleep(0.02)


def table(texts):
    """A table in memory."""
    lines = [i + 2 for i in range(len(texts))]
    return TextTable("a.csv", list(texts), None, None, lines)


def answer(
    folder, texts, output="out.txt", num_workers=1, overwrite=False, work=Upper, **given
):
    """Answers texts in a folder."""
    # Not in a worker, which starts sooner without.
    from albert_tf.inference.files import answer_file
    from albert_tf.inference.formats import Output
    from albert_tf.inference.settings import BulkSettings

    path = output if "://" in output else str(pathlib.Path(folder, output))
    bulk = BulkSettings(num_workers=num_workers, **BULK)
    source, target = Portions.of(table(texts)), Output(path, "text")
    return answer_file(work(str(folder)), source, target, given, bulk, overwrite)


class Killing:
    """Calls a function of files, but kills this process at a moment."""

    moment = 0

    def __init__(self, name):
        self.function = getattr(files, name)

    def __call__(self, *args, **kwargs):
        Killing.moment -= 1
        if not Killing.moment:
            os.kill(os.getpid(), signal.SIGKILL)
        return self.function(*args, **kwargs)


if __name__ == "__main__":
    Killing.moment = int(sys.argv[2])
    for name in ("open_binary", "rename", "remove", "make_folder"):
        setattr(files, name, Killing(name))
    answer(sys.argv[1], [f"text {i}" for i in range(8)])
    print("done", Killing.moment)
