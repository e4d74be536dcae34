"""Runs the whole main job, small: text, tokenizer, records, pretraining, use, serving.

`make demo` calls this. Each step is one of the commands a user would run; it is
printed before it runs. Everything is left in --output_dir.
"""

import json
import os
import pathlib
import shlex
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from absl import flags

from albert_tf.cli.run import run
from albert_tf.errors import DataError, UsageError
from albert_tf.reports.demo_summary import summarize
from albert_tf.storage import files

OUTPUT_DIR = flags.DEFINE_string(
    "output_dir", "demo_output", "New folder for all results."
)
INPUT_FILE = flags.DEFINE_string(
    "input_file",
    "docstrings:max_bytes=20000000",
    "Text, as for create_pretraining_data; default: docstrings of what is installed.",
)
NUM_TRAIN_STEPS = flags.DEFINE_integer(
    "num_train_steps",
    None,
    "Pretraining steps. Default: those of configs/pretrain/demo.py.",
)
TOOLS = pathlib.Path(__file__).resolve().parent
CONFIG = TOOLS.parent / "configs" / "pretrain" / "demo.py"
MASKED = (
    "if the given argument is not [MASK] , an error is raised .",
    "returns a new [MASK] with the same shape as the input .",
    "the [MASK] of the file to read .",
)
RAW_TEXT = "Returns the element-wise sine of an array, with an optional out= buffer."
# Runs without this package: what a server needs, and no more.
SERVE = """
import sys, tensorflow as tf, tensorflow_text
model = tf.saved_model.load(sys.argv[1])
answer = model.signatures["serving_default"](text=tf.constant([sys.argv[2]]))
assert "albert_tf" not in sys.modules and "keras_hub" not in sys.modules
label = answer["label"].numpy()[0].decode()
print(f"label: {label}  probabilities: {answer['probabilities'].numpy()[0].round(3)}")
"""


def main() -> None:
    """Runs every step; the first that fails ends the demo."""
    output_dir = OUTPUT_DIR.value
    if not CONFIG.is_file():
        raise UsageError(
            f"the demo needs a checkout of the albert_tf repository, where `make demo` "
            f"runs it: {CONFIG} does not exist"
        )
    if files.is_folder(output_dir) and files.list_folder(output_dir):
        raise UsageError(f"--output_dir={output_dir}: must be a new or empty folder")
    started = time.monotonic()
    out = pathlib.Path(output_dir)
    out.mkdir(parents=True, exist_ok=True)
    spm, data, model = out / "spiece.model", out / "data/docs", out / "pretrain/model"
    _tool(
        "train_tokenizer",
        input_file=INPUT_FILE.value,
        output_model=spm,
        vocab_size=4000,
        input_sentence_size=100000,
    )
    _tool(
        "create_pretraining_data",
        input_file=INPUT_FILE.value,
        output_file=data,
        spm_model_file=spm,
        max_seq_length=64,
        eval_fraction=0.02,
        num_processes=os.cpu_count() or 1,
    )
    steps = {}
    num_train_steps = NUM_TRAIN_STEPS.value
    if num_train_steps is not None:
        warmup = num_train_steps // 10
        steps = {"num_train_steps": num_train_steps, "num_warmup_steps": warmup}
    _tool(
        "pretrain",
        config=CONFIG,
        input_file=data,
        eval_file=f"{data}-eval",
        spm_model_file=spm,
        output_dir=out / "pretrain",
        **steps,
    )
    predictions = _tool("fill_mask", "--json", model=model, text=MASKED)
    files.write_text(out / "fill_mask.jsonl", predictions)
    accuracies = _classify(out, model)
    served = out / "saved_model"
    _tool("export", model=out / "classifier", output_dir=served)
    print(f"\n$ a process with only tensorflow and tensorflow_text: {RAW_TEXT!r}")
    answer = _run([sys.executable, "-c", SERVE, str(served), RAW_TEXT])
    summary = summarize(output_dir, predictions, accuracies, RAW_TEXT, answer)
    files.write_text(out / "README.md", summary)
    print("\n" + summary)
    print(f"{time.monotonic() - started:.0f} s in all; everything is in {out}/")


def _classify(out: pathlib.Path, model: pathlib.Path) -> dict[str, float]:
    """Accuracy of a classifier from the pretrained weights, and from scratch."""
    from albert_tf.tasks.docstring_topics import write_topic_tables

    tables = {f"{part}_file": out / f"topics.{part}.tsv" for part in ("train", "dev")}
    write_topic_tables(**tables)
    common = {
        **tables,
        "num_train_steps": 120,
        "num_warmup_steps": 12,
        "train_batch_size": 32,
        "learning_rate": 5e-4,
        "max_seq_length": 64,
    }
    config = CONFIG.parent / "demo_albert_config.json"
    scratch = {"albert_config_file": config, "spm_model_file": out / "spiece.model"}
    runs = {
        "classifier": ([], {"init_checkpoint": model}),
        "classifier_from_scratch": (["--from_scratch"], scratch),
    }
    accuracies = {}
    for name, (switches, values) in runs.items():
        _tool("finetune", *switches, output_dir=out / name, **common, **values)
        metrics = json.loads((out / name / "metrics.json").read_text())
        accuracies[name] = metrics["dev_accuracy"]
    return accuracies


def _tool(name: str, *switches: str, **values) -> str:
    """Prints and runs a command; returns what it printed."""
    arguments = list(switches)
    for key, value in values.items():
        items = value if isinstance(value, tuple) else (value,)
        arguments += [f"--{key}={item}" for item in items]
    print(f"\n$ albert-tf {name} {shlex.join(arguments)}", flush=True)
    return _run([sys.executable, str(TOOLS / f"{name}.py"), *arguments])


def _run(command: list[str]) -> str:
    # Errors and progress bars go straight to the terminal.
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    printed = []
    for line in process.stdout:
        printed.append(line)
        print(line, end="", flush=True)
    if process.wait():
        raise DataError(f"the step above failed with exit code {process.returncode}")
    return "".join(printed)


if __name__ == "__main__":
    run(main)
