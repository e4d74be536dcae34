"""A bucket, and a mounted folder, some calls of which fail."""

import errno
import os
import random
from collections.abc import Callable

import tensorflow as tf

REMOTE = ("stat", "exists", "isdir", "listdir", "makedirs", "rename", "remove", "copy")


def now_and_then(share: float, seed: int = 1) -> Callable[[], bool]:
    """Returns what decides whether the next call fails."""
    draw = random.Random(seed)
    return lambda: draw.random() < share


def once() -> Callable[[], bool]:
    """Returns what lets the first call fail, of whatever function."""
    left = [True]
    return lambda: bool(left and left.pop())


def make_flaky(monkeypatch, fails: Callable[[], bool]) -> None:
    """Lets calls fail before they have done anything, as TensorFlow and NFS do it."""
    away = tf.errors.UnavailableError(None, None, "bucket is away")

    def remote(name, real):
        def call(*args, **kwargs):
            if not fails():
                return real(*args, **kwargs)
            if name == "isdir":
                return False
            if name == "listdir":  # which asks `isdir` first
                raise tf.errors.NotFoundError(None, None, "no folder")
            raise away

        return call

    def local(real):
        def call(path, *args, **kwargs):
            if "flaky" in str(path) and fails():
                raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), str(path))
            return real(path, *args, **kwargs)

        return call

    for name in REMOTE:
        real = getattr(tf.io.gfile, name)
        monkeypatch.setattr(tf.io.gfile, name, remote(name, real))
    for name in ("read", "write", "close"):
        real = getattr(tf.io.gfile.GFile, name)
        monkeypatch.setattr(tf.io.gfile.GFile, name, remote(name, real))
    for name in ("stat", "listdir", "makedirs", "replace", "remove"):
        monkeypatch.setattr(os, name, local(getattr(os, name)))
