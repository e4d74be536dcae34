"""Reads the folder of a pretraining run, stopped or finished, as a checkpoint.

`pretrain` records the config in `run.json`, stores the tokenizer next to it, and writes
the weights to `checkpoints/step-N` under their canonical names.
"""

import os
import re

from albert_tf.config import AlbertConfig
from albert_tf.converters import own_format, tf1, tokenizers
from albert_tf.converters.checkpoint import Checkpoint
from albert_tf.errors import DataError
from albert_tf.storage import files, folders
from albert_tf.storage.streams import find_checkpoints
from albert_tf.text.load import load_tokenizer

NAME = "pretraining_run"
_RUN_FILE = "run.json"
_CHECKPOINTS = "checkpoints"
_MODEL = "model"
# What `finetune` records as the kind of its runs.
_FINETUNING = "finetune"
# A variable of a `tf.train.Checkpoint`, whose names escape "/" as ".S", "." as "..".
_WEIGHT = re.compile(r"(weights|averages)/(.+)/\.ATTRIBUTES/VARIABLE_VALUE")
_ESCAPED = re.compile(r"\.([S.])")


def find(path: str) -> tuple[str, str | None] | None:
    """Returns the run that a path belongs to.

    Args:
        path: str. The folder of a run, its folder `checkpoints`, or the prefix of one
            of its checkpoints, `checkpoints/step-N`.

    Returns:
        Folder of the run, and the prefix if `path` is one. None if the path is
        something else.
    """
    path = path.rstrip("/")
    parent, name = os.path.split(path)
    if files.is_folder(path):
        names = files.list_folder(path)
        if _RUN_FILE in names and own_format.CONFIG not in names:
            return path, None
        if name == _CHECKPOINTS and files.exists(files.join(parent, _RUN_FILE)):
            return parent, None
    elif os.path.basename(parent) == _CHECKPOINTS and files.exists(f"{path}.index"):
        run = os.path.dirname(parent)
        if files.exists(files.join(run, _RUN_FILE)):
            return run, path
    return None


def refuse_unfinished(path: str) -> None:
    """Refuses the folder of a fine-tuning run into which its model is being copied.

    In a bucket, the files of the finished model appear one by one next to the record of
    the run, which says at the very end that the run is finished.

    Args:
        path: str. Folder of a model.

    Raises:
        DataError: If the run is not finished.
    """
    where = files.join(path, _RUN_FILE)
    record = files.read_record(where) if files.is_folder(path) else {}
    # Folders of earlier versions, of another kind, held a record only when finished.
    if record.get("kind") == _FINETUNING and not record.get("finished"):
        raise _unfinished(path)


def read(
    run: str, prefix: str | None = None, config: AlbertConfig | None = None
) -> Checkpoint:
    """Opens the model of a run, or one of its checkpoints.

    Args:
        run: str. Folder of the run.
        prefix: str or None. Checkpoint to open; default: the finished model, or else
            the latest checkpoint.
        config: `AlbertConfig` or None. Used instead of the config in the files.

    Raises:
        DataError: If there is no checkpoint, or the files are damaged.
    """
    model = files.join(run, _MODEL)
    if prefix is None and folders.is_complete(model):
        return own_format.read(model, config)
    record = _read_record(run)
    found = find_checkpoints(files.join(run, _CHECKPOINTS))
    if not (prefix or found):
        raise DataError(f"{run}: the run has not written a checkpoint yet")
    prefix = prefix or next(iter(found.values()))
    parts: dict[str, dict] = {"weights": {}, "averages": {}}
    for key, tensor in tf1.read_tensors(prefix).items():
        match = _WEIGHT.fullmatch(key)
        if match:
            name = _ESCAPED.sub(lambda m: "/" if m[1] == "S" else ".", match[2])
            parts[match[1]][name] = tensor
    tensors = parts["weights"]
    # Before the first update, an average is that of nothing.
    is_average = record["settings"].get("export_weights") == "average"
    if is_average and not prefix.endswith("-0"):
        tensors |= parts["averages"]
    checkpoint = Checkpoint(
        format=NAME,
        path=prefix,
        config=config or _find_config(run, record),
        tensors=tensors,
        tokenizer=_find_tokenizer(run, record),
    )
    checkpoint.head = checkpoint.guess_head()
    return checkpoint


def _read_record(run: str) -> dict[str, dict]:
    path = files.join(run, _RUN_FILE)
    record = files.read_record(path)
    if record.get("kind"):
        raise _unfinished(run)
    parts = {name: record.get(name) or {} for name in ("settings", "content")}
    is_run = all(isinstance(part, dict) for part in parts.values())
    if not is_run or "num_train_steps" not in parts["settings"]:
        raise DataError(f"{path}: must be the JSON record of a pretraining run")
    return parts


def _unfinished(run: str) -> DataError:
    return DataError(
        f"{run}: holds a fine-tuning run that has not finished; run the same finetune "
        "command again"
    )


def _find_config(run: str, record: dict[str, dict]) -> AlbertConfig:
    # Only what the run itself holds: a stranger's record may name any path.
    path, content = files.join(run, _RUN_FILE), record["content"].get("config")
    if not content:
        raise DataError(f"{path}: no config of the model is on record; give a config")
    try:
        return AlbertConfig.from_dict(content)
    except (ValueError, TypeError, AttributeError) as e:
        raise DataError(f"{path}: {e}") from None


def _find_tokenizer(run: str, record: dict[str, dict]):
    options = dict(record["content"].get("tokenizer") or {})
    options.pop("sha256", None)
    return tokenizers.finder(
        run,
        (tokenizers.SPIECE, tokenizers.JSON),
        lambda path: load_tokenizer(path, **options),
    )
