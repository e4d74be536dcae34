"""Counts how often a command opens its checkpoints."""

import collections

import pytest

from albert_tf.converters import detect
from albert_tf.storage import folders


def count_openings(monkeypatch: pytest.MonkeyPatch) -> collections.Counter:
    """Counts, from now on, what opening a checkpoint costs.

    Returns:
        Counter. `("open", path)` for every path opened, `("extract", path)` for every
        archive unpacked, `("verify", path)` for every folder whose files are hashed.
    """
    counts = collections.Counter()

    def count(module, name, what):
        function = getattr(module, name)

        def counting(path, *args, **kwargs):
            counts[what, str(path)] += 1
            return function(path, *args, **kwargs)

        monkeypatch.setattr(module, name, counting)

    count(detect, "_open", "open")
    count(detect, "extract", "extract")
    count(folders, "verify", "verify")
    return counts
