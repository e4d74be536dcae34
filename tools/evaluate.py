"""Evaluates a model on examples of its task, or on pretraining records; prints JSON.

Example: `albert-tf evaluate --model=sentiment --eval_file=dev.tsv --text_column=text`,
or `albert-tf evaluate --model=runs/demo --eval_file=data/docs-eval`.
"""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from absl import flags

from albert_tf.cli import start
from albert_tf.cli.flags import define_alias, define_settings, read_settings, refuse
from albert_tf.cli.run import run
from albert_tf.data.records import shards
from albert_tf.errors import require
from albert_tf.inference.settings import BulkSettings
from albert_tf.models.exit_rules import RULE_HELP, check_exit
from albert_tf.storage import files
from albert_tf.tasks.opening import TABLE, DataSettings, read_labelled, remembered
from albert_tf.tasks.registry import find_task as find_named_task
from albert_tf.training.pretrain_settings import PretrainSettings

_MODEL = flags.DEFINE_string(
    "model", None, "Model of `finetune`; for records, one of `pretrain`.", required=True
)
_EVAL_FILE = flags.DEFINE_string(
    "eval_file", "", "Labelled examples, instead of --data_dir; or pretraining records."
)
_SPLIT = flags.DEFINE_string("split", "", "With --data_dir. Default: all dev splits.")
_OUTPUT_FILE = flags.DEFINE_string("output_file", "", "Also write the JSON here.")
_REPORT_FILE = flags.DEFINE_string("report_file", "", "Also write an HTML page here.")
define_settings(DataSettings)
define_settings(BulkSettings, names=("max_seq_length", "layers"))
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
_OF_RECORDS = (
    *("objective", "masking", "eval_masked_lm_prob", "eval_ngram", "seed", "packing"),
    *("max_predictions_per_seq", "max_eval_steps", "spm_model_file"),
)
_NOT_OF_RECORDS = ("split", "exit", "exits_curve", "report_file")
define_settings(PretrainSettings, names=_OF_RECORDS)
define_alias("dev_file", "eval_file")


def main() -> None:
    """Chooses the kind of evaluation by the file, evaluates and writes."""
    settings = read_settings(DataSettings)
    sources = (_EVAL_FILE.value, settings.data_dir)
    rule = "exactly one of --eval_file and --data_dir must be given"
    require(sum(map(bool, sources)) == 1, rule, *sources)
    for flag in (_OUTPUT_FILE, _REPORT_FILE, _CURVE):
        files.check_new(flag.name, flag.value, _OVERWRITE.value)
    if not shards.are_records(_EVAL_FILE.value):
        refuse("only with pretraining records", *_OF_RECORDS)
        return _evaluate_task(settings)
    refuse("not with pretraining records", DataSettings, *_NOT_OF_RECORDS)
    start.use_onednn("float32")
    from albert_tf.training.pretrain_evaluation import evaluate_records

    names = (*_OF_RECORDS, "max_seq_length", "layers", "eval_batch_size")
    given = {name: flags.FLAGS[name].value for name in names}
    return _show(evaluate_records(_MODEL.value, _EVAL_FILE.value, **given))


def _show(results: dict) -> None:
    given = {"layers": n} if (n := flags.FLAGS["layers"].value) else {}
    text = files.to_json({**results, **given}, indent=2) + "\n"
    # First of all, so that a full disk does not cost the scores.
    print(text, end="")
    if _OUTPUT_FILE.value:
        files.write_text(_OUTPUT_FILE.value, text)


def _evaluate_task(settings: DataSettings) -> None:
    rule = check_exit(_EXIT.value, _CURVE.value)
    if settings.task not in ("", TABLE):
        find_named_task(settings.task)
    # TensorFlow is imported, and weights are read, after the checks that need neither.
    from albert_tf.inference.predictor import Predictor, find_task
    from albert_tf.reports.task_report import render_evaluation

    sizes = {name: flags.FLAGS[name].value for name in ("max_seq_length", "layers")}
    task = find_task(_MODEL.value, settings.task, sizes["max_seq_length"])
    settings = read_settings(DataSettings, remembered(task, _EVAL_FILE.value))
    named = [s for s in task.splits if s.startswith("dev")] if settings.data_dir else []
    splits = [_SPLIT.value] if _SPLIT.value else named or ["dev"]
    given = {s: read_labelled(task, settings, s, _EVAL_FILE.value) for s in splits}
    from albert_tf.inference.exit_curve import check_curve, write_curve

    options = {"on_bad_input": settings.on_bad_input, "exit": rule, **sizes}
    options["batch_size"] = _BATCH_SIZE.value
    predictor = Predictor.from_pretrained(_MODEL.value, task=task, **options)
    check_curve(_CURVE.value, predictor, splits, _OVERWRITE.value)
    task, found, shown = predictor.task, {}, {}
    for split, examples in given.items():
        found[split], shown[split] = predictor.evaluate(examples)
    labels = {"labels": list(task.labels)} if task.labels else {}
    results = found[splits[0]] if len(splits) == 1 else found
    _show({"task": task.name, **labels, **results})
    if _REPORT_FILE.value:
        report = {"model": _MODEL.value, "results": found, "splits": shown}
        page = render_evaluation({"task": task.name, **report})
        files.write_bytes(_REPORT_FILE.value, page)
    if _CURVE.value:
        write_curve(_CURVE.value, predictor, given[splits[0]])


if __name__ == "__main__":
    run(main)
