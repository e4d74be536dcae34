"""Measures speed and memory, side by side with what this package replaces.

Example: `albert-tf benchmark data --output_file=docs/benchmarks/data`
Topics: `data` (text to records against the original's algorithm, masking, waiting for
batches, peak memory), `convert` (time and memory of converting the largest model).
"""

import dataclasses
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from absl import flags

from albert_tf.cli.run import run
from albert_tf.errors import UsageError
from albert_tf.storage import files

_TOPICS = ("data", "convert")
_TOPIC = flags.DEFINE_enum("topic", "data", _TOPICS, "What to measure.")
_OUTPUT = flags.DEFINE_string(
    "output_file", None, "Also write <output_file>.json and <output_file>.md."
)
_OVERWRITE = flags.DEFINE_bool("overwrite", False, "Replace existing files.")
_INPUT = flags.DEFINE_string(
    "input_file", "docstrings:", "data: text, as for create_pretraining_data."
)
_MODEL = flags.DEFINE_string(
    "spm_model_file", "", "data: SentencePiece model. Default: one trained on the text."
)
_BYTES = flags.DEFINE_integer("max_bytes", 5_000_000, "data: bytes of text to use.")
_ROUNDS = flags.DEFINE_integer("rounds", 3, "data: runs; medians are compared.")
_LENGTH = flags.DEFINE_integer("max_seq_length", 512, "data: tokens per example.")
_SECONDS = flags.DEFINE_float("seconds", 20.0, "data: time to measure masking.")
_MEMORY = flags.DEFINE_list(
    "memory_megabytes",
    ["20", "200"],
    "data: sizes of the texts whose peak memory is measured; add 2000 for 2 GB.",
)
_PRESET = flags.DEFINE_string("preset", "albert_xxlarge_v2", "convert: model size.")


def main() -> None:
    """Measures, prints the table, writes the files."""
    from albert_tf.benchmarks import report
    from albert_tf.reports import environment

    stem = (_OUTPUT.value or "").removesuffix(".json").removesuffix(".md")
    for path in [f"{stem}.json", f"{stem}.md"] if stem else []:
        if files.exists(path) and not _OVERWRITE.value:
            raise UsageError(f"--output_file: {path} exists; give --overwrite")
    about = environment.machine()
    if _TOPIC.value == "data":
        rows, title = _measure_data(), "Benchmark of the data engine"
    else:
        from albert_tf.benchmarks import convert_speed

        rows, title = convert_speed.run(_PRESET.value), "Benchmark of the conversion"
    print(report.to_markdown(title, rows, about), end="")
    if stem:
        report.write(stem, title, rows, about)


def _measure_data():
    from albert_tf.benchmarks import data_speed
    from albert_tf.text.load import load_tokenizer

    for flag in (_BYTES, _ROUNDS, _SECONDS):
        if not 0 < flag.value < float("inf"):
            raise UsageError(f"--{flag.name}: must be positive, received {flag.value}")
    if _LENGTH.value < 8:
        raise UsageError(
            f"--max_seq_length: must be at least 8, received {_LENGTH.value}"
        )
    if _MODEL.value:
        load_tokenizer(_MODEL.value)  # now, not after minutes
    sizes = _MEMORY.value
    if not sizes or not all(size.isdecimal() and int(size) for size in sizes):
        raise UsageError(
            f"--memory_megabytes: expected positive numbers, received {','.join(sizes)}"
        )
    settings = data_speed.Settings(
        input_file=_INPUT.value,
        spm_model_file=_MODEL.value,
        max_bytes=_BYTES.value,
        rounds=_ROUNDS.value,
        max_seq_length=_LENGTH.value,
        seconds=_SECONDS.value,
    )
    memory = tuple(map(int, sizes))
    return data_speed.run(dataclasses.replace(settings, memory_megabytes=memory))


if __name__ == "__main__":
    if sys.argv[1:2] and not sys.argv[1].startswith("-"):
        sys.argv[1] = f"--topic={sys.argv[1]}"
    run(main)
