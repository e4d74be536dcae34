"""What a pretraining run starts from, checked before it begins.

Importing it, and `check_files`, need no TensorFlow.
"""

import contextlib
import hashlib
import os
import pathlib
from collections.abc import Iterable, Mapping

from albert_tf import facts
from albert_tf.config import AlbertConfig
from albert_tf.converters.checkpoint import Checkpoint
from albert_tf.converters.detect import check_path
from albert_tf.converters.tokenizers import choose_tokenizer
from albert_tf.data.records import card, shards
from albert_tf.data.records.tfrecord import RecordSet
from albert_tf.errors import UsageError, require
from albert_tf.storage import files
from albert_tf.storage.lock import check_free
from albert_tf.text.load import check_options, load_tokenizer
from albert_tf.text.tokenizer import Tokenizer
from albert_tf.training.pretrain_settings import PretrainSettings, phases_of
from albert_tf.training.run_folder import check_writable

# Policies whose examples have two segments.
_OF_SEGMENTS = ("clean", "original", "nsp", "segments")


def check_files(settings: PretrainSettings) -> None:
    """Raises what `pretrain` raises if an input lacks, or the output cannot be used."""
    folder = settings.output_dir
    # Other processes of the same run may hold the folder by now.
    if settings.distribution in ("one_device", "mirrored"):
        if not files.is_remote(folder):
            check_writable(folder)
        check_free(folder)
    if settings.init_checkpoint:
        check_path(settings.init_checkpoint)
    if not settings.spm_model_file:
        return  # the checkpoint's, which is opened later
    tokenizer = load_run_tokenizer(settings)
    if settings.preset or settings.albert_config_file:
        check_sizes(settings, load_config(settings, None, tokenizer), tokenizer)


def check_sizes(settings: PretrainSettings, config: AlbertConfig, tokenizer) -> None:
    """Checks that rows and tokens fit the model.

    Raises:
        UsageError: If not.
    """
    longest, length = config.max_position_embeddings, settings.max_seq_length
    rule = f"--max_seq_length must be at most max_position_embeddings={longest}"
    require(length <= longest, rule, length)
    settings.check_vocabulary(config, tokenizer.vocab_size)
    source = settings.spm_model_file or settings.init_checkpoint
    config.check_pad_id(tokenizer.pad_id, source, UsageError)


def load_config(
    settings: PretrainSettings, start: Checkpoint | None, tokenizer: Tokenizer
) -> AlbertConfig:
    """Returns the model's config, from a preset, a file or the initial checkpoint."""
    if start is None or settings.preset or settings.albert_config_file:
        return settings.own_config(tokenizer.pad_id)
    return start.config


def check_segments(settings: PretrainSettings, config: AlbertConfig) -> None:
    """Refuses records of pairs for a model without segments.

    Raises:
        UsageError: If a data card says that the records have two segments.
    """
    if config.type_vocab_size > 1:
        return
    for pattern in filter(None, (*settings.input_files(), settings.eval_file)):
        for path in card_paths(shards.find_shards(pattern)):
            policy = files.read_record(path).get("pair_policy")
            rule = (
                f"{path}: a model with type_vocab_size=1 needs records of one segment"
            )
            rule = f"{rule}, not of --pair_policy"
            require(policy not in _OF_SEGMENTS, rule, policy)


def check_ngram(settings: PretrainSettings, was_begun: bool) -> None:
    """Refuses a length of n-grams that has no effect.

    Args:
        settings: `PretrainSettings`.
        was_begun: bool. Whether the run is continued: then it stays as it is.

    Raises:
        UsageError: If the masks have no such length.
    """
    ngram, default = settings.ngram, settings.defaults()["ngram"]
    fits = was_begun or settings.masking == "albert" or ngram == default
    require(fits, f"--ngram={ngram} requires --masking=albert", settings.masking)


def load_run_tokenizer(
    settings: PretrainSettings, start: Checkpoint | None = None
) -> Tokenizer:
    """Loads the tokenizer with the options that the data cards of the records name.

    Training never tokenizes, so a wrong option would show only in the use of the model.

    Args:
        settings: `PretrainSettings`. Its options count where no card has any.
        start: `Checkpoint` or None. The initial checkpoint, open, whose tokenizer is
            taken if the settings name none.

    Raises:
        UsageError: If settings and cards contradict each other.
        DataError: If the file is not a tokenizer.
    """
    names = ("do_lower_case", "keep_accents")
    given = {name: getattr(settings, name) for name in names}
    options = {name: value for name, value in given.items() if value is not None}
    for pattern in filter(None, (*settings.input_files(), settings.eval_file)):
        for path in card_paths(shards.find_shards(pattern)):
            # Anything wrong with a card is reported where the records are opened.
            known = card.tokenizer_options(files.read_record(path))
            check_options(options, known, path)
            options = known | options
    if not settings.spm_model_file:
        given = {name: options.pop(name) for name in names if name in options}
        chosen = choose_tokenizer(start, None, **given)
        check_options(options, chosen.get_config(), start.path)
        return chosen
    return load_tokenizer(settings.spm_model_file, **options)


def digests_of(records: Mapping[int, RecordSet]) -> dict[str, str]:
    """Returns what identifies the training data of a run.

    Args:
        records: dict. The training data of each length, the longest last.
    """
    data = {}
    for length, found in records.items():
        ends = "" if length == max(records) else f" of {length} tokens"
        data[f"records{ends}"] = found.digest()
        if cards := card_paths(found.paths):
            digests = [card.content_digest(files.read_json(path)) for path in cards]
            sha256 = hashlib.sha256("".join(digests).encode())
            data[f"card{ends}"] = sha256.hexdigest()
    return data


def card_paths(paths: Iterable[str]) -> list[str]:
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
    settings: PretrainSettings, config: AlbertConfig, replicas: int, sharing: int = 1
) -> None:
    """Checks that batches can be divided, and that their parts fit the devices.

    Args:
        settings: `PretrainSettings`. The batches of all its phases are checked.
        config: `AlbertConfig`. Config of the model.
        replicas: int. Number of devices that share a batch.
        sharing: int. Number of devices that share the memory of a machine.

    Raises:
        UsageError: If they do not; it names the flags that make them fit.
    """
    unit = replicas * settings.gradient_accumulation_steps
    memory = (memory_of_machine() or 0) // sharing
    for phase in phases_of(settings):
        size, flag = phase.settings.train_batch_size, "--train_batch_size"
        if size != settings.train_batch_size:
            flag = "--sequence_length_schedule"
        sizes = [n for n in (size // unit * unit, -(-size // unit) * unit) if n]
        require(
            size % unit == 0,
            f"{flag}: expected batches of a multiple of {unit} ({replicas} devices x "
            f"{settings.gradient_accumulation_steps} accumulation steps), such as "
            f"{' or '.join(map(str, sizes))}",
            size,
        )
        per_row = _bytes_per_row(phase.settings, config)
        most, reason = _most_rows(phase.settings, config, memory, per_row)
        rows = size // replicas
        steps = (n for n in range(1, rows + 1) if rows % n == 0 and rows // n <= most)
        require(
            size // unit <= most,
            f"{flag}, batches of {size}: a device can compute at most {most} examples "
            f"of {phase.settings.max_seq_length} tokens at once (more would {reason}); "
            f"use --gradient_accumulation_steps={next(steps, rows)}",
            size // unit,
        )
        if settings.eval_file:
            check_eval_batch(phase.settings, config, replicas, memory)


def check_eval_batch(
    settings: PretrainSettings, config: AlbertConfig, replicas: int, memory: int
) -> None:
    """Checks that the batches of an evaluation fit the devices.

    Args:
        settings: `PretrainSettings`.
        config: `AlbertConfig`. Config of the model.
        replicas: int. Number of devices that share a batch.
        memory: int. Bytes that each of them has; 0 if unknown.

    Raises:
        UsageError: If they do not.
    """
    # At least the largest tensor, and what a softmax or an activation makes of it.
    per_row = 2 * settings.bytes_per_value * _largest_tensor(settings, config)[1]
    most, reason = _most_rows(settings, config, memory, per_row)
    rule = f"--eval_batch_size must be at most {most * replicas} (more would {reason})"
    fits = settings.eval_batch_size // replicas <= most
    require(fits, rule, settings.eval_batch_size)


def _most_rows(settings, config, memory: int, per_row: int) -> tuple[int, str]:
    """Returns how many rows a device can compute at once, and what more would do."""
    what, elements = _largest_tensor(settings, config)
    most = MAX_ELEMENTS // elements
    if memory and memory // per_row < most:
        reason = f"exceed its {memory / 2**30:.0f} GiB of memory"
        return max(1, memory // per_row), reason
    return most, f"make the {what} exceed {MAX_ELEMENTS:,} elements"


def _largest_tensor(settings: PretrainSettings, config) -> tuple[str, int]:
    """Returns the tensor to which a row adds most elements, and how many."""
    T, P = settings.max_seq_length, settings.num_predictions
    elements = {
        "masked-LM logits": P * config.vocab_size,
        "attention scores": config.num_attention_heads * T * T,
        "feed-forward values": T * config.intermediate_size,
    }
    return max(elements.items(), key=lambda item: item[1])


def _bytes_per_row(settings: PretrainSettings, config: AlbertConfig) -> int:
    """Estimates how much memory a row needs for the backward pass, from below.

    Counts what `facts.activations` counts, and the logits and their gradient.
    """
    recompute, size = settings.depth == "loop_remat", settings.bytes_per_value
    kept = size * facts.activations(config, 1, settings.max_seq_length, recompute)
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
    lines = _OWN_GROUPS.read_text().splitlines() if _OWN_GROUPS.exists() else []
    for _, controllers, path in (line.split(":", 2) for line in lines):
        # Version 1 has a hierarchy for each controller, version 2 one for all.
        root, name = _GROUPS, "memory.max"
        if controllers:
            root, name = _GROUPS / "memory", "memory.limit_in_bytes"
        if "memory" in (controllers or "memory").split(","):
            group = pathlib.PurePosixPath(path.lstrip("/"))
            for folder in (group, *group.parents):
                # No such group here; "max" is no limit.
                with contextlib.suppress(OSError, ValueError):
                    limits.append(int((root / folder / name).read_text()))
    return limits
