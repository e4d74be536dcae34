"""Writes one HTML page with the curves of runs, side by side, also while they go on.

RUN is the folder of a run of `pretrain` or `finetune`. The page needs nothing else,
also no network: its curves can be zoomed and compared, and its tables show what was
reached, what it took, and which settings differ.

Example: `albert-tf report runs/base runs/large --cost_per_hour=1.2`
"""

import math
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from absl import flags, logging

from albert_tf.cli.run import run
from albert_tf.errors import UsageError
from albert_tf.reports import run_files
from albert_tf.reports.run_page import render_runs
from albert_tf.storage import files
from albert_tf.text.inputs import read_prompts

_OUTPUT_FILE = flags.DEFINE_string(
    "output_file",
    "",
    "File to write. Default: <name of the first run>_report.html in the current "
    "folder.",
)
_OVERWRITE = flags.DEFINE_bool("overwrite", False, "Replace existing output.")
_COST_PER_HOUR = flags.DEFINE_float(
    "cost_per_hour",
    None,
    "Price of an hour of the machine. What training costs is then shown, too, and in a "
    "report what the steps that are left will cost at the last speed.",
    lower_bound=0.0,
)
_SAMPLES = flags.DEFINE_bool(
    "samples",
    False,
    "Let every kept checkpoint, the best model and the last of each pretraining run "
    "fill in the masks of some sentences. Loads TensorFlow.",
)
_PROMPTS_FILE = flags.DEFINE_string(
    "prompts_file",
    "",
    "With --samples: file with one sentence per line, each with [MASK]. Default: five "
    "neutral sentences.",
)
_TOP_K = flags.DEFINE_integer("top_k", 5, "Answers per mask.", 1)


def main(paths: list[str]) -> None:
    """Reads the runs and writes the page."""
    if _PROMPTS_FILE.value and not _SAMPLES.value:
        raise UsageError(
            f"--prompts_file={_PROMPTS_FILE.value}: only used with --samples"
        )
    if _COST_PER_HOUR.value is not None and not math.isfinite(_COST_PER_HOUR.value):
        raise UsageError(
            f"--cost_per_hour={_COST_PER_HOUR.value}: must be a finite number"
        )
    prompts = read_prompts(_PROMPTS_FILE.value)
    runs = run_files.read_runs(paths)
    name = pathlib.PurePath(runs[0].name).name
    output_file = _OUTPUT_FILE.value or f"{name}_report.html"
    files.check_new("output_file", output_file, _OVERWRITE.value)
    answers = {}
    if _SAMPLES.value:
        from albert_tf.inference import fill_mask

        pretraining = [run for run in runs if run.kind == run_files.PRETRAINING]
        if not pretraining:
            raise UsageError(
                f"--samples: needs a pretraining run, received {', '.join(paths)}"
            )
        for one in pretraining:
            found = fill_mask.answer_all(one.path, prompts, _TOP_K.value)
            answers[one.name] = list(found)
    page = render_runs(runs, _COST_PER_HOUR.value, prompts, answers)
    files.write_bytes(output_file, page, overwrite=_OVERWRITE.value)
    logging.info("%s: written; open it in a browser", output_file)


if __name__ == "__main__":
    run(main, "RUN")
