"""Compares the costs of a training step of ALBERT and of BERT, size by size.

BERT is the same encoder with separate layers and embeddings as wide as its layers.
Sizes follow from the shapes (`planning/facts.py`). The peak memory and the time of a
step are measured: each model trains in its own process, one step at a time, in turns
with the other. A model that does not fit is estimated, and its cells say so.
"""

import contextlib
import dataclasses
import multiprocessing
import pathlib
import re
import statistics
from typing import Any, NamedTuple, Self

from albert_tf.config import AlbertConfig
from albert_tf.errors import DataError
from albert_tf.planning import facts
from benchmarks import step_speed
from benchmarks.objectives_report import to_table
from benchmarks.report import Report, Row
from benchmarks.rows import random_batch
from benchmarks.turns import seconds_in_turns

SIZES = ("base", "large", "xlarge", "xxlarge")
MODELS = ("ALBERT", "BERT")
_PARTS = ("weights", "gradients", "optimizer", "activations")
_SEED = 12345
_GIB = 2**30
_NOTES = (
    "Parameters, bytes of the optimizer and bytes that every device sums with the "
    "others in a step are exact; the bytes of activations are computed from the "
    "shapes. All are for float32 and AdamW. Peak memory is the peak of the process "
    "during a step, minus the memory of TensorFlow alone. An estimated memory is the "
    "sum of weights, gradients, optimizer and activations, which measured values "
    "exceed by half and more. An estimated time is the time of ALBERT of this size, "
    "plus the time per additional parameter in the largest size whose BERT was "
    "measured. The paper's 1.7 is for large on many TPUs (Table 2), where fewer "
    "parameters also mean less to sum over devices; on this single machine, nothing "
    "is summed.",
)


@dataclasses.dataclass(frozen=True)
class Settings:
    """The models to measure.

    Attributes:
        sizes: tuple of str. Some of `SIZES`.
        rows: int. Rows of a batch.
        length: int. Tokens of a row.
        steps: int. Steps of every model.
        gigabytes: float. Only models whose joint estimate is below it are measured.
    """

    sizes: tuple[str, ...] = SIZES
    rows: int = 2
    length: int = 128
    steps: int = 3
    gigabytes: float = 12.0


class Measured(NamedTuple):
    """The measured or estimated needs of a model.

    Attributes:
        memory: float. Bytes of a step at their peak.
        seconds: float or None. Seconds of a step; None if there is no basis to estimate
            it.
        is_estimated: bool. Whether it was not measured.
        details: dict. Single measurements.
    """

    memory: float
    seconds: float | None
    is_estimated: bool
    details: dict[str, Any]


def configs(size: str) -> dict[str, AlbertConfig]:
    """Returns the encoders of one size by the names of `MODELS`."""
    albert = AlbertConfig.from_preset(f"albert_{size}_v2")
    bert = albert.replace(embedding_size=albert.hidden_size, sharing="none")
    return dict(zip(MODELS, (albert, bert), strict=True))


def run(settings: Settings) -> Report:
    """Measures the models that fit, and estimates the rest.

    Raises:
        DataError: If the process of a model ends, as by lack of memory.
    """
    described: dict[tuple[str, str], dict[str, Any]] = {}
    measured: dict[tuple[str, str], Measured] = {}
    for size in settings.sizes:
        given = configs(size)
        for name, config in given.items():
            described[size, name] = facts.describe(
                config, settings.rows, settings.length
            )
        fitting, room = {}, settings.gigabytes * _GIB
        for name, config in given.items():
            room -= _estimate(described[size, name])
            if room >= 0:
                fitting[name] = config
        found = _measure(settings, fitting, size)
        measured |= {(size, name): one for name, one in found.items()}
    for key, one in described.items():
        if key not in measured:
            seconds = _estimated_seconds(key[0], described, measured)
            measured[key] = Measured(_estimate(one), seconds, True, {})
    return _report(settings, described, measured)


def _estimate(described: dict[str, Any]) -> int:
    return sum(described[part] for part in _PARTS)


class _Model:
    """A model in its own process, which trains a step on request.

    Attributes:
        memory: int. Peak memory in bytes, minus the memory of TensorFlow alone.
    """

    def __init__(self, name: str, config: AlbertConfig, rows: int, length: int):
        self.memory = 0
        self._name = name
        context = multiprocessing.get_context("spawn")
        self._line, theirs = context.Pipe()
        given = (theirs, config, rows, length)
        self._process = context.Process(target=_obey, args=given, daemon=True)
        self._process.start()
        theirs.close()  # so that the end of the process is noticed

    def step(self) -> None:
        """Trains a step."""
        try:
            self._line.send(None)
            self.memory = self._line.recv()
        except (EOFError, OSError):
            self._process.join()
            raise DataError(
                f"{self._name}: its process ended with code {self._process.exitcode}, "
                "perhaps for lack of memory; a smaller --memory_gigabytes estimates it"
            ) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *unused) -> None:
        self._line.close()
        self._process.join()


def _obey(line, config: AlbertConfig, rows: int, length: int) -> None:
    """Trains a step for every message, and answers with bytes."""
    import tensorflow as tf

    from albert_tf.models.masked_lm import AlbertPretrainer
    from albert_tf.objectives.pretraining import ALBERT

    settings = step_speed.Settings(precision="float32")
    tf.zeros(()).numpy()  # TensorFlow allocates memory on first use
    before = peak_memory()
    model = AlbertPretrainer(config, seed=_SEED)
    batch = random_batch(config, rows, length)
    train = step_speed.our_step(settings, model, ALBERT, batch)
    with contextlib.suppress(EOFError):
        while True:
            line.recv()
            train()
            line.send(peak_memory() - before)


def peak_memory() -> int:
    """Returns the peak memory of this process in bytes."""
    # Not `ru_maxrss`: a process starts with the value of the process that started it.
    status = pathlib.Path("/proc/self/status").read_text()
    return 1024 * int(re.search(r"VmHWM:\s*(\d+)", status)[1])


def _measure(
    settings: Settings, given: dict[str, AlbertConfig], size: str
) -> dict[str, Measured]:
    """Trains models in turns; returns the needs of each."""
    with contextlib.ExitStack() as stack:
        models = {
            name: stack.enter_context(
                _Model(f"{name} {size}", config, settings.rows, settings.length)
            )
            for name, config in given.items()
        }
        steps = {name: model.step for name, model in models.items()}
        seconds = seconds_in_turns(steps, settings.steps, size)
        return {
            name: Measured(
                model.memory,
                statistics.median(seconds[name]),
                False,
                {"seconds": [round(one, 3) for one in seconds[name]]},
            )
            for name, model in models.items()
        }


def _estimated_seconds(
    size: str,
    described: dict[tuple[str, str], dict[str, Any]],
    measured: dict[tuple[str, str], Measured],
) -> float | None:
    """Estimates the seconds of a BERT's step from the time per parameter elsewhere."""
    albert, bert = MODELS
    both = [
        one
        for one, name in measured
        if name == bert and not measured[one, name].is_estimated
    ]
    if (size, albert) not in measured or not both:
        return None

    def more(one: str) -> int:
        return described[one, bert]["total"] - described[one, albert]["total"]

    last = both[-1]
    slower = measured[last, bert].seconds - measured[last, albert].seconds
    return measured[size, albert].seconds + slower * more(size) / more(last)


def _report(settings: Settings, described, measured) -> Report:
    table: dict[str, dict[str, str]] = {}
    rows, lines = [], []
    for size in settings.sizes:
        for name in MODELS:
            sizes, one = described[size, name], measured[size, name]
            said = " (estimated)" if one.is_estimated else ""
            least = "at least " if one.is_estimated else ""
            seconds = "-" if one.seconds is None else f"{one.seconds:.2f} s{said}"
            table[f"{name} {size}"] = {
                "parameters": f"{sizes['total'] / 1e6:.1f} M",
                "optimizer": to_text(sizes["optimizer"]),
                "activations": to_text(sizes["activations"]),
                "peak memory of a step": f"{least}{to_text(one.memory)}{said}",
                "time of a step": seconds,
                "summed over devices": to_text(sizes["all_reduced"]),
            }
            what = f"{name} {size}"
            rows.append(Row(f"{what}: parameters", sizes["total"], ""))
            rows.append(Row(f"{what}: peak memory{said}", one.memory / _GIB, "GiB"))
            if one.seconds is not None:
                time = Row(f"{what}: step{said}", one.seconds, "s", "", one.details)
                rows.append(time)
        lines.append(f"* {size}: {_times(size, described, measured)}.")
    title = "What a training step of ALBERT and of BERT costs"
    shape = f"Batches of {settings.rows} x {settings.length} tokens, float32, AdamW."
    text = "\n".join([shape, "", *to_table(table), "", *lines])
    return Report(title, rows, notes=_NOTES, text=text)


def _times(size: str, described, measured) -> str:
    """Describes the ratios of BERT's needs to ALBERT's."""
    albert, bert = ((described[size, n], measured[size, n]) for n in MODELS)
    said = " (estimated)" if albert[1].is_estimated or bert[1].is_estimated else ""
    alone = bert[1].is_estimated and not albert[1].is_estimated
    least = "at least " if alone else ""
    found = [
        f"{bert[0]['total'] / albert[0]['total']:.1f} times fewer parameters",
        f"{least}{bert[1].memory / albert[1].memory:.1f} times less memory{said}",
    ]
    if None not in (albert[1].seconds, bert[1].seconds):
        ratio = bert[1].seconds / albert[1].seconds
        found.append(f"a step {ratio:.2f} times as fast{said}")
    return ", ".join(found)


def to_text(count: float) -> str:
    """Returns bytes in a readable unit."""
    return (
        f"{count / _GIB:.2f} GiB" if count >= _GIB / 10 else f"{count / 2**20:.1f} MiB"
    )
