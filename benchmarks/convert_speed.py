"""Measures the time and peak memory of converting a large checkpoint."""

import os
import tempfile
import time

import tqdm

from albert_tf.config import AlbertConfig
from benchmarks.measure import PeakMemory, run_in_new_process
from benchmarks.report import Row

_FORMATS = ("huggingface", "tf1")


def run(preset: str = "albert_xxlarge_v2") -> list[Row]:
    """Converts random weights of a released size from our folder to other formats."""
    size = AlbertConfig.from_preset(preset).num_parameters()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        source = os.path.join(folder, "source")
        run_in_new_process(_save, preset, source)
        for format in tqdm.tqdm(_FORMATS, desc=f"converting {preset}"):
            target = os.path.join(folder, format)
            seconds, peak = run_in_new_process(measure_convert, source, target, format)
            name = f"{preset} ({size / 1e6:.1f} M parameters) to {format}"
            rows.append(Row(f"{name}: time", seconds, "s"))
            rows.append(Row(f"{name}: peak memory", peak, "MB"))
    return rows


def _save(preset: str, path: str) -> None:
    from albert_tf.converters.load import save_pretrained
    from albert_tf.models.backbone import AlbertBackbone

    save_pretrained(AlbertBackbone(AlbertConfig.from_preset(preset), seed=1), path)


def measure_convert(source: str, target: str, format: str) -> tuple[float, float]:
    """Returns seconds and peak megabytes of one conversion, with checks."""
    from albert_tf.converters.convert import convert_checkpoint

    with PeakMemory() as memory:
        start = time.perf_counter()
        convert_checkpoint(source, target, format, head="auto", verify="none")
        seconds = time.perf_counter() - start
    return seconds, memory.peak / 2**20
