"""Preloaded by the Dask workers of tests: stops them in the middle of a job.

HOLD names a function as module:name. When its calls have ended HOLD_AFTER times, in all
workers together, the next calls wait for the file `go` in HOLD_FOLDER, where every call
leaves a file `started-<pid>-<number>`, then `held-...` if it waits, and `ended-...`.
"""

import functools
import importlib
import itertools
import os
import pathlib
import time


def dask_setup(worker):
    """Wraps the function; Dask calls this when the worker starts."""
    module, name = os.environ["HOLD"].split(":")
    module = importlib.import_module(module)
    setattr(module, name, _held(getattr(module, name)))


def _held(function):
    folder = pathlib.Path(os.environ["HOLD_FOLDER"])
    after = int(os.environ["HOLD_AFTER"])
    numbers = itertools.count()

    @functools.wraps(function)
    def held(*args, **kwargs):
        call = f"{os.getpid()}-{next(numbers)}"
        waits = len(list(folder.glob("ended-*"))) >= after
        (folder / f"started-{call}").touch()
        if waits:
            (folder / f"held-{call}").touch()
        while waits and not (folder / "go").exists():
            time.sleep(0.01)
        result = function(*args, **kwargs)
        (folder / f"ended-{call}").touch()
        return result

    return held
