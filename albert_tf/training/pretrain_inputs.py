"""What a pretraining run starts from, checked before it begins.

Importing it, and `check_files`, need no TensorFlow.
"""

import hashlib
import os
import pathlib
from collections.abc import Iterable, Mapping
from typing import Any

from albert_tf import facts
from albert_tf.config import AlbertConfig
from albert_tf.converters.checkpoint import Checkpoint
from albert_tf.converters.detect import check_path
from albert_tf.data.records import card, shards
from albert_tf.data.records.tfrecord import RecordSet
from albert_tf.errors import UsageError
from albert_tf.storage import files
from albert_tf.text.load import check_options, load_tokenizer
from albert_tf.text.tokenizer import Tokenizer
from albert_tf.training.pretrain_settings import PretrainSettings, phases_of


def check_files(settings: PretrainSettings) -> None:
    """Raises what `pretrain` raises if config, tokenizer, records or weights lack."""
    if settings.init_checkpoint:
        check_path(settings.init_checkpoint)
    tokenizer = load_run_tokenizer(settings)
    if settings.preset or settings.albert_config_file:
        check_sizes(settings, load_config(settings, None), tokenizer)


def check_sizes(settings: PretrainSettings, config: AlbertConfig, tokenizer) -> None:
    """Checks that rows and tokens fit the model.

    Raises:
        UsageError: If not.
    """
    if settings.max_seq_length > config.max_position_embeddings:
        raise UsageError(
            f"--max_seq_length must be at most max_position_embeddings="
            f"{config.max_position_embeddings}, received {settings.max_seq_length}"
        )
    settings.check_vocabulary(config, tokenizer.vocab_size)


def load_config(settings: PretrainSettings, start: Checkpoint | None) -> AlbertConfig:
    """Returns the model's config, from a preset, a file or the initial checkpoint."""
    if start is None or settings.preset or settings.albert_config_file:
        return settings.own_config()
    return start.config


def load_run_tokenizer(settings: PretrainSettings) -> Tokenizer:
    """Loads the tokenizer with the options that the data cards of the records name.

    Training never tokenizes, so a wrong option would show only in the use of the model.

    Args:
        settings: `PretrainSettings`. Its options count where no card has any.

    Raises:
        UsageError: If settings and cards contradict each other.
        DataError: If the file is not a tokenizer.
    """
    given = {
        "do_lower_case": settings.do_lower_case,
        "keep_accents": settings.keep_accents,
    }
    options = {name: value for name, value in given.items() if value is not None}
    for pattern in filter(None, (*settings.input_files(), settings.eval_file)):
        for path in _card_paths(shards.find_shards(pattern)):
            # Anything wrong with a card is reported where the records are opened.
            known = card.tokenizer_options(files.read_record(path))
            check_options(options, known, path)
            options = known | options
    return load_tokenizer(settings.spm_model_file, **options)


def content_of(
    config: AlbertConfig,
    tokenizer,
    records: RecordSet,
    checkpoint: Checkpoint | None = None,
    more: Mapping[int, RecordSet] | None = None,
) -> dict[str, Any]:
    """Returns the content that, with its settings, determines the result of a run.

    Args:
        config: `AlbertConfig`. Config of the model.
        tokenizer: `Tokenizer`. The one that the records were made with.
        records: `RecordSet`. The training data.
        checkpoint: `Checkpoint` or None. The initial checkpoint, open.
        more: dict or None. The training data of other lengths, by the length.

    Returns:
        dict by the names that settings have as their "identity", ready for JSON.
    """
    data = {"records": records.digest(), **_card_digest(records)}
    for length, others in (more or {}).items():
        found = {"records": others.digest(), **_card_digest(others)}
        data |= {f"{name} of {length} tokens": v for name, v in found.items()}
    return {
        "data": data,
        "tokenizer": {"sha256": tokenizer.sha256, **tokenizer.get_config()},
        "config": config.to_dict(),
        "init_checkpoint": "" if checkpoint is None else checkpoint.digest(),
    }


def _card_digest(records: RecordSet) -> dict[str, str]:
    """Returns the digest of the data cards; nothing without a card."""
    sha256, found = hashlib.sha256(), _card_paths(records.paths)
    for path in found:
        sha256.update(card.content_digest(files.read_json(path)).encode())
    return {"card": sha256.hexdigest()} if found else {}


def _card_paths(paths: Iterable[str]) -> list[str]:
    """Returns the data cards next to record files, in the order of the files."""
    folders = dict.fromkeys(os.path.dirname(path) for path in paths)
    found = [files.join(folder, card.CARD_NAME) for folder in folders]
    return [path for path in found if files.exists(path)]


# Kernels of TensorFlow count the elements of a tensor with 32 bits.
MAX_ELEMENTS = 2**31 - 1
# Where Linux says which control groups a process is in, and what they may use.
_OWN_GROUPS = pathlib.Path("/proc/self/cgroup")
_GROUPS = pathlib.Path("/sys/fs/cgroup")


def check_batches(
    settings: PretrainSettings, config: AlbertConfig, strategy: Any
) -> None:
    """Checks the batches of every phase; see `check_batch_size`.

    Args:
        settings: `PretrainSettings`.
        config: `AlbertConfig`. Config of the model.
        strategy: `tf.distribute.Strategy`.
    """
    for phase in phases_of(settings):
        given = phase.settings.train_batch_size == settings.train_batch_size
        check_batch_size(
            *(phase.settings, config, strategy.num_replicas_in_sync),
            "train_batch_size" if given else "sequence_length_schedule",
            sharing=len(strategy.extended.worker_devices),
        )


def check_batch_size(
    settings: PretrainSettings,
    config: AlbertConfig,
    replicas: int,
    flag: str = "train_batch_size",
    sharing: int = 1,
) -> None:
    """Checks that a batch can be divided, and that its parts fit the devices.

    Args:
        settings: `PretrainSettings`. Settings of the run.
        config: `AlbertConfig`. Config of the model.
        replicas: int. Number of devices that share a batch.
        flag: str. Name of the flag that the size comes from.
        sharing: int. Number of devices that share the memory of a machine.

    Raises:
        UsageError: If they do not; it names the flags that make them fit.
    """
    size, steps = settings.train_batch_size, settings.gradient_accumulation_steps
    unit = replicas * steps
    if size % unit:
        sizes = [n for n in (size // unit * unit, -(-size // unit) * unit) if n]
        raise UsageError(
            f"--{flag}: expected batches of a multiple of {unit} ({replicas} devices x "
            f"{steps} accumulation steps), such as {' or '.join(map(str, sizes))}, "
            f"received {size}"
        )
    what, elements = max(
        elements_per_row(settings, config).items(), key=lambda item: item[1]
    )
    most = MAX_ELEMENTS // elements
    reason = f"more would make the {what} exceed {MAX_ELEMENTS:,} elements"
    memory = (memory_of_machine() or 0) // sharing
    if memory and memory // bytes_per_row(settings, config) < most:
        most = max(1, memory // bytes_per_row(settings, config))
        reason = f"more would exceed its {memory / 2**30:.0f} GiB of memory"
    rows = size // replicas // steps
    if rows > most:
        raise UsageError(
            f"--{flag}, batches of {size}: a device can compute at most {most} "
            f"examples of {settings.max_seq_length} tokens at once ({reason}), "
            f"received {rows}; use "
            f"--gradient_accumulation_steps={_steps(size // replicas, most)}"
        )
    rows = max(1, settings.eval_batch_size // replicas)
    if settings.eval_file and rows > MAX_ELEMENTS // elements:
        raise UsageError(
            f"--eval_batch_size must be at most {MAX_ELEMENTS // elements * replicas} "
            f"(more would make the {what} exceed {MAX_ELEMENTS:,} elements), received "
            f"{settings.eval_batch_size}"
        )


def elements_per_row(settings: PretrainSettings, config: AlbertConfig) -> dict:
    """Returns the number of elements that a row adds to the largest tensors."""
    T, P = settings.max_seq_length, settings.num_predictions
    return {
        "masked-LM logits": P * config.vocab_size,
        "attention scores": config.num_attention_heads * T * T,
        "feed-forward values": T * config.intermediate_size,
    }


def bytes_per_row(settings: PretrainSettings, config: AlbertConfig) -> int:
    """Estimates how much memory a row needs for the backward pass, from below.

    Counts what `facts.activations` counts, and the logits and their gradient.
    """
    size = 2 if settings.precision == "bfloat16" else 4
    kept = size * facts.activations(config, 1, settings.max_seq_length)
    return kept + 8 * settings.num_predictions * config.vocab_size


def memory_of_machine() -> int | None:
    """Returns the bytes that this process may use if it computes on a CPU, else None.

    They are the machine's, or the limit of a control group, such as a container's.
    TensorFlow does not report how much memory a GPU has.
    """
    import tensorflow as tf

    if tf.config.list_physical_devices("GPU"):
        return None
    try:
        whole = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):
        return None
    return min([whole, *_group_limits()])


def _group_limits() -> list[int]:
    """Returns the memory limits of this process's control groups and their parents."""
    limits = []
    try:
        groups = [line.split(":", 2) for line in _OWN_GROUPS.read_text().splitlines()]
    except OSError:
        return []
    for _, controllers, path in groups:
        if controllers and "memory" not in controllers.split(","):
            continue
        # Version 1 has a hierarchy for each controller, version 2 one for all.
        root = _GROUPS / "memory" if controllers else _GROUPS
        name = "memory.limit_in_bytes" if controllers else "memory.max"
        group = pathlib.PurePosixPath(path.lstrip("/"))
        for folder in (group, *group.parents):
            try:
                limits.append(int((root / folder / name).read_text()))
            except (OSError, ValueError):  # no such group here; "max" is no limit
                continue
    return limits


def _steps(rows: int, most: int) -> int:
    """Returns the smallest divisor of `rows` that leaves at most `most`."""
    return next(n for n in range(1, rows + 1) if rows % n == 0 and rows // n <= most)
