"""Checks before a run that a device can hold its share of a batch."""

import os
import pathlib

import tensorflow as tf

from albert_tf import facts
from albert_tf.config import AlbertConfig
from albert_tf.errors import UsageError
from albert_tf.training.pretraining.settings import PretrainSettings

# Kernels of TensorFlow count the elements of a tensor with 32 bits.
MAX_ELEMENTS = 2**31 - 1
# Where Linux says which control groups a process is in, and what they may use.
_OWN_GROUPS = pathlib.Path("/proc/self/cgroup")
_GROUPS = pathlib.Path("/sys/fs/cgroup")


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
