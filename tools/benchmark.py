"""Measures speed and memory, side by side with what this package replaces.

Example: `albert-tf benchmark data --output_file=docs/benchmarks/data`
Topics: `data` (text to records against the original's algorithm, masking, waiting for
batches, peak memory), `convert` (time and memory of converting the largest model),
`finetune` (sentences per second, in turns with transformers).
"""

import dataclasses
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from absl import flags

from albert_tf.cli.run import run
from albert_tf.errors import UsageError
from albert_tf.storage import files

_TOPICS = ("data", "convert", "finetune")
_TOPIC = flags.DEFINE_enum("topic", "data", _TOPICS, "What to measure.")
_OUTPUT = flags.DEFINE_string(
    "output_file", None, "Also write <output_file>.json and <output_file>.md."
)
_OVERWRITE = flags.DEFINE_bool("overwrite", False, "Replace existing files.")
_INPUT = flags.DEFINE_string(
    "input_file", "docstrings:", "data: text, as for create_pretraining_data."
)
_MODEL = flags.DEFINE_string(
    "spm_model_file",
    "",
    "SentencePiece model. Default, for data: one trained on the text.",
)
_BYTES = flags.DEFINE_integer("max_bytes", 5_000_000, "data: bytes of text to use.")
_ROUNDS = flags.DEFINE_integer("rounds", 3, "Runs; medians are compared.")
_LENGTH = flags.DEFINE_integer("max_seq_length", 512, "data: tokens per example.")
_SECONDS = flags.DEFINE_float("seconds", 20.0, "data: time to measure masking.")
_MEMORY = flags.DEFINE_list(
    "memory_megabytes",
    ["20", "200"],
    "data: sizes of the texts whose peak memory is measured; add 2000 for 2 GB.",
)
_PRESET = flags.DEFINE_string(
    "preset",
    "",
    "convert, finetune: model size. Default: albert_xxlarge_v2 and albert_base_v2.",
)
_TRAIN_FILE = flags.DEFINE_string(
    "train_file", "", "finetune: table of texts and labels, such as SST-2's train.tsv."
)
_TEXT = flags.DEFINE_string("text_column", "sentence", "finetune: column of the texts.")
_LABEL = flags.DEFINE_string("label_column", "label", "finetune: column of the labels.")
_QUOTING = flags.DEFINE_bool(
    "quoting", False, "finetune: whether quotes enclose cells; not in GLUE's files."
)
_BATCH_SIZE = flags.DEFINE_integer(
    "train_batch_size", 32, "finetune: examples per step.", 1
)


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
    elif _TOPIC.value == "finetune":
        rows, title = _measure_finetuning(), "Benchmark of fine-tuning"
    else:
        from albert_tf.benchmarks import convert_speed

        rows, title = (
            convert_speed.run(_PRESET.value or "albert_xxlarge_v2"),
            "Benchmark of the conversion",
        )
    print(report.to_markdown(title, rows, about), end="")
    if stem:
        report.write(stem, title, rows, about)


def _measure_finetuning():
    from albert_tf.benchmarks import finetune_speed
    from albert_tf.tasks.texts.tables import LabelledTableSettings

    for flag in (_TRAIN_FILE, _MODEL):
        if not flag.value:
            raise UsageError(f"--{flag.name}: required for benchmark finetune")
    columns = LabelledTableSettings(
        text_column=_TEXT.value, label_column=_LABEL.value, quoting=_QUOTING.value
    )
    return finetune_speed.run(
        finetune_speed.Settings(
            _TRAIN_FILE.value,
            _MODEL.value,
            columns,
            preset=_PRESET.value or "albert_base_v2",
            batch_size=_BATCH_SIZE.value,
            max_seq_length=min(_LENGTH.value, 128),
            rounds=_ROUNDS.value,
        )
    )


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
