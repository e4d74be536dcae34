"""The folder of a run: which run it holds, and whether that run may be continued.

`finetune_folder` has what only the folder of a fine-tuning run needs, whose place the
finished model takes.
"""

import contextlib
import functools
import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from absl import logging

from albert_tf.errors import DataError, UsageError, require
from albert_tf.reports.environment import CODE, ONEDNN, describe_environment, versions
from albert_tf.storage import files, folders
from albert_tf.storage.lock import LOCK_FILE, locked
from albert_tf.training.settings import TrainingSettings

RUN_FILE = "run.json"
CHECKPOINT_FOLDER = "checkpoints"
BEST_FOLDER = "best"
# Facts that workers compare: a folder that not all see, or see late, has others.
EVALUATED = "evaluations on record"
FINISHED = "finished run in --output_dir"
# Keys of the record: former values of settings, and whether the model is older.
_CHANGED = "changed_from"
_OUTDATED = "model_is_outdated"
_VERSIONS = "versions"
# How a setting is compared: itself, itself after the others, or by what it names.
_BY_VALUE = (True, "follows")
# What a folder may hold that is free: a lock, and what a new disk has.
FREE = (LOCK_FILE, "lost+found")
# Locks never taken, and half-written files, also those of earlier versions.
_LEFTOVER = re.compile(
    r"\.lock-[0-9a-f]{8}|\.(run\.json|\.lock)\.[0-9a-f]{8}\.partial"
    r"|run\.json\.tmp-[0-9a-f]{8}"
)


@contextlib.contextmanager
def held(path: str, *inside: str) -> Iterator[None]:
    """Holds the lock of a run folder, tidied, inside a `with` statement.

    Args:
        path: str. The folder.
        inside: str. Names of folders in it that are to be tidied as well.

    Raises:
        UsageError: If another process holds the lock.
    """
    with locked(path):
        for name in (path, *(files.join(path, name) for name in inside)):
            folders.tidy(name)
        yield


def tidy_finished(path: str, *inside: str) -> None:
    """Removes from a finished run what its killed processes left; as for `held`."""
    names = [path, *(files.join(path, name) for name in inside)]
    if any(map(folders.leftovers, names)) or files.exists(files.join(path, LOCK_FILE)):
        # A living process that holds the lock tidies, or is about to.
        with contextlib.suppress(UsageError), held(path, *inside):
            pass


class RunFolder:
    """Opens the folder of a run, or prepares to make it.

    A folder with another identity is refused, and nothing in it is touched. A setting
    that is not on record had its default, or, of those that are gone, its value in
    `retired`. A setting that names content, such as a path, is compared itself only if
    the content is not on record, as in runs of earlier versions. Settings that may be
    computed from others, or from the content, are compared last, so that what is named
    is what was given.

    Args:
        settings: `TrainingSettings`. They say how each of them is compared.
        replaces: bool. Whether another run, which is in the folder, is to be removed.

    Attributes:
        model_is_outdated: bool. Whether the model in the folder, if there is one, was
            made before a setting was changed.
        origin: str or None. What `begin` records of the initial checkpoint in addition
            to its content: its name on a hub, with the commit.

    Raises:
        UsageError: If the folder holds another run, or anything else.
        DataError: If the record of the run in it is damaged.
    """

    def __init__(self, settings: TrainingSettings, replaces: bool = False):
        self.path = os.fspath(settings.output_dir)
        self.settings = settings
        self.identity = _as_read(settings.identity())
        self.content: dict[str, Any] = {}
        self.model_is_outdated = False
        self.origin: str | None = None
        self.replaces = replaces
        self._changed: dict[str, Any] = {}
        compared = settings.in_identity()
        self._follows = [name for name, how in compared.items() if how == "follows"]
        # The content that settings name, such as "config".
        self._content_of = {n: h for n, h in compared.items() if h not in _BY_VALUE}
        where, is_folder = f"--output_dir={self.path}", files.is_folder(self.path)
        is_free = is_folder or not files.exists(self.path)
        require(is_free, f"{where}: must be a folder, is a file")
        found = files.list_folder(self.path) if is_folder else []
        # What a process killed at its start leaves behind.
        found = [n for n in found if n not in FREE and not _LEFTOVER.fullmatch(n)]
        self._recorded: dict[str, Any] = {"settings": {}, "content": {}}
        self._was_begun = RUN_FILE in found and not replaces
        if not self._was_begun:
            rule = f"{where}: must be empty or hold this run, holds"
            other = f"{next(iter(found), None)!r}; give another folder"
            require(replaces or not found, f"{rule} {other}")
            return
        self._recorded = self.record()
        kind = self._recorded.get("kind", "")
        rule = f"{where}: holds another run, of the kind {kind or 'pretraining'!r}"
        require(kind == settings.kind, rule)
        names = {*self._recorded["settings"], *self.identity}
        self._check_settings(sorted(names - set(self._follows)))
        self.model_is_outdated |= bool(self._recorded.get(_OUTDATED))

    @property
    def is_finished(self) -> bool:
        """Whether the record says that the run was finished."""
        return bool(self._recorded.get("finished"))

    def record(self) -> dict[str, Any]:
        """Returns what is recorded of the run."""
        path = self.join(RUN_FILE)
        try:
            record = dict(json.loads(files.read_text(path)))
            parts = {"settings": record["settings"], "content": record.get("content")}
            return record | {name: dict(part or {}) for name, part in parts.items()}
        except (ValueError, KeyError, TypeError, AttributeError) as e:
            if isinstance(e, DataError):
                raise
            raise DataError(f"{path}: must be the JSON record of a run") from None

    def join(self, *names: str) -> str:
        """Returns a path inside the folder."""
        return files.join(self.path, *names)

    def check_content(self, content: Mapping[str, Any]) -> None:
        """Compares the content that the run depends on with what is on record.

        Then the settings that follow from it. What is not on record, because an earlier
        version did not know it, is not compared.

        Args:
            content: dict. Digests, or dicts of values, by name. `begin` records it.

        Raises:
            UsageError: If the folder holds a run with other content, or settings.
        """
        self.content = _as_read(content)
        for name, new in self.content.items():
            old = self._recorded["content"].get(name, new)
            pairs = [(name, old, new)]
            if isinstance(old, dict) and isinstance(new, dict):
                pairs = [(f"{name}: {k}", v, new.get(k, v)) for k, v in old.items()]
            for title, before, now in pairs:
                old, new = _short(before), f"{_short(now)}{self._flags_of(name)}"
                self._check(before == now, f"{title}={old}", new)
        if self._was_begun:
            self._check_settings(self._follows)

    def check_versions(self) -> None:
        """Compares the versions of the code with those on record.

        With `allow_other_versions` a run is continued with others, which `begin` then
        records.

        Raises:
            UsageError: If they differ and may not.
        """
        before, now = self._recorded.get(_VERSIONS, {}), versions(CODE)
        changed = {k: v for k, v in before.items() if k in CODE and v != now[k]}
        parts = [f"{k} {v} (here {now[k]})" for k, v in changed.items()]
        require(
            not changed or self.settings.allow_other_versions,
            f"--output_dir={self.path}: the run began with {', '.join(parts)}; install "
            "that, or continue with --allow_other_versions",
        )
        if changed:
            self._changed[_VERSIONS] = before

    def begin(self) -> None:
        """Makes the folder and records the run in it, or what was changed in it."""
        files.make_folder(self.path)
        environment, kind = describe_environment(), self.settings.kind
        if not files.exists(self.join(RUN_FILE)):
            self._write(
                {
                    **({"kind": kind} if kind else {}),
                    "settings": self.identity,
                    "content": self.content,
                    **({"init_checkpoint": self.origin} if self.origin else {}),
                    **environment,
                }
            )
            return
        before, now = self._recorded.get(ONEDNN, environment[ONEDNN]), environment
        if before != now[ONEDNN]:
            logging.warning(
                "%s: began with %s=%s, continues with %s: the weights are equal up to "
                "rounding only",
                *(self.path, ONEDNN, before, now[ONEDNN]),
            )
        if self._changed:
            changes = {
                "settings": {**self._recorded["settings"], **self.identity},
                _CHANGED: [*self._recorded.get(_CHANGED, ()), self._changed],
                _OUTDATED: self.model_is_outdated,
            }
            if _VERSIONS in self._changed:
                changes[_VERSIONS] = environment[_VERSIONS]
            self._write({**self._recorded, **changes})

    def finish(self) -> None:
        """Records that the model in the folder is that of the run's settings."""
        if self.model_is_outdated:
            record = self.record()
            record.pop(_OUTDATED, None)
            self._write(record)
            self.model_is_outdated = False

    def _write(self, record: Mapping[str, Any]) -> None:
        files.write_text(self.join(RUN_FILE), files.to_json(record, indent=2) + "\n")

    def _check(self, is_same: bool, old: str, new: str) -> None:
        where = f"--output_dir={self.path}: holds another run"
        require(is_same, f"{where}, with {old}; received {new}")

    def _check_settings(self, names: Iterable[str]) -> None:
        recorded, content = self._recorded["settings"], self._recorded["content"]
        defaults = _as_read(self.settings.defaults())
        retired = _as_read(self.settings.retired)
        changeable = self.settings.changeable()
        for name in names:
            old = recorded.get(name, defaults.get(name))
            new = self.identity.get(name, retired.get(name))
            if old == new or self._content_of.get(name) in content:
                continue
            hint = f" (--change_{name} allows it)" if name in changeable else ""
            given = changeable.get(name, False)
            self._check(given, f"--{name}={old!r}", f"--{name}={new!r}{hint}")
            self._changed[name] = old
            self.model_is_outdated = True

    def _flags_of(self, content: str) -> str:
        """Returns the given settings that name a content, for messages."""
        names = [name for name, key in self._content_of.items() if key == content]
        given = [f"--{n}={self.identity[n]}" for n in names if self.identity.get(n)]
        return f" ({', '.join(given)})" if given else ""


def describe_command(settings: TrainingSettings) -> dict[str, Any]:
    """Returns what must be the same in all workers of a run, before any file is read.

    Not the settings that may differ from machine to machine, such as paths.
    """
    compared = settings.in_identity()
    facts = {f"version of {k}": v for k, v in versions(CODE).items() if k in CODE}
    facts["source of albert_tf"] = _source()
    local = {name for name, how in compared.items() if how not in _BY_VALUE}
    local |= {"output_dir", "eval_file"}
    given = vars(settings).items()
    return facts | {f"--{name}": v for name, v in given if name not in local}


@functools.cache
def _source() -> str:
    """Returns a digest of the package's code, which its version may not tell apart."""
    package, sha256 = os.path.dirname(os.path.dirname(__file__)), hashlib.sha256()
    for name in files.tree(package):
        if name.endswith(".py"):
            digest = files.digest_of(os.path.join(package, name))
            sha256.update(f"{name} {digest}".encode())
    return sha256.hexdigest()


def _as_read(values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the values as they are after writing and reading JSON."""
    return json.loads(files.to_json(dict(values)))


def _short(value: Any) -> str:
    """Returns a value for a message; of a digest, the beginning."""
    if isinstance(value, str) and len(value) == 64:
        return f"{value[:12]}…"
    return repr(value)
