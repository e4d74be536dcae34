"""Loads and checks the inputs of a pretraining run before it begins.

Importing this module, and `check_files`, need no TensorFlow.
"""

import contextlib
import hashlib
import os
import pathlib
from collections.abc import Iterable, Mapping

from albert_tf.config import AlbertConfig, activations
from albert_tf.converters.checkpoint import Checkpoint
from albert_tf.converters.detect import check_path
from albert_tf.converters.tokenizers import choose_tokenizer
from albert_tf.data.records import card, shards
from albert_tf.data.records.tfrecord import RecordSet
from albert_tf.environment import memory_bytes
from albert_tf.errors import UsageError, require
from albert_tf.storage import files
from albert_tf.storage.lock import check_free
from albert_tf.text.load import check_options, load_tokenizer
from albert_tf.text.tokenizer import Tokenizer
from albert_tf.training.pretrain_settings import PretrainSettings
from albert_tf.training.run_folder import RunFolder, check_writable

# Pair policies whose examples have two segments.
_OF_SEGMENTS = ("clean", "original", "nsp", "segments")


def check_files(settings: PretrainSettings) -> None:
    """Raises the error of `pretrain` for missing inputs or an unusable output."""
    folder = settings.output_dir
    # Other processes of the same run may hold the folder by now.
    if settings.distribution in ("one_device", "mirrored"):
        if not files.is_remote(folder):
            check_writable(folder)
        check_free(folder)
        RunFolder(settings)
    if settings.init_checkpoint:
        check_path(settings.init_checkpoint)
    if settings.teacher:
        check_path(settings.teacher)
    if not settings.spm_model_file:
        return  # the checkpoint brings it, and is opened later
    tokenizer = load_run_tokenizer(settings)
    if settings.preset or settings.albert_config_file:
        check_sizes(settings, load_config(settings, None, tokenizer), tokenizer)


def check_sizes(settings: PretrainSettings, config: AlbertConfig, tokenizer) -> None:
    """Raises `UsageError` if rows or tokens do not fit the model."""
    longest, length = config.max_position_embeddings, settings.max_seq_length
    need = f"--max_seq_length must be at most max_position_embeddings={longest}"
    require(length <= longest, need, length)
    settings.check_vocabulary(config, tokenizer.vocab_size)
    source = settings.spm_model_file or settings.init_checkpoint
    config.check_pad_id(tokenizer.pad_id, source, UsageError)


def load_config(
    settings: PretrainSettings, start: Checkpoint | None, tokenizer: Tokenizer
) -> AlbertConfig:
    """Returns the model's config from a preset, a file or the initial checkpoint."""
    if start is None or settings.preset or settings.albert_config_file:
        config = settings.own_config(tokenizer.pad_id)
    else:
        config = start.config
    return settings.with_depth_weights(config)


def check_segments(
    settings: PretrainSettings, config: AlbertConfig, who: str = "a model"
) -> None:
    """Raises `UsageError` if records have two segments and the model only one."""
    if config.type_vocab_size > 1:
        return
    for pattern in filter(None, (*settings.input_files(), settings.eval_file)):
        for path in card_paths(shards.find_shards(pattern)):
            policy = files.read_record(path).get("pair_policy")
            need = f"{path}: {who} with type_vocab_size=1 needs records of one segment"
            need = f"{need}, not of --pair_policy"
            require(policy not in _OF_SEGMENTS, need, policy)


def check_ngram(settings: PretrainSettings, was_begun: bool) -> None:
    """Raises `UsageError` if a length of n-grams is given without effect."""
    ngram, default = settings.ngram, settings.defaults()["ngram"]
    fits = was_begun or settings.masking == "albert" or ngram == default
    require(fits, f"--ngram={ngram} requires --masking=albert", settings.masking)


def load_run_tokenizer(
    settings: PretrainSettings, start: Checkpoint | None = None
) -> Tokenizer:
    """Loads the tokenizer with the options that the data cards of the records name.

    Training never tokenizes, so a wrong option would only show when the model is used.
    Options of the settings apply where no card has any. The initial checkpoint's
    tokenizer is used if the settings name none. Raises `UsageError` if settings and
    cards contradict each other, and `DataError` if the file is not a tokenizer.
    """
    names = ("do_lower_case", "keep_accents")
    values = {name: getattr(settings, name) for name in names}
    options = {name: value for name, value in values.items() if value is not None}
    for pattern in filter(None, (*settings.input_files(), settings.eval_file)):
        for path in card_paths(shards.find_shards(pattern)):
            # Anything wrong with a card is reported where the records are opened.
            recorded = card.tokenizer_options(files.read_record(path))
            check_options(options, recorded, path)
            options = recorded | options
    if not settings.spm_model_file:
        own = {name: options.pop(name) for name in names if name in options}
        chosen = choose_tokenizer(start, None, **own)
        check_options(options, chosen.get_config(), start.path)
        return chosen
    return load_tokenizer(settings.spm_model_file, **options)


def digests_of(records: Mapping[int, RecordSet]) -> dict[str, str]:
    """Returns digests that identify the training data of a run, given by length."""
    data = {}
    for length, part in records.items():
        ends = "" if length == max(records) else f" of {length} tokens"
        data[f"records{ends}"] = part.digest()
        if cards := card_paths(part.paths):
            digests = [card.content_digest(files.read_json(path)) for path in cards]
            sha256 = hashlib.sha256("".join(digests).encode())
            data[f"card{ends}"] = sha256.hexdigest()
    return data


def card_paths(paths: Iterable[str]) -> list[str]:
    """Returns the data cards next to record files, in the order of the files."""
    folders = dict.fromkeys(os.path.dirname(path) for path in paths)
    cards = [files.join(folder, card.CARD_NAME) for folder in folders]
    return [path for path in cards if files.exists(path)]


# TensorFlow's kernels count the elements of a tensor with 32 bits.
MAX_ELEMENTS = 2**31 - 1
# Linux lists the control groups of a process, and their limits, in these places.
_OWN_GROUPS = pathlib.Path("/proc/self/cgroup")
_GROUPS = pathlib.Path("/sys/fs/cgroup")


def check_batches(
    settings: PretrainSettings, config: AlbertConfig, replicas: int, sharing: int = 1
) -> None:
    """Checks that batches of all phases can be divided, and that their parts fit.

    A batch is shared by `replicas` devices, of which `sharing` use the memory of one
    machine. The message of the `UsageError` names flags that make them fit.
    """
    unit = replicas * settings.gradient_accumulation_steps
    memory = (memory_of_machine() or 0) // sharing
    for phase in settings.phases:
        size, flag = phase.settings.train_batch_size, "--train_batch_size"
        if size != settings.train_batch_size:
            flag = "--sequence_length_schedule"
        sizes = [n for n in (size // unit * unit, -(-size // unit) * unit) if n]
        need = (
            f"{flag}: expected batches of a multiple of {unit} ({replicas} devices x "
            f"{settings.gradient_accumulation_steps} accumulation steps), such as "
            f"{' or '.join(map(str, sizes))}"
        )
        require(size % unit == 0, need, size)
        per_row = _bytes_per_row(phase.settings, config)
        most, reason = _most_rows(phase.settings, config, memory, per_row)
        rows = size // replicas
        steps = (n for n in range(1, rows + 1) if rows % n == 0 and rows // n <= most)
        need = (
            f"{flag}, batches of {size}: a device can compute at most {most} examples "
            f"of {phase.settings.max_seq_length} tokens at once (more would {reason}); "
            f"use --gradient_accumulation_steps={next(steps, rows)}"
        )
        require(size // unit <= most, need, size // unit)
        if settings.eval_file:
            check_eval_batch(phase.settings, config, replicas, memory)


def check_eval_batch(
    settings: PretrainSettings, config: AlbertConfig, replicas: int, memory: int
) -> None:
    """Raises `UsageError` if evaluation batches do not fit the devices.

    Each device that shares a batch has `memory` bytes; 0 if unknown.
    """
    # At least the largest tensor, and the result of a softmax or an activation of it.
    per_row = 2 * settings.bytes_per_value * _largest_tensor(settings, config)[1]
    most, reason = _most_rows(settings, config, memory, per_row)
    need = f"--eval_batch_size must be at most {most * replicas} (more would {reason})"
    fits = settings.eval_batch_size // replicas <= most
    require(fits, need, settings.eval_batch_size)


def _most_rows(settings, config, memory: int, per_row: int) -> tuple[int, str]:
    """Returns the number of rows a device can compute at once, and why not more."""
    what, elements = _largest_tensor(settings, config)
    most = MAX_ELEMENTS // elements
    if memory and memory // per_row < most:
        reason = f"exceed its {memory / 2**30:.0f} GiB of memory"
        return max(1, memory // per_row), reason
    return most, f"make the {what} exceed {MAX_ELEMENTS:,} elements"


def _largest_tensor(settings: PretrainSettings, config) -> tuple[str, int]:
    """Returns the tensor that grows most with each row, and its elements per row."""
    T, P = settings.max_seq_length, settings.num_predictions
    elements = {
        "masked-LM logits": P * config.vocab_size,
        "attention scores": config.num_attention_heads * T * T,
        "feed-forward values": T * config.intermediate_size,
    }
    return max(elements.items(), key=lambda item: item[1])


def _bytes_per_row(settings: PretrainSettings, config: AlbertConfig) -> int:
    """Returns a lower bound of the bytes that the backward pass needs for a row."""
    recompute, size = settings.depth == "loop_remat", settings.bytes_per_value
    saved = size * activations(config, 1, settings.max_seq_length, recompute)
    return saved + 8 * settings.num_predictions * config.vocab_size


def memory_of_machine() -> int | None:
    """Returns the bytes that this process may use on a CPU, or None with other devices.

    The limit is the machine's memory, or the one of a control group, such as a
    container. TensorFlow does not report how much memory a GPU has.
    """
    import tensorflow as tf

    if tf.config.list_physical_devices("GPU"):
        return None
    whole = memory_bytes()
    return whole and min([whole, *_group_limits()])


def _group_limits() -> list[int]:
    """Returns the memory limits of this process's control groups and their parents."""
    limits = []
    lines = _OWN_GROUPS.read_text().splitlines() if _OWN_GROUPS.exists() else []
    for _, controllers, path in (line.split(":", 2) for line in lines):
        # Version 1 has a hierarchy for each controller, version 2 one for all.
        root, name = _GROUPS, "memory.max"
        if controllers:
            root, name = _GROUPS / "memory", "memory.limit_in_bytes"
        if "memory" in (controllers or "memory").split(","):
            group = pathlib.PurePosixPath(path.lstrip("/"))
            for folder in (group, *group.parents):
                # The group may not exist here; "max" means no limit.
                with contextlib.suppress(OSError, ValueError):
                    limits.append(int((root / folder / name).read_text()))
    return limits
