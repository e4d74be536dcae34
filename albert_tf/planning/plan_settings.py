"""The settings of a plan, and of the pretraining that is planned."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from albert_tf.errors import require
from albert_tf.settings import check_fields, setting
from albert_tf.training.pretrain_settings import PretrainSettings

# Settings that decide the program of a step. The first are flags of the command, too.
FLAGS = (
    *("preset", "albert_config_file", "objective", "max_seq_length"),
    *("max_predictions_per_seq", "train_batch_size", "optimizer", "precision"),
    *("num_train_steps", "depth", "gradient_accumulation_steps", "shard_optimizer"),
)
_OTHERS = (
    *("masked_lm_prob", "clip_norm", "ema_decay", "weight_decay_rate", "max_span"),
    *("generator_size", "generator_layers", "embedding_sharing", "share_encoder"),
    *("temperature", "disallow_correct", "span_edges"),
)


@dataclasses.dataclass(frozen=True)
class PlanSettings:
    """Settings of a plan, in addition to the training's own.

    Attributes:
        topology: Slices of TPUs or machines with GPUs to compile for, such as v5e-16 or
            h100x8, separated by commas. The number counts GPUs, chips of a v5e or v6e,
            and cores of a v4, v5p or TPU7x, which have two per chip.
        efficiency: Share of the roofline's speed that a training reaches. An
            assumption.
    """

    topology: tuple[str, ...] = setting()
    efficiency: float = setting(0.5, above=0, maximum=1)

    def __post_init__(self):
        check_fields(self)
        require(self.topology, "--topology is required")


def pretraining(
    given: Mapping[str, Any], experiment: Mapping[str, Any], distribution: str = "tpu"
) -> PretrainSettings:
    """Returns the settings of the pretraining to plan, without any data.

    Given flags take precedence over the values of the experiment's config file, of
    which settings that do not affect the numbers of a step are ignored.
    """
    need = "--config: a plan is of one length; give --max_seq_length, "
    need += "--train_batch_size and --num_train_steps of a phase of its schedule"
    schedule = experiment.get("sequence_length_schedule")
    require(not schedule or "max_seq_length" in given, need, schedule)
    need = "--config: a plan computes every layer, and no teacher; leave out {}"
    for name in ("teacher", "depth_range"):
        require(not experiment.get(name), need.format(name), experiment.get(name))
    names = {*FLAGS, *_OTHERS} - {"depth", "gradient_accumulation_steps"}
    values = {name: v for name, v in experiment.items() if name in names}
    values = {"precision": "bfloat16", **values, **given}
    models = [values.get("preset"), values.get("albert_config_file")]
    need = "exactly one of --preset and --albert_config_file must be given"
    require(sum(map(bool, models)) == 1, need, *models)
    need = "--precision must be float32 or bfloat16 on a TPU of --topology"
    require((distribution, values["precision"]) != ("tpu", "float16"), need, "float16")
    # These are required, but never read.
    nothing = dict.fromkeys(("input_file", "output_dir", "spm_model_file"), "-")
    where = {"backend": "jax", "distribution": distribution}
    return PretrainSettings(num_warmup_steps=0, **where, **nothing, **values)
