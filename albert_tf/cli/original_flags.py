"""The flags of the original's fine-tuning scripts.

They are the flags of run_classifier.py, run_squad_v1.py, run_squad_v2.py and
run_race.py. Each one works as it did there, under its own name or as an alias; or it
stops the command and names an alternative. There is one exception:
`--save_checkpoints_steps` was also the number of steps between evaluations, which is
`--eval_steps` here.
"""

from typing import Any

from absl import flags

from albert_tf.cli.flags import HIDDEN, define_alias

flags.disclaim_key_flags()

_ALIASES = {
    "task_name": "task",
    "train_step": "num_train_steps",
    "warmup_step": "num_warmup_steps",
    "config_file": "albert_config_file",
    "tokenizer_file": "spm_model_file",
    "predict_batch_size": "eval_batch_size",
    "predict_file": "dev_file",
    "num_keep_checkpoint": "keep_checkpoint_max",
}
_NO_FILES = "leave it out; examples are read and encoded in memory"
_NO_ADDRESS = "leave it out; --tpu_name takes the name or the address of a TPU"
_LEVEL = (
    "use --data_dir=tfds:race/{} or a folder with this level alone; of both, the "
    "accuracies are also given apart"
)
# Flags without a counterpart: the value that has no effect, and the alternative.
_REFUSED: dict[str, tuple[Any, str]] = {
    "vocab_file": ("", "leave it out; --spm_model_file is the whole tokenizer"),
    "albert_hub_module_handle": ("", "give the model as --init_checkpoint"),
    "cached_dir": ("", _NO_FILES),
    "train_feature_file": ("", _NO_FILES),
    "predict_feature_file": ("", _NO_FILES),
    "predict_feature_left_file": ("", _NO_FILES),
    "eval_file": ("", "use --dev_file for examples; there is no file of cached ones"),
    "high_only": (False, _LEVEL.format("high")),
    "middle_only": (False, _LEVEL.format("middle")),
    "use_tpu": (False, "use --distribution=tpu"),
    "tpu_zone": ("", _NO_ADDRESS),
    "gcp_project": ("", _NO_ADDRESS),
    "master": ("", _NO_ADDRESS),
    "num_tpu_cores": (None, "leave it out; --distribution=tpu uses all cores"),
    "iterations_per_loop": (None, "leave it out; it changed no result"),
    "use_einsum": (True, "leave it out; it changed no result"),
    "start_n_top": (5, "the beam has 5 starts with 5 ends each, as was the default"),
    "end_n_top": (5, "the beam has 5 starts with 5 ends each, as was the default"),
    "dropout_prob": (
        None,
        "leave it out; the head's dropout is that of the model's config, usually 0.1, "
        "and --dropout is that of the encoder",
    ),
    "export_dir": ("", "use albert-tf export --model=... --output_dir=..."),
    "threshold_to_export": (None, "use albert-tf export, which needs no minimum score"),
}
_DO = (
    "finetune always trains, evaluates the dev examples and predicts the test examples,"
    " which all of --do_train --do_eval --do_predict together confirm; albert-tf "
    "evaluate and albert-tf predict use a trained model"
)


def define_original_flags() -> None:
    """Defines the original's flags in addition to `FinetuneSettings`'s."""
    for alias, name in _ALIASES.items():
        define_alias(alias, name)
    for name, (harmless, instead) in _REFUSED.items():
        HIDDEN.add(name)
        if isinstance(harmless, bool):
            flags.DEFINE_bool(name, harmless, instead)
        else:
            default = None if harmless is None else str(harmless)
            flags.DEFINE_string(name, default, instead)
        default = flags.FLAGS[name].default
        flags.register_validator(
            name, lambda value, default=default: value == default, message=instead
        )
    for name in ("do_train", "do_eval", "do_predict"):
        HIDDEN.add(name)
        flags.DEFINE_bool(name, None, _DO)
        flags.register_validator(name, _is_done, message=_DO)


def _is_done(value: bool | None) -> bool:
    """Returns whether a `--do_...` flag agrees with what the command does."""
    return value is None or (value and bool(flags.FLAGS["do_train"].value))
