"""Settings of both commands: defaults, recipes, phases, and what is refused."""

import dataclasses

import pytest

from albert_tf.errors import UsageError
from albert_tf.tasks.registry import find_recipe
from albert_tf.text.inputs import PROMPTS
from albert_tf.training.finetune_settings import FinetuneSettings, beside
from albert_tf.training.pretrain_settings import PretrainSettings


def pretraining(**changes):
    paths = dict(input_file="a", output_dir="b", spm_model_file="c", preset="d")
    lengths = dict(num_train_steps=20, num_warmup_steps=4)
    return PretrainSettings(**{**paths, **lengths, **changes})


def finetuning(**changes):
    paths = dict(train_file="t", output_dir="o", init_checkpoint="c")
    return FinetuneSettings(**{**paths, **changes})


PHASES = {
    "input_file": "data/{length}/x",
    "sequence_length_schedule": "128:9,512:4",
    "num_train_steps": 13,
    "num_warmup_steps": 2,
}


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"num_decay_steps": 3}, "num_decay_steps requires .*received 3 with original"),
        (
            {"learning_rate_schedule": "linear", "poly_power": 2.0},
            "--poly_power has no meaning with --learning_rate_schedule=linear, rec.*2",
        ),
        (
            {"learning_rate_schedule": "trapezoid", "num_decay_steps": 17},
            "--num_decay_steps must be from 1 to 16, .*received 17",
        ),
        (
            {"export_weights": "average"},
            "--export_weights=average requires an --ema_decay, received 0",
        ),
        ({"keep_best": "loss"}, "--keep_best requires --eval_file, received"),
        ({"sample_texts": ("a [MASK]", "no")}, r"must contain \[MASK\], received 'no'"),
        ({"max_loss_ratio": 1.0}, "--max_loss_ratio must be above 1, or 0 for none"),
        ({"num_warmup_steps": 21}, "at most --num_train_steps=20, received 21"),
        ({"grow": True}, "--grow requires --init_checkpoint"),
        ({"albert_config_file": "x"}, "exactly one of --preset and --albert_config"),
        ({"preset": ""}, "exactly one of --preset and --albert_config"),
        ({"spm_model_file": ""}, "--spm_model_file is required without --init"),
        (
            {"allow_tpu_pod": True, "distribution": "tpu", "backend": "jax"},
            "--allow_tpu_pod requires .* --backend=tensorflow, received .*'jax'",
        ),
        (
            {"compilation_cache": "c"},
            "--compilation_cache requires --backend=jax, received 'tensorflow'",
        ),
        (
            {"compilation_cache": "gs://c", "backend": "jax"},
            "--compilation_cache must be a folder on this machine, received 'gs://c'",
        ),
        ({"profile_steps": ("5",)}, "--profile_steps must be a first .*received '5'"),
        ({"profile_steps": ("5", "x")}, "a last step, such as 100,110, received '5,x'"),
        (
            {"profile_steps": ("19", "21")},
            "--profile_steps .*, from 1 to --num_train_steps=20, received '19,21'",
        ),
        ({"profile_steps": ("0", "2")}, "from 1 to --num_train_steps=20, rec.*'0,2'"),
        ({"profile_steps": ("3", "2")}, "from 1 to --num_train_steps=20, rec.*'3,2'"),
        (
            {"precision": "float16", "distribution": "tpu"},
            "--precision=float16 is for GPUs; --distribution=tpu computes in float32",
        ),
    ],
)
def test_pretraining_refuses(changes, message):
    with pytest.raises(UsageError, match=message):
        pretraining(**changes)


@pytest.mark.parametrize(
    "schedule, changes, message",
    [
        ("128", {}, "schedule must be rising.*'128'"),
        ("512:9,128:4", {}, "must be rising lengths"),
        ("128:9:0,512:4", {}, "positive numbers of steps"),
        ("128:9,512:4", {"num_train_steps": 14}, "--num_train_steps must be 13, .*14"),
        ("128:9,512:4", {"max_seq_length": 256}, "--max_seq_length must be 512, .*256"),
        ("128:9,512:4", {"input_file": "x"}, "--input_file must contain {length} .*x"),
        (
            "128:9:8,512:4:3",
            {"gradient_accumulation_steps": 2, "train_batch_size": 8},
            "received 3 and 2",
        ),
        (
            "128:9:8,512:4:2",
            {"scale_learning_rate": True},
            "--scale_learning_rate knows one --train_batch_size=4096, received",
        ),
    ],
)
def test_a_schedule_is_refused(schedule, changes, message):
    values = {**PHASES, "sequence_length_schedule": schedule, **changes}
    with pytest.raises(UsageError, match=message):
        pretraining(**values)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data_dir": "d"}, "exactly one of --data_dir"),
        ({"train_file": ""}, "exactly one of --data_dir"),
        (
            {"train_file": "", "data_dir": "d", "dev_file": "e"},
            "only with --train_file",
        ),
        ({"init_checkpoint": ""}, "--init_checkpoint: required"),
        ({"from_scratch": True}, "cannot be combined with --init_checkpoint"),
        ({"preset": "albert_base_v2"}, "--preset: only with --from_scratch"),
        ({"output_dir": ""}, "--output_dir: required"),
        ({"teacher": "o/"}, "--output_dir: is --teacher, too, which the"),
        ({"warmup_proportion": 1.5}, r"warmup_proportion must be in \[0, 1\]"),
        ({"train_batch_size": 9, "gradient_accumulation_steps": 2}, "multiple of"),
        ({"max_seq_length": 2}, "max_seq_length must be at least 3"),
        ({"exits": "all"}, "exits must be one of none, joint, frozen, received 'all'"),
        ({"layerwise_decay_rule": "original"}, "rule: requires --layerwise_decay"),
        (
            {"exits": "frozen", "early_stopping_patience": 2},
            "frozen leaves every metric as it is",
        ),
        (
            {"exits": "joint", "depth": "loop"},
            "--depth=loop: cannot be combined with --exits",
        ),
        (
            {"embedding_layers": ("1",), "depth_range": ("1", "2")},
            "--depth_range: cannot be combined with --exits and --embedding_layers",
        ),
        (
            {"num_train_epochs": 2.0, "num_train_steps": 9},
            "--num_train_epochs: cannot be combined with num_train_steps, received 2.0 "
            "and 9",
        ),
        (
            {"warmup_proportion": 0.1, "num_warmup_steps": 3},
            "num_warmup_steps, received 0.1 and 3",
        ),
    ],
)
def test_fine_tuning_refuses(changes, message):
    with pytest.raises(UsageError, match=message):
        finetuning(**changes)


def test_the_decay_is_checked_against_the_own_steps():
    settings = finetuning(
        learning_rate_schedule="trapezoid",
        num_decay_steps=20,
        train_batch_size=4,
        num_train_epochs=2.0,
    )
    assert settings.resolved(44).num_decay_steps == 20  # 22 steps, 2 of them warm-up
    with pytest.raises(UsageError, match="^--num_decay_steps must be from 1 to 9, "):
        settings.resolved(20)


def test_what_an_earlier_run_does_not_record_had_this_value():
    for kind in (PretrainSettings, FinetuneSettings):
        assert kind.defaults()["ema_decay"] == 0
    defaults = PretrainSettings.defaults()
    assert defaults["export_weights"] == "last"
    assert defaults["sequence_length_schedule"] == ""
    assert defaults["sample_texts"] == PROMPTS


def test_what_does_not_change_the_result_is_no_identity():
    same = {"save_checkpoints_steps": 3, "log_steps": 1, "output_dir": "x"}
    for make in (pretraining, finetuning):
        assert make(**same).identity() == make().identity() != make(seed=1).identity()
    identity = pretraining(sample_texts=("",), do_lower_case=True).identity()
    assert identity == pretraining().identity()


# Batch size and exponent x of the rate 5 / (2 ** x * 1000), in LAMB's paper for BERT.
LAMB_ROWS = [(512, 3), (1024, 2.5), (2048, 2), (4096, 1.5), (8192, 1), (32768, 0)]


def test_rates_are_as_given_or_scaled_as_in_lambs_paper():
    for batch, exponent in LAMB_ROWS:
        settings = pretraining(train_batch_size=batch, scale_learning_rate=True)
        expected = 5 / (2**exponent * 1000)
        assert settings.peak_learning_rate == pytest.approx(expected, rel=0.005)
        # The paper warms up over 3,125 steps in every row.
        assert settings.num_warmup_steps == pretraining().num_warmup_steps
    given = {"train_batch_size": 64, "learning_rate": 0.004}
    plain = pretraining(**given)
    scaled = pretraining(**given, scale_learning_rate=True)
    assert plain.describe_learning_rate() == "learning rate 0.004"
    line = "learning rate 0.0005 (0.004 x sqrt(64 / 4096))"
    assert scaled.describe_learning_rate() == line
    assert plain.identity() != scaled.identity()


def test_settings_are_checked_without_keras(run_python):
    code = """
import sys
from albert_tf.training import finetune_settings, pretrain_settings
assert "keras" not in sys.modules
"""
    assert run_python("-c", code).returncode == 0


def test_phases_are_runs_of_their_length():
    settings = pretraining(**PHASES, train_batch_size=64)
    short, long = phases = settings.phases
    assert (short.first_step, short.last_step) == (0, 9)
    assert (long.first_step, long.last_step) == (9, 13)
    assert settings.input_files() == ["data/128/x", "data/512/x"]
    assert [p.settings.input_file for p in phases] == settings.input_files()
    assert [p.settings.max_seq_length for p in phases] == [128, 512]
    assert [p.settings.num_predictions for p in phases] == [19, 77]
    assert {p.settings.train_batch_size for p in phases} == {64}
    phases = pretraining(**PHASES, max_predictions_per_seq=77).phases
    assert [p.settings.num_predictions for p in phases] == [20, 77]
    sizes = {"sequence_length_schedule": "128:9:64,512:4:16"}
    phases = pretraining(**{**PHASES, **sizes}).phases
    assert [p.settings.train_batch_size for p in phases] == [64, 16]
    settings = pretraining()
    (phase,) = settings.phases
    assert (phase.first_step, phase.last_step) == (0, 20)
    assert phase.log_steps == 1
    assert pretraining(log_steps=7).phases[0].log_steps == 7
    assert phase.settings is settings


RTE = dataclasses.asdict(find_recipe("rte"))


@pytest.mark.parametrize(
    ("given", "examples", "recipe", "expected"),
    [
        (
            {"learning_rate": 1e-4},
            *(2490, RTE),
            {"train_batch_size": 32, "dropout": 0.1, "num_train_steps": 800}
            | {"num_warmup_steps": 200, "learning_rate": 1e-4},
        ),
        (
            {"num_train_epochs": 2.0},
            *(100, RTE),
            {"num_train_steps": 7, "num_warmup_steps": 0, "train_batch_size": 32},
        ),
        (
            {"warmup_proportion": 0.3},
            *(100, RTE),
            {"num_train_steps": 800, "num_warmup_steps": 240},
        ),
        # The original rounds down.
        (
            {"warmup_proportion": 0.1, "num_train_steps": 29},
            *(100, {}),
            {"num_warmup_steps": 2},
        ),
        (
            {},
            *(1000, {}),
            {"num_train_steps": 94, "num_warmup_steps": 9}
            | {"eval_steps": 32, "dropout": None, "fixed_length": False},
        ),
        # What XLA compiles has one length.
        ({"fixed_length": True}, 100, {}, {"fixed_length": True}),
        ({"jit_compile": True}, 100, {}, {"fixed_length": True}),
        ({"distribution": "tpu"}, 100, {}, {"fixed_length": True}),
        ({"distribution": "mirrored"}, 100, {}, {"fixed_length": False}),
        ({"exits": "frozen"}, 100, {}, {"keep": "last"}),
    ],
)
def test_what_is_not_given_is_resolved(given, examples, recipe, expected):
    found = finetuning(**given).resolved(examples, recipe)
    assert {name: getattr(found, name) for name in expected} == expected


def test_what_is_given_beside_a_config_replaces_its_steps():
    config = {"num_train_steps": 800, "num_warmup_steps": 200, "learning_rate": 1e-5}
    assert beside(config, []) == config
    for name in ("num_train_epochs", "max_train_examples"):
        assert beside(config, [name]) == {"learning_rate": 1e-5}
    assert "num_warmup_steps" not in beside(config, ["warmup_proportion"])
    assert beside({"num_train_epochs": 3.0}, ["num_train_steps"]) == {}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, ("lamb", 0.00176, 4096, 125_000, 3_125, 0.01, 0.999, False)),
        (
            {"objective": "roberta", "preset": "roberta_large", "epsilon": 1e-4},
            ("adamw", 4e-4, 8192, 500_000, 30_000, 0.01, 0.98, True),
        ),
        (
            {"objective": "spanbert", "beta_2": 0.9},
            ("adamw", 1e-4, 256, 2_400_000, 10_000, 0.1, 0.9, True),
        ),
        (
            {"objective": "electra", "optimizer": "lamb", "weight_decay_rate": 0.0},
            ("lamb", 5e-4, 128, 1_000_000, 10_000, 0.0, 0.999, False),
        ),
    ],
)
def test_an_objective_brings_its_recipe(given, expected):
    unset = dict(num_train_steps=None, num_warmup_steps=None)
    settings = pretraining(**{**unset, **given})
    names = "optimizer learning_rate train_batch_size num_train_steps num_warmup_steps "
    names += "weight_decay_rate beta_2 bias_correction"
    assert tuple(getattr(settings, name) for name in names.split()) == expected
    excluded = settings.optimizer_arguments["exclude_from_weight_decay"]
    assert bool(excluded) == (not settings.bias_correction)


def test_the_rate_of_another_batch_is_not_scaled():
    message = "--scale_learning_rate with --objective=electra requires a --learning_r"
    with pytest.raises(UsageError, match=message):
        pretraining(objective="electra", scale_learning_rate=True)
    pretraining(objective="electra", scale_learning_rate=True, learning_rate=1e-3)
