"""Reads and writes our own folders: config, weights, tokenizer and a manifest.

Also reads the `.keras` file that `model.save` wrote for one of this package's models,
and the folder of a pretraining run, stopped or finished: `pretrain` records the config
in `run.json`, stores the tokenizer next to it, and writes the weights to
`checkpoints/step-N` under their canonical names.

A folder inside another one may be an adapter: it holds only the weights and tokenizer
that the outer one, its base, lacks. Several adapters can share one block.
"""

import os
import re
import tempfile
import zipfile
from typing import Any

import numpy as np

from albert_tf.config import AlbertConfig
from albert_tf.converters import nets, safetensors_file, tf1
from albert_tf.converters.checkpoint import Checkpoint
from albert_tf.converters.table import OWN
from albert_tf.converters.tokenizers import attach_tokenizer, write_library_config
from albert_tf.errors import DataError, require
from albert_tf.heads import GENERATOR, HEADS, MODEL, PAIRS, all_rows, find
from albert_tf.storage import files, folders
from albert_tf.storage.streams import find_checkpoints
from albert_tf.text.load import IN_FOLDER

NAME = "albert_tf"
CONFIG = "config.json"
WEIGHTS = "model.safetensors"
KERAS_ENDING = ".keras"
# Prefix of this package's class names in Keras.
_OURS = "albert_tf>"
_RUN = "pretraining_run"
_RUN_FILE = "run.json"
_CHECKPOINTS = "checkpoints"
# Kind of run that `finetune` records.
_FINETUNING = "finetune"
# A variable of a `tf.train.Checkpoint`, whose names escape "/" as ".S", "." as "..".
_WEIGHT = re.compile(r"(weights|averages)/(.+)/\.ATTRIBUTES/VARIABLE_VALUE")
_ESCAPED = re.compile(r"\.([S.])")


def matches(path: str, names: set[str], config: dict | None) -> bool:
    """Returns whether a folder is in our own format."""
    return config is not None and config.get("format") == NAME


def read(path: str, config: AlbertConfig | None = None) -> Checkpoint:
    """Opens a folder that `write` made.

    Raises `DataError` if a file is missing, changed or invalid.
    """
    listed = folders.verify(path)
    for name in (CONFIG, WEIGHTS):
        if name not in listed:
            raise DataError(f"{path}: the manifest does not list {name}")
    config_path = files.join(path, CONFIG)
    config = config or AlbertConfig.from_json(config_path)
    values = files.read_json(config_path)
    model, options = values.get("model") or {}, values.get("tokenizer") or {}
    if not (isinstance(model, dict) and isinstance(options, dict)):
        raise DataError(f"{config_path}: model and tokenizer must be objects")
    base, record = None, values.get("base")
    if record is not None:
        base = _open_base(path, record)
    if model.get("head") not in (None, *HEADS):
        raise DataError(f"{config_path}: head must be one of {', '.join(HEADS)}")
    checkpoint = Checkpoint(
        format=NAME,
        path=path,
        config=config,
        tensors={
            **({n: base.tensors[n] for n in record["tensors"]} if base else {}),
            **safetensors_file.read(files.join(path, WEIGHTS)),
        },
        task=model.get("task"),
        untrained=model.get("untrained") or [],
        is_generator=model.get("net") == GENERATOR,
    )
    names = [name for name in IN_FOLDER if name in listed]
    attach_tokenizer(checkpoint, path, names, options)
    if base and not names:
        checkpoint.tokenizer = base.tokenizer
    checkpoint.set_head(model, config_path)
    exits = checkpoint.head_options.get("num_exits")
    most = config.num_hidden_layers - 1
    expected = f"num_exits must be {most}, one for each layer but the last"
    require(exits in (None, most), f"{config_path}: {expected}", exits, error=DataError)
    if f"{GENERATOR}/{CONFIG}" in listed:
        checkpoint.generator = read(files.join(path, GENERATOR))
    return checkpoint


def write(checkpoint: Checkpoint, out: folders.FolderWriter) -> None:
    """Writes the files of a folder.

    Raises `UsageError` if weights are not equal to the base's that an adapter shares.
    """
    config, tensors, base = checkpoint.config.to_dict(), checkpoint.tensors, None
    if checkpoint.base:
        base = read(checkpoint.base[0])
        shared = _shared_with(checkpoint, base)
        tensors = {name: t for name, t in tensors.items() if name not in shared}
        config["base"] = {**_record_of(*checkpoint.base), "tensors": shared}
    config["model"] = {
        "head": checkpoint.head,
        "num_labels": checkpoint.num_labels,
        "labels": checkpoint.labels,
        "problem_type": checkpoint.problem_type,
        "untrained": checkpoint.untrained,
        **checkpoint.head_options,
    }
    if checkpoint.is_generator:
        config["model"]["net"] = GENERATOR
    if checkpoint.max_seq_length is not None:
        config["model"]["max_seq_length"] = checkpoint.max_seq_length
    if checkpoint.task is not None:
        config["model"]["task"] = checkpoint.task
    if checkpoint.tokenizer is not None:
        tokenizer = checkpoint.make_tokenizer()
        config["tokenizer"] = tokenizer.get_config()
        its = base and base.tokenizer and base.make_tokenizer()
        ids = lambda one: (one.sha256, one.get_config())  # noqa: E731
        if not its or ids(its) != ids(tokenizer):
            out.write(tokenizer.file_name, tokenizer.model)
            write_library_config(tokenizer, checkpoint.config, out)
    with out.open(WEIGHTS) as f:
        safetensors_file.write(f, tensors, {"format": NAME})
    out.write_json(CONFIG, config)
    out.write_manifest()


def base_of(base: str, target: str, format: str) -> tuple[str, int]:
    """Returns the folder that an adapter shares weights with, and its distance.

    Raises `UsageError` if the target would not be inside, or not in our format.
    """
    base, target = os.fspath(base), os.fspath(target)
    remote = files.is_remote(base) or files.is_remote(target)
    need = "base: needs folders on this machine; the whole folder can be copied then"
    require(not remote, need, base, target)
    require(format == NAME, f"base: format must be {NAME}", format)
    need = "base: expected a model folder with a manifest"
    require(files.exists(files.join(base, folders.MANIFEST)), need, base)
    outer, inner = os.path.realpath(base), os.path.realpath(target)
    need = f"base: the target must be inside, such as {base}/adapters/NAME"
    require(inner.startswith(outer + os.sep), need, target)
    return base, inner[len(outer) :].count(os.sep)


def _record_of(base: str, distance: int) -> dict[str, Any]:
    digest = files.digest_of(files.join(base, folders.MANIFEST))
    return {"folders_up": distance, "sha256": digest["sha256"]}


def _shared_with(checkpoint: Checkpoint, base: Checkpoint) -> list[str]:
    """Returns the names of weights of the encoder that equal the base's."""
    names = [n for n in checkpoint.tensors if n.startswith("backbone/")]
    trained = base.tensors.keys() - {*base.untrained}
    shared = [n for n in names if n in trained and not n.startswith(OWN)]
    for name in shared:
        equal = np.array_equal(
            checkpoint.tensors[name].read(), base.tensors[name].read()
        )
        need = f"base: {base.path} must have the same {name}, which finetune "
        require(equal, f"{need}--train=depth --init_checkpoint={base.path} keeps")
    return shared


def _open_base(path: str, record: Any) -> Checkpoint:
    """Opens the base of an adapter; raises `DataError` if it is another one."""
    up, names = (
        record.get(key) if isinstance(record, dict) else None
        for key in ("folders_up", "tensors")
    )
    fits = type(up) is int and 0 < up < 100 and isinstance(names, list)
    fits = fits and all(isinstance(name, str) for name in names)
    need = f"{files.join(path, CONFIG)}: base must have folders_up, sha256 and tensors"
    require(fits, need, record, error=DataError)
    base = path.rstrip("/") if files.is_remote(path) else os.path.realpath(path)
    for _ in range(up):
        base = os.path.dirname(base)
    try:
        outer = read(base)
    except folders.DamagedError as e:
        need = f"{path}: is an adapter, which needs its model around it, in {base}"
        raise DataError(f"{need}: {e}") from None
    same = _record_of(base, up)["sha256"] == record.get("sha256")
    need = f"{path}: is an adapter of another model than the one in {base}"
    require(same and outer.tensors.keys() >= {*names}, need, error=DataError)
    return outer


def read_keras(path: str, config: AlbertConfig | None = None) -> Checkpoint:
    """Reads a `.keras` file into memory, without its compile settings.

    `config` replaces the config in the file. Raises `DataError` if there is no such
    file, or it does not hold a model of this package.
    """
    with tempfile.TemporaryDirectory(prefix="albert_tf-") as folder:
        local = path
        if files.is_remote(path):
            local = os.path.join(folder, f"model{KERAS_ENDING}")
            files.write_bytes(local, files.read_bytes(path))
        _check_class(path, local)
        import keras

        from albert_tf.converters.keras_model import from_model

        try:
            model = keras.saving.load_model(local, compile=False)
        except Exception as e:  # Keras raises many kinds
            reason = " ".join(str(e).split())[:200]
            raise DataError(f"{path}: cannot be loaded: {reason}") from None
    preprocessor = model.preprocessor
    tokenizer = None if preprocessor is None else preprocessor.tokenizer
    checkpoint = from_model(model, tokenizer)
    checkpoint.format, checkpoint.path = "keras", path
    if tokenizer is not None:
        checkpoint.tokenizer_options = tokenizer.get_config()
    checkpoint.config = config or checkpoint.config
    return nets.main_of(checkpoint)


def _check_class(path: str, local: str) -> None:
    """Raises `DataError` for any other class, because Keras would import it."""
    try:
        with zipfile.ZipFile(local) as archive:
            values = files.from_json(archive.read(CONFIG))
        name = values["registered_name"] or values["class_name"]
    except FileNotFoundError:
        raise DataError(f"{path}: no such file or folder") from None
    except (OSError, zipfile.BadZipFile, KeyError, TypeError, ValueError):
        name = "a damaged or other file"
    ours = {
        _OURS + row.keras_class.rpartition(".")[2]
        for row in (*all_rows(), *PAIRS.values())
    }
    if name not in ours:
        raise DataError(
            f"{path}: may contain code; only models of albert_tf are read from "
            f"{KERAS_ENDING} files, received {name}"
        )


def find_run(path: str) -> tuple[str, str | None] | None:
    """Returns the folder of the run that a path belongs to, and a prefix if it is one.

    The path is the folder of a run, its folder `checkpoints`, or the prefix of one of
    its checkpoints, `checkpoints/step-N`; or a folder that only holds the models of a
    run, `model` and `generator`. Any other path gives None.
    """
    path = path.rstrip("/")
    parent, name = os.path.split(path)
    if files.is_folder(path):
        names = files.list_folder(path)
        is_run = _RUN_FILE in names or {MODEL, GENERATOR} <= set(names)
        if is_run and CONFIG not in names:
            return path, None
        if name == _CHECKPOINTS and files.exists(files.join(parent, _RUN_FILE)):
            return parent, None
    elif os.path.basename(parent) == _CHECKPOINTS and files.exists(f"{path}.index"):
        run = os.path.dirname(parent)
        if files.exists(files.join(run, _RUN_FILE)):
            return run, path
    return None


def refuse_unfinished(path: str) -> None:
    """Raises `DataError` if a fine-tuning run is still copying its model to a folder.

    In a bucket, the files of the finished model appear one by one next to the record of
    the run, which is marked as finished at the very end.
    """
    where = files.join(path, _RUN_FILE)
    record = files.read_record(where) if files.is_folder(path) else {}
    if record.get("kind") == _FINETUNING and not record.get("finished"):
        raise _unfinished(path)


def read_run(
    run: str, prefix: str | None = None, config: AlbertConfig | None = None
) -> Checkpoint:
    """Opens the model of a run, with its generator, or one of its checkpoints.

    `prefix` is the checkpoint to open, by default the finished model, or else the
    latest checkpoint; `config` replaces the config in the files. Raises `DataError` if
    there is no checkpoint, or the files are damaged.
    """
    model, generator = files.join(run, MODEL), files.join(run, GENERATOR)
    if prefix is None and folders.is_complete(model):
        checkpoint = read(model, config)
        if folders.is_complete(generator):
            checkpoint.generator = read(generator)
        return checkpoint
    record = _read_record(run)
    checkpoints = find_checkpoints(files.join(run, _CHECKPOINTS))
    if not (prefix or checkpoints):
        raise DataError(f"{run}: the run has not written a checkpoint yet")
    prefix = prefix or next(iter(checkpoints.values()))
    parts: dict[str, dict] = {"weights": {}, "averages": {}}
    for key, tensor in tf1.read_tensors(prefix).items():
        match = _WEIGHT.fullmatch(key)
        if match:
            name = _ESCAPED.sub(lambda m: "/" if m[1] == "S" else ".", match[2])
            parts[match[1]][name] = tensor
    tensors = parts["weights"]
    # Before the first update, the averages are still empty.
    is_average = record["settings"].get("export_weights") == "average"
    if is_average and not prefix.endswith("-0"):
        tensors |= parts["averages"]
    options = dict(record["content"].get("tokenizer") or {})
    options.pop("sha256", None)
    checkpoint = Checkpoint(
        format=_RUN,
        path=prefix,
        config=config or _find_config(run, record),
        tensors=tensors,
    )
    attach_tokenizer(checkpoint, run, options=options)
    checkpoint.head = checkpoint.guess_head()
    options, settings = find(checkpoint.head).options, record["settings"]
    checkpoint.head_options = {k: settings[k] for k in options if k in settings}
    return nets.main_of(checkpoint)


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
    # Only content of the run itself is used: a stranger's record may name any path.
    path, content = files.join(run, _RUN_FILE), record["content"].get("config")
    if not content:
        raise DataError(f"{path}: no config of the model is on record; give a config")
    try:
        return AlbertConfig.from_dict(content)
    except (ValueError, TypeError, AttributeError) as e:
        raise DataError(f"{path}: {e}") from None
