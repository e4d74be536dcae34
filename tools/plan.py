r"""Estimates a pretraining run on TPUs or GPUs that you have not rented yet.

Example:
  albert-tf plan --config=configs/pretrain/albert_base_v2.py --topology=v5e-16

It compiles the training step of JAX with the compiler of real devices (from the extra
`[plan]` for TPUs or `[plan-gpu]` for GPUs, such as --topology=h100x8; no device is
used), as few times as show how many rows fit, and prints per chip: memory, operations,
bytes moved and exchanged, whether it fits, which micro-batch and --depth is fastest,
and hours, chip-hours and, with --cost_per_hour of all chips, the cost of the run. Flags
take precedence over --config, and --config over the defaults, which are those of
`pretrain` except for --precision=bfloat16. --preset and --topology may be lists. With
--output_file it also writes .json, .md and .png.
"""

import json
import pathlib
import shlex
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from absl import flags

from albert_tf.cli.flags import define_alias, define_settings, read_settings
from albert_tf.cli.run import run
from albert_tf.errors import require
from albert_tf.planning import facts
from albert_tf.planning import plan_settings as planned
from albert_tf.settings import describe, load_experiment
from albert_tf.storage import files
from albert_tf.training.pretrain_settings import PretrainSettings

_CONFIG = flags.DEFINE_string(
    "config",
    None,
    "Python file with get_config(), as those in configs/; flags take precedence.",
)
define_settings(planned.PlanSettings, required=False)
define_settings(PretrainSettings, names=planned.FLAGS)
define_settings(facts.Training, names=("cost_per_hour",))
_OUTPUT = flags.DEFINE_string(
    "output_file", "", "Also write <output_file>.json, .md and .png."
)
_OVERWRITE = flags.DEFINE_bool("overwrite", False, "Replace existing output.")
_JSON = flags.DEFINE_bool("json", False, "Print JSON.")
define_alias("config_file", "albert_config_file")
define_alias("global_batch", "train_batch_size")
define_alias("seq_length", "max_seq_length")


def main() -> None:
    """Plans every model on every slice; prints, writes."""
    from albert_tf.planning.compiler import check_installed
    from albert_tf.planning.plan import make_plan
    from albert_tf.planning.topologies import GpuMachine, find_topology

    about = read_settings(planned.PlanSettings)
    topologies = [find_topology(name) for name in about.topology]
    given = {n: flags.FLAGS[n].value for n in planned.FLAGS}
    given = {n: value for n, value in given.items() if value is not None}
    values = load_experiment(_CONFIG.value, PretrainSettings) if _CONFIG.value else {}
    presets = given.pop("preset", values.get("preset", "")).split(",")
    price = flags.FLAGS.cost_per_hour
    rule = "--cost_per_hour is that of one --topology"
    require(price is None or len(topologies) == 1, rule, about.topology)
    describe(facts.Training)["cost_per_hour"].check("cost_per_hour", price)
    stem = _OUTPUT.value.removesuffix(".json")
    for suffix in ("json", "md", "png") if stem else ():
        files.make_folder(stem.rpartition("/")[0] or ".")
        files.check_new("output_file", f"{stem}.{suffix}", _OVERWRITE.value)
    are_gpus = all(isinstance(one, GpuMachine) for one in topologies)
    devices = "mirrored" if are_gpus else "tpu"
    trainings = [
        planned.pretraining({**given, "preset": p}, values, devices) for p in presets
    ]
    for topology in topologies:
        check_installed(topology)
    plans = [
        make_plan(
            training,
            topology,
            depth=given.get("depth"),
            parts=given.get("gradient_accumulation_steps"),
            efficiency=about.efficiency,
            cost_per_hour=price,
        )
        for training in trainings
        for topology in topologies
    ]
    _show(plans, stem)


def _show(plans: list, stem: str) -> None:
    """Prints the plans and writes them to files of this stem, unless it is empty."""
    from albert_tf.planning import report

    found = json.dumps(report.to_json(plans), indent=2)
    text = report.to_markdown(plans)
    print(found if _JSON.value else text, end="\n" if _JSON.value else "")
    if stem:
        files.write_text(f"{stem}.json", found + "\n")
        words = [word for word in sys.argv[1:] if word != "--overwrite"]
        command = shlex.join(["albert-tf", "plan", *words])
        picture = f"![Memory of a chip, and a step]({pathlib.Path(stem).name}.png)"
        page = f"# Plans\n\nTo reproduce: `{command}`\n\n{picture}\n\n{text}"
        files.write_text(f"{stem}.md", page)
        files.write_bytes(f"{stem}.png", report.draw(plans))


if __name__ == "__main__":
    run(main)
