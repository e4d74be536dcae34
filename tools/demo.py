"""Runs the whole main job on a small scale, from raw text to a served classifier.

`make demo` calls this. Each step is a command that a user would run; it is printed
before it runs. All results are left in --output_dir.
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
from albert_tf.data.corpus.docstrings import write_topic_tables
from albert_tf.errors import DataError, UsageError
from albert_tf.storage import files
from albert_tf.storage.templates import templates
from albert_tf.training.metrics_file import METRICS_FILE, read_metrics

OUTPUT_DIR = flags.DEFINE_string("output_dir", "demo_output", "New folder of results.")
INPUT_FILE = flags.DEFINE_string(
    "input_file",
    "docstrings:max_bytes=20000000",
    "Text, as for create_pretraining_data. Default: docstrings of installed packages.",
)
NUM_TRAIN_STEPS = flags.DEFINE_integer(
    "num_train_steps", None, "Steps of each training. Default: those of the recipe."
)
TOOLS = pathlib.Path(__file__).resolve().parent
CONFIGS = TOOLS.parent / "configs" / "pretrain"
# One command per paragraph.
RECIPE = CONFIGS / "demo_commands.txt"
RAW_TEXT = "Returns the element-wise sine of an array, with an optional out= buffer."
# The program of a server; it must not need this package.
SERVE = """
import sys, tensorflow as tf, tensorflow_text
model = tf.saved_model.load(sys.argv[1])
answer = model.signatures["serving_default"](text=tf.constant([sys.argv[2]]))
assert "albert_tf" not in sys.modules and "keras_hub" not in sys.modules
label = answer["label"].numpy()[0].decode()
print(f"label: {label}  probabilities: {answer['probabilities'].numpy()[0].round(3)}")
"""


def main() -> None:
    """Runs every command; the first failure ends the demo."""
    started, out = time.monotonic(), pathlib.Path(OUTPUT_DIR.value)
    if not CONFIGS.is_dir():
        raise UsageError(
            "the demo requires a checkout of the albert_tf repository, where "
            f"`make demo` runs it: {CONFIGS} does not exist"
        )
    if files.is_folder(out) and files.list_folder(out):
        raise UsageError(f"--output_dir={out}: must be a new or empty folder")
    out.mkdir(parents=True, exist_ok=True)
    write_topic_tables(out / "topics.train.tsv", out / "topics.dev.tsv")
    values = {"text": INPUT_FILE.value, "out": out, "configs": CONFIGS}
    values["cores"] = os.cpu_count() or 1
    for paragraph in files.read_text(RECIPE).split("\n\n"):
        name, *arguments = (one.format(**values) for one in shlex.split(paragraph))
        steps = NUM_TRAIN_STEPS.value
        if steps is not None and name in ("pretrain", "finetune"):
            arguments += [f"--num_train_steps={steps}"]
            arguments += [f"--num_warmup_steps={steps // 10}"]
        print(f"\n$ albert-tf {name} {shlex.join(arguments)}", flush=True)
        printed = _run([sys.executable, str(TOOLS / f"{name}.py"), *arguments])
        if name == "fill_mask":
            files.write_text(out / "fill_mask.jsonl", printed)
    print(f"\n$ a process with only tensorflow and tensorflow_text: {RAW_TEXT!r}")
    answer = _run([sys.executable, "-c", SERVE, str(out / "saved_model"), RAW_TEXT])
    summary = _summary(out, answer)
    files.write_text(out / "README.md", summary)
    print("\n" + summary)
    print(f"{time.monotonic() - started:.0f} s in total; all results are in {out}/")


def _summary(out: pathlib.Path, answer: str) -> str:
    """Returns the summary, from the results of the steps in the folder."""
    metrics = read_metrics(out / "pretrain" / METRICS_FILE)
    filled = files.read_text(out / "fill_mask.jsonl")
    return (
        templates("reports")
        .get_template("demo.md.j2")
        .render(
            held_out=[line for line in metrics if line["split"] == "eval"][-1],
            accuracies=[
                files.read_json(out / name / "metrics.json")["dev_accuracy"]
                for name in ("classifier", "classifier_from_scratch")
            ],
            filled=[json.loads(line) for line in filled.splitlines()],
            text=RAW_TEXT,
            answer=answer,
        )
    )


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
