"""The folder of a run: identifies the run in it, and whether it may be continued.

The folder of an unfinished fine-tuning run holds its record, metrics and checkpoints
and cannot be loaded as a model. The files of the finished run are added one by one; the
record that marks it as finished comes last.
"""

import contextlib
import functools
import hashlib
import json
import os
import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from absl import logging

from albert_tf.config import OMITTED
from albert_tf.environment import ONEDNN, code_versions, describe_environment
from albert_tf.errors import DataError, UsageError, require
from albert_tf.heads import GENERATOR, MODEL
from albert_tf.storage import files, folders
from albert_tf.storage.lock import LOCK_FILE, locked
from albert_tf.training.finetune_settings import FinetuneSettings
from albert_tf.training.metrics_file import METRICS_FILE, PARTS, REPORT_FILES
from albert_tf.training.settings import TrainingSettings

RUN_FILE = "run.json"
CHECKPOINT_FOLDER = "checkpoints"
BEST_FOLDER = "best"
COMPILED_FOLDER = "compilation_cache"
TRIALS_FOLDER = "trials"
TRIALS_FILE = "trials.json"
METRICS = "metrics.json"
# Facts that workers compare: they differ if not all see the folder, or see it late.
EVALUATED = "evaluations on record"
FINISHED = "finished run in --output_dir"
# Keys of the record: former values of settings, and whether the model predates them.
_CHANGED = "changed_from"
_OUTDATED = "model_is_outdated"
_VERSIONS = "versions"
_SOURCE = "source of albert_tf"
# Settings are compared by value, after the others, or not at all; else by content.
_BY_VALUE = (True, "follows", _RECORDED := "recorded")
# Names that a free folder may hold: a lock, and the folder of a new disk.
_FREE = (LOCK_FILE, "lost+found")
# Unused locks, and half-written files.
_LEFTOVER = re.compile(r"\.lock-[0-9a-f]{8}|\.(run\.json|\.lock)\.[0-9a-f]{8}\.partial")
# Names that only an unfinished fine-tuning run needs.
_TEMPORARY = {CHECKPOINT_FOLDER, BEST_FOLDER, TRIALS_FOLDER, METRICS_FILE + PARTS}
_TEMPORARY |= {COMPILED_FOLDER}
# Files of such a run and of its model; `evaluate --exits_curve` writes the last two.
# Predictions are recognized by their names; the first dev set's have no prefix.
_RUN_NAMES = {METRICS, METRICS_FILE, TRIALS_FILE, *REPORT_FILES}
_RUN_NAMES |= {"config.json", "model.safetensors", *folders.TOKENIZER_FILES}
_RUN_NAMES |= {folders.MANIFEST, "tensorboard", "exits.json", "exits.png"}
_PREDICTIONS = re.compile(
    r"((dev_mismatched|test(_(mis)?matched)?|ax)_)?predictions"
    r"(\.(tsv|jsonl|json)|_nbest\.json|_null_odds\.json)"
)


class RunFolder:
    """Opens the folder of a run, or prepares to make it.

    A folder with another identity is refused and left untouched, unless the run in it
    is to be replaced. A setting that is not on record had its default. A setting that
    names content, such as a path, is compared by value only if the content is not on
    record. Settings that may be computed from others, or from the content, are compared
    last, so that the message names the one the user gave.

    Attributes:
        was_begun: bool. Whether the folder holds this run.
        model_is_outdated: bool. Whether any model in the folder was made before a
            setting was changed.
        origin: str or None. Name of the initial checkpoint on a hub, with the commit,
            which `begin` records in addition to its content.

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
        # The content that each setting names, such as "config".
        self._content_of = {n: h for n, h in compared.items() if h not in _BY_VALUE}
        where, is_folder = f"--output_dir={self.path}", files.is_folder(self.path)
        is_free = is_folder or not files.exists(self.path)
        require(is_free, f"{where}: must be a folder, is a file")
        entries = files.list_folder(self.path) if is_folder else []
        # A process killed at its start may leave some files behind.
        entries = [n for n in entries if n not in _FREE and not _LEFTOVER.fullmatch(n)]
        self._recorded: dict[str, Any] = {"settings": {}, "content": {}}
        self.was_begun = RUN_FILE in entries and not replaces
        if not self.was_begun:
            need = f"{where}: must be empty or hold this run, holds"
            other = f"{next(iter(entries), None)!r}; give another folder"
            require(replaces or not entries, f"{need} {other}")
            return
        self._recorded = self.record()
        kind = self._recorded.get("kind", "")
        need = f"{where}: holds another run, of the kind {kind or 'pretraining'!r}"
        require(kind == settings.kind, need)
        names = {*self._recorded["settings"], *self.identity}
        self._check_settings(sorted(names - set(self._follows)))
        self.model_is_outdated |= bool(self._recorded.get(_OUTDATED))

    @property
    def is_finished(self) -> bool:
        """Whether the record marks the run as finished."""
        return bool(self._recorded.get("finished"))

    def record(self) -> dict[str, Any]:
        """Returns the record of the run."""
        return _read_record(self.join(RUN_FILE))

    def join(self, *names: str) -> str:
        """Returns a path inside the folder."""
        return files.join(self.path, *names)

    def check_content(self, content: Mapping[str, Any]) -> None:
        """Compares the content that the run depends on with the record.

        The content, digests or dicts by name, is compared only as far as it is on
        record, or left out there because it is off; then the settings that follow from
        it. Raises `UsageError` if anything differs.
        """
        self.content = _as_read(content)
        for name, new in self.content.items():
            old = self._recorded["content"].get(name, new)
            pairs = [(name, old, new)]
            if isinstance(old, dict) and isinstance(new, dict):
                values = {k: (v, new.get(k, v)) for k, v in old.items()}
                off = [k for k in OMITTED if k in {**old, **new}]
                values |= {k: (old.get(k), new.get(k)) for k in off}
                pairs = [(f"{name}: {k}", *both) for k, both in values.items()]
            for title, before, now in pairs:
                old, new = _short(before), f"{_short(now)}{self._flags_of(name)}"
                self._check(before == now, f"{title}={old}", new)
        if self.was_begun:
            self._check_settings(self._follows)

    def check_versions(self) -> None:
        """Raises `UsageError` if the run began with other versions of the code.

        With `allow_other_versions` it continues, and `begin` records the new versions.
        """
        now = {**code_versions(self.settings.backend), _SOURCE: _source()}
        before = self._recorded.get(_VERSIONS, {})
        changed = {k: v for k, v in before.items() if k in now and v != now[k]}
        parts = [f"{k} {v:.20} (here {now[k]:.20})" for k, v in changed.items()]
        require(
            not changed or self.settings.allow_other_versions,
            f"--output_dir={self.path}: the run began with {', '.join(parts)}; install "
            "that, or continue with --allow_other_versions",
        )
        if changed:
            self._changed[_VERSIONS] = before

    def begin(self) -> None:
        """Creates the folder and records the run, or changed settings, in it."""
        files.make_folder(self.path)
        about = self.settings
        environment, kind = describe_environment(about.backend), about.kind
        environment[_VERSIONS][_SOURCE] = _source()
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
        now = environment[ONEDNN]
        if (before := self._recorded.get(ONEDNN, now)) != now:
            message = "%s: began with %s=%s, continues with %s: weights differ slightly"
            logging.warning(message, self.path, ONEDNN, before, now)
        if self._changed:
            changes = {
                "settings": {**self._recorded["settings"], **self.identity},
                _CHANGED: [*self._recorded.get(_CHANGED, ()), self._changed],
                _OUTDATED: self.model_is_outdated,
            }
            if _VERSIONS in self._changed:
                changes[_VERSIONS] = environment[_VERSIONS]
            self._write({**self._recorded, **changes})

    @contextlib.contextmanager
    def taken(self) -> Iterator[None]:
        """Begins the run and holds its folder inside a `with` statement."""
        files.make_folder(self.path)
        with self._held():
            if self.replaces:
                self._remove_run()
            self.begin()
            yield

    def tidy(self) -> None:
        """Removes files of killed processes from a finished run."""
        # A live process that holds the lock tidies by itself.
        if (
            any(map(folders.leftovers, self._places()))
            or files.exists(self.join(LOCK_FILE))
            or (self.is_finished and self._unneeded())
        ):
            with contextlib.suppress(UsageError), self._held():
                if self.is_finished:
                    self._remove(self._unneeded())

    def finish(self) -> None:
        """Records that the model in the folder belongs to the run's settings."""
        files.remove_tree(self.join(COMPILED_FOLDER))
        if self.model_is_outdated:
            record = self.record()
            record.pop(_OUTDATED, None)
            self._write(record)
            self.model_is_outdated = False

    def complete(
        self,
        contents: Mapping[str, bytes],
        write_model: Callable[[folders.FolderWriter], None] = lambda out: None,
    ) -> None:
        """Turns the folder of a fine-tuning run into the folder of the finished run.

        Files that a resumed run needs stay until the finished folder is complete.
        `write_model` writes the files of the model, if `contents` lacks them.
        """
        record = {**self.record(), "finished": True}
        last = ("config.json", folders.MANIFEST, RUN_FILE)
        with folders.adding(self.path, last) as out:
            write_model(out)
            for name, data in contents.items():
                out.write(name, data)
            out.write_json(RUN_FILE, record)
        self._remove(self._unneeded())

    @contextlib.contextmanager
    def _held(self) -> Iterator[None]:
        """Locks and tidies the folder inside a `with` statement."""
        with locked(self.path):
            for path in self._places():
                folders.tidy(path)
            yield

    def _places(self) -> list[str]:
        """Returns the folders in which a killed process may have left files."""
        # Only pretraining runs contain a model folder; in others it is the user's.
        models = () if self.settings.kind else (MODEL, GENERATOR)
        inside = (CHECKPOINT_FOLDER, BEST_FOLDER, *models)
        return [self.path, *map(self.join, inside)]

    def _unneeded(self) -> set[str]:
        return _TEMPORARY.intersection(files.list_folder(self.path))

    def _remove(self, names: Iterable[str]) -> None:
        for name in names:
            files.remove_tree(self.join(name))

    def _remove_run(self) -> None:
        """Removes the run that this one replaces, and nothing else."""
        # If this process dies now, the folder must not look like a finished run.
        self._write({"kind": self.settings.kind, "settings": {}})
        own = _RUN_NAMES | _TEMPORARY
        self._remove(
            name
            for name in sorted(files.list_folder(self.path))
            if name in own or files.is_leftover(name) or _PREDICTIONS.fullmatch(name)
        )
        files.remove(self.join(RUN_FILE))

    def _write(self, record: Mapping[str, Any]) -> None:
        files.write_text(self.join(RUN_FILE), files.to_json(record, indent=2) + "\n")

    def _check(self, is_same: bool, old: str, new: str) -> None:
        where = f"--output_dir={self.path}: holds another run"
        require(is_same, f"{where}, with {old}; received {new}")

    def _check_settings(self, names: Iterable[str]) -> None:
        recorded, content = self._recorded["settings"], self._recorded["content"]
        defaults = _as_read(self.settings.defaults())
        for name in names:
            old = recorded.get(name, defaults.get(name))
            new = self.identity.get(name)
            if old == new or self._content_of.get(name) in content:
                continue
            self._changed[name] = old
            if self.settings.in_identity().get(name) == _RECORDED:
                continue
            # A run may continue with other values of some settings.
            allowed = getattr(self.settings, f"change_{name}", None)
            hint = "" if allowed is None else f" (--change_{name} allows it)"
            self._check(allowed, f"--{name}={old!r}", f"--{name}={new!r}{hint}")
            self.model_is_outdated = True

    def _flags_of(self, content: str) -> str:
        """Returns the flags that name a content, for messages."""
        names = [name for name, key in self._content_of.items() if key == content]
        flags = [f"--{n}={self.identity[n]}" for n in names if self.identity.get(n)]
        return f" ({', '.join(flags)})" if flags else ""


def _read_record(path: str) -> dict[str, Any]:
    try:
        record = dict(files.from_json(files.read_text(path)))
        parts = {"settings": record["settings"], "content": record.get("content")}
        return record | {name: dict(part or {}) for name, part in parts.items()}
    except (ValueError, KeyError, TypeError, AttributeError) as e:
        if isinstance(e, DataError):
            raise
        raise DataError(
            f"{path}: must be the JSON record of a run; after a power cut, put the one "
            "here that the same command begins with in another --output_dir, and "
            "repeat it"
        ) from None


def describe_command(settings: TrainingSettings) -> dict[str, Any]:
    """Returns facts, except paths, that must be equal in all workers."""
    compared = settings.in_identity()
    versions = code_versions(settings.backend)
    facts = {f"version of {name}": v for name, v in versions.items()}
    facts[_SOURCE] = _source()
    local = {name for name, how in compared.items() if how not in _BY_VALUE}
    local |= {"output_dir", "eval_file", "compilation_cache"}
    all_settings = vars(settings).items()
    return facts | {f"--{name}": v for name, v in all_settings if name not in local}


@functools.cache
def _source() -> str:
    """Returns a digest of the package's code, which may change within a version."""
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
    """Formats a value for a message; digests are shortened."""
    if isinstance(value, str) and len(value) == 64:
        return f"{value[:12]}…"
    return repr(value)


def is_run(path: str) -> bool:
    """Returns whether a folder holds a fine-tuning run, finished or not."""
    record = files.read_record(files.join(path, RUN_FILE))
    return record.get("kind") == FinetuneSettings.kind


def prepared(settings: FinetuneSettings) -> FinetuneSettings:
    """Checks the folder of a run, and returns the settings with its final path."""
    path = settings.output_dir.rstrip("/") or "/"
    if not files.is_remote(path):
        path = os.path.realpath(path)
    names = files.list_folder(path) if files.is_folder(path) else [path]
    if RUN_FILE in names:
        _read_record(files.join(path, RUN_FILE))  # its error says what to do if damaged
    used = any(not (name in _FREE or files.is_leftover(name)) for name in names)
    if used and files.exists(path) and not is_run(path):
        raise UsageError(
            f"output_dir: {path} is not a fine-tuning run and is therefore not "
            "overwritten"
            if settings.overwrite
            else f"output_dir: {path} exists already and is not a fine-tuning run; "
            "give a new or an empty folder"
        )
    if not files.is_remote(path):
        check_writable(path)
    return settings.having(output_dir=path)


def check_writable(path: str) -> None:
    """Checks, before hours of training, that a local folder is writable."""
    parent = path = os.path.realpath(path)
    while not os.path.lexists(parent):
        parent = os.path.dirname(parent)
    # Processes that start at the same moment recognize this name as a leftover.
    probe = os.path.join(parent, f".lock-{uuid.uuid4().hex[:8]}")
    try:
        os.mkdir(probe)
        files.remove_empty_folder(probe)
    except OSError as e:
        cannot = "written" if parent == path else f"created in {parent}"
        raise UsageError(
            f"output_dir: {path} cannot be {cannot}: {e.strerror}"
        ) from None


def open_run(settings: FinetuneSettings, content: Mapping[str, Any]) -> RunFolder:
    """Opens the folder of a run, to begin or continue it; changes nothing.

    The folder replaces a run in it that is another one, or damaged, if the resolved
    settings allow it. Raises `UsageError` if it holds another run that may not be
    replaced, and `DataError` if the run in it is finished but damaged, and may not be
    replaced.
    """
    try:
        run = RunFolder(settings)
        run.check_content(content)
        if run.is_finished:
            folders.verify(run.path)
        else:
            run.check_versions()
        return run
    except folders.DamagedError as e:
        if not settings.overwrite:
            raise DataError(f"{e}; --overwrite makes the run again") from None
    except UsageError as e:
        if not is_run(settings.output_dir):
            raise
        if not settings.overwrite:
            raise UsageError(
                f"{e}; give another folder, or --overwrite to replace that run"
            ) from None
    run = RunFolder(settings, replaces=True)
    run.check_content(content)
    return run
