"""The main job end to end, as the commands that a user would type."""

import json
import os
import pathlib
import shlex
import subprocess
import sys
import time

from albert_tf.data.tasks.docstring_topics import write_topic_tables
from albert_tf.errors import DataError, UsageError
from albert_tf.storage import files

TOOLS = pathlib.Path(__file__).resolve().parents[1] / "tools"
CONFIG = TOOLS.parent / "configs" / "demo.py"
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


def run(output_dir: str, input_file: str, num_train_steps: int | None = None) -> None:
    """Runs every step; the first that fails ends it.

    Args:
        output_dir: Folder to make.
        input_file: Text, as for `create_pretraining_data`.
        num_train_steps: int or None. Pretraining steps.

    Raises:
        UsageError: If the folder exists and is not empty.
        DataError: If a step fails.
    """
    if files.is_folder(output_dir) and files.list_folder(output_dir):
        raise UsageError(f"--output_dir={output_dir}: must be a new or empty folder")
    started = time.monotonic()
    out = pathlib.Path(output_dir)
    out.mkdir(parents=True, exist_ok=True)
    spm, data, model = out / "spiece.model", out / "data/docs", out / "pretrain/model"
    _tool(
        "train_tokenizer",
        input_file=input_file,
        output_model=spm,
        vocab_size=4000,
        input_sentence_size=100000,
    )
    _tool(
        "create_pretraining_data",
        input_file=input_file,
        output_file=data,
        spm_model_file=spm,
        max_seq_length=64,
        eval_fraction=0.02,
        num_processes=os.cpu_count() or 1,
    )
    steps = {}
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
    _summarize(out, predictions, accuracies, answer, time.monotonic() - started)


def _classify(out: pathlib.Path, model: pathlib.Path) -> dict[str, float]:
    """Accuracy of a classifier from the pretrained weights, and from scratch."""
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
    for name, (switches, flags) in runs.items():
        _tool("finetune", *switches, output_dir=out / name, **common, **flags)
        metrics = json.loads((out / name / "metrics.json").read_text())
        accuracies[name] = metrics["dev_accuracy"]
    return accuracies


def _summarize(out, predictions, accuracies, answer, seconds) -> None:
    lines = (out / "pretrain/metrics.jsonl").read_text().splitlines()
    last = [m for m in map(json.loads, lines) if m["split"] == "eval"][-1]
    text = [
        "# Demo",
        "",
        "| held out | pretrained model | best constant answer |",
        "|---|---|---|",
        f"| MLM accuracy | {last['mlm_accuracy']:.3f} | {last['mlm_baseline']:.3f} |",
        f"| SOP accuracy | {last['sop_accuracy']:.3f} | {last['sop_baseline']:.3f} |",
        "",
        "| which package is a docstring from? | accuracy |",
        "|---|---|",
        f"| fine-tuned from the pretrained weights | {accuracies['classifier']:.3f} |",
        "| the same steps from random weights | "
        f"{accuracies['classifier_from_scratch']:.3f} |",
        "",
    ]
    for line in predictions.splitlines():
        item = json.loads(line)
        top = [f"{row['token_str']} ({row['score']:.2f})" for row in item["result"]]
        text += [f"* `{item['text']}`", f"  {', '.join(top)}"]
    text += [
        "",
        f"SavedModel on `{RAW_TEXT}`:",
        f"  {answer.strip()}",
        "",
        "Look at `pretrain/curves.png`, `data/dataset.md`, `pretrain/README.md`, "
        "`classifier/`, `saved_model/`.",
        "",
    ]
    files.write_text(out / "README.md", "\n".join(text))
    print("\n" + "\n".join(text))
    print(f"{seconds:.0f} s in all; everything is in {out}/")


def _tool(name: str, *switches: str, **flags) -> str:
    """Prints and runs a command; returns what it printed."""
    arguments = list(switches)
    for key, value in flags.items():
        values = value if isinstance(value, tuple) else (value,)
        arguments += [f"--{key}={v}" for v in values]
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
