"""Evaluates a fine-tuned model on labelled examples of its task; prints JSON.

Example: `albert-tf evaluate --model=sentiment --eval_file=dev.tsv
--text_column=sentence`, or `albert-tf evaluate --model=mnli --data_dir=glue`.
"""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from absl import flags

from albert_tf.cli.flags import define_alias, define_settings, read_settings
from albert_tf.cli.run import run
from albert_tf.errors import UsageError
from albert_tf.models.exit_rules import RULE_HELP, check_exit
from albert_tf.storage import files
from albert_tf.tasks.opening import TABLE, DataSettings, read_labelled, remembered
from albert_tf.tasks.registry import find_task as find_named_task
from albert_tf.tasks.task import warn_of_collapse

_MODEL = flags.DEFINE_string(
    "model", None, "Folder of a model, as written by `finetune`.", required=True
)
_EVAL_FILE = flags.DEFINE_string(
    "eval_file", "", "Labelled examples, instead of --data_dir."
)
_SPLIT = flags.DEFINE_string(
    "split", "", "With --data_dir: split to evaluate. Default: every dev split."
)
_OUTPUT_FILE = flags.DEFINE_string("output_file", "", "Also write the JSON here.")
_REPORT_FILE = flags.DEFINE_string(
    "report_file", "", "Also write a page with pictures and the worst errors here."
)
define_settings(DataSettings)
_MAX_SEQ_LENGTH = flags.DEFINE_integer(
    "max_seq_length",
    None,
    "Longer texts are cut. Default: as in fine-tuning, or else the model's maximum.",
)
_BATCH_SIZE = flags.DEFINE_integer(
    "eval_batch_size", 32, "Examples per step of an evaluation, over all devices.", 1
)
_OVERWRITE = flags.DEFINE_bool("overwrite", False, "Replace existing output.")
_EXIT = flags.DEFINE_string(
    "exit", None, f"Stop early, text classifiers only: {RULE_HELP}."
)
_CURVE = flags.DEFINE_string(
    "exits_curve", "", "Measure every exit and many rules; write this .json, and a .png"
)
define_alias("dev_file", "eval_file")


def main() -> None:
    """Reads the examples, predicts and compares."""
    settings = read_settings(DataSettings)
    if bool(settings.data_dir) == bool(_EVAL_FILE.value):
        raise UsageError(
            "exactly one of --eval_file and --data_dir must be given, received "
            f"{_EVAL_FILE.value!r} and {settings.data_dir!r}"
        )
    for flag in (_OUTPUT_FILE, _REPORT_FILE, _CURVE):
        files.check_new(flag.name, flag.value, _OVERWRITE.value)
    rule = check_exit(_EXIT.value, _CURVE.value)
    if settings.task not in ("", TABLE):
        find_named_task(settings.task)
    # TensorFlow is imported, and the weights are read, after what is wrong without.
    from albert_tf.inference.predictor import Predictor, find_task
    from albert_tf.reports.task_report import render_evaluation

    task = find_task(_MODEL.value, settings.task, _MAX_SEQ_LENGTH.value)
    settings = read_settings(DataSettings, remembered(task, _EVAL_FILE.value))
    named = [s for s in task.splits if s.startswith("dev")] if settings.data_dir else []
    splits = [_SPLIT.value] if _SPLIT.value else named or ["dev"]
    given = {s: read_labelled(task, settings, s, _EVAL_FILE.value) for s in splits}
    from albert_tf.inference.exit_curve import check_curve, write_curve

    predictor = Predictor.from_pretrained(
        _MODEL.value,
        task=task,
        max_seq_length=_MAX_SEQ_LENGTH.value,
        batch_size=_BATCH_SIZE.value,
        on_bad_input=settings.on_bad_input,
        exit=rule,
    )
    check_curve(_CURVE.value, predictor, splits, _OVERWRITE.value)
    task = predictor.task
    found, shown = {}, {}
    for split, examples in given.items():
        encoded = predictor.encoded(examples)
        answers = predictor.answers(examples, encoded, title="evaluate")
        warn_of_collapse(task, examples, answers)
        values = {"examples": len(examples), **predictor.metrics(examples, answers)}
        if rule is not None:
            values["mean_layers"] = float(predictor.used_layers.mean())
        found[split] = values
        shown[split] = task.report(examples, answers, encoded)
    results = {"task": task.name}
    results |= {"labels": list(task.labels)} if task.labels else {}
    results |= found[splits[0]] if len(splits) == 1 else found
    text = files.to_json(results, indent=2) + "\n"
    # First of all, so that a full disk does not cost the scores.
    print(text, end="")
    if _REPORT_FILE.value:
        about = {"task": task.name, "model": _MODEL.value}
        report = {**about, "results": found, "splits": shown}
        files.write_bytes(_REPORT_FILE.value, render_evaluation(report))
    if _OUTPUT_FILE.value:
        files.write_text(_OUTPUT_FILE.value, text)
    if _CURVE.value:
        write_curve(_CURVE.value, predictor, given[splits[0]])


if __name__ == "__main__":
    run(main)
