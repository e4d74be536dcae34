"""The search for what fits and is fastest, with a compiler that only computes."""

import json
import re

import pytest

from albert_tf.errors import UsageError
from albert_tf.planning import report
from albert_tf.planning.plan import GIB, make_plan
from albert_tf.planning.plan_settings import pretraining
from albert_tf.planning.topologies import find_topology
from tests.imports import ROOT
from tests.planning.fake_compiler import ROW, Compiler

BASE = {"preset": "albert_base_v2"}


def plan(given=BASE, topology="v5e-16", compiler=None, **options):
    compiler = compiler or Compiler()
    return make_plan(
        pretraining(given, {}), find_topology(topology), compiled=compiler, **options
    )


def test_the_best_is_the_fastest_that_fits():
    found = plan()
    assert {one.depth for one in found.candidates} == set(ROW)
    fit = [one for one in found.candidates if one.fits]
    assert found.best.times.step == min(one.times.step for one in fit)
    assert found.best.rows * found.best.accumulation * 16 == 4096
    assert max(one.total for one in fit) <= 15.75 * GIB


def test_the_most_rows_that_fit_are_estimated():
    found = plan(compiler=Compiler(0))
    assert found.most == {"loop_remat": 256, "loop": 32, "unrolled": 64}
    assert "64 with unrolled, 32 with loop, 256 with loop_remat." in report.to_markdown(
        [found]
    )


def test_what_is_given_is_not_searched():
    compiler = Compiler()
    found = plan(compiler=compiler, depth="loop_remat", parts=4)
    assert compiler.requests == [("loop_remat", 4)] and found.best.rows == 64
    compiler = Compiler()
    plan({"preset": "bert_base"}, compiler=compiler)
    assert {depth for depth, _ in compiler.requests} == {"unrolled"}


def test_all_steps_have_hours_and_a_price():
    found = plan(depth="loop_remat", parts=16, efficiency=0.5, cost_per_hour=20.0)
    run = found.run()
    assert run["hours_at_least"] == 125_000 * found.best.times.step / 3600
    assert run["hours"] == 2 * run["hours_at_least"]
    assert run["chip_hours"] == 16 * run["hours"] and run["cost"] == 20 * run["hours"]
    assert "cost" not in plan(depth="loop_remat", parts=16).run()


@pytest.mark.parametrize(
    ("given", "options", "message"),
    [
        (
            {"train_batch_size": 100},
            {},
            "multiple of the 16 devices of v5e-16, received",
        ),
        (
            {},
            {"parts": 3},
            r"devices of v5e-16 times --gradient_accumulation_steps=3, r",
        ),
        ({"max_seq_length": 513}, {}, "at most max_position_embeddings=512, received"),
        (
            {},
            {"parts": 1, "depth": "loop"},
            "--gradient_accumulation_steps=1: 256 rows at once do not fit into the "
            "15.75 GiB of a device of v5e-16; the largest part that does is 32 rows "
            "with --depth=loop --gradient_accumulation_steps=8",
        ),
        (
            {},
            {"compiler": Compiler(20)},
            "not even 1 row at once fits into the 15.75 GiB of a device of v5e-16, but "
            "needs 20.0 GiB with --depth=loop_remat",
        ),
    ],
)
def test_what_does_not_fit_is_refused_with_what_does(given, options, message):
    with pytest.raises(UsageError, match=message):
        plan(BASE | given, **options)


def test_a_training_without_data_takes_flags_before_its_config():
    config = ROOT / "configs/pretrain/albert_base_one_gpu.py"
    from albert_tf.settings import load_experiment
    from albert_tf.training.pretrain_settings import PretrainSettings

    values = load_experiment(config, PretrainSettings)
    found = pretraining({"optimizer": "adamw"}, values)
    assert found.preset == "albert_base_v2" and found.train_batch_size == 4096
    assert found.optimizer == "adamw" and found.precision == "bfloat16"
    assert found.gradient_accumulation_steps == 1  # that of one GPU means nothing here
    assert pretraining(BASE | {"precision": "float32"}, {}).precision == "float32"


@pytest.mark.parametrize(
    ("given", "values", "message"),
    [
        ({}, {}, "exactly one of --preset and --albert_config_file"),
        (BASE | {"albert_config_file": "a.json"}, {}, "exactly one of --preset and"),
        (BASE, {"sequence_length_schedule": "128:9,512:1"}, "a plan is of one length"),
        (BASE, {"teacher": "bert"}, "no teacher; leave out teacher, .*bert"),
        (BASE, {"depth_range": ("1", "2")}, "leave out depth_range"),
        (BASE | {"train_batch_size": 0}, {}, "--train_batch_size must be positive"),
        (
            BASE,
            {"precision": "float16"},
            "--precision must be float32 or bfloat16",
        ),
    ],
)
def test_what_cannot_be_planned(given, values, message):
    with pytest.raises(UsageError, match=message):
        pretraining(given, values)


def test_tables_of_one_plan_show_all_and_of_several_the_best():
    one, other = plan(), plan(topology="v6e-8")
    text = report.to_markdown([one])
    assert text.count(" (best) ") == 2  # memory, step
    flags = f"--depth={one.best.depth} --gradient_accumulation_steps=16`"
    flags = f"--distribution=tpu --precision=bfloat16 {flags}"
    assert f"`pretrain --backend=jax {flags}" in text
    assert "all-reduce of 46.000 MB among 16 devices, 1 time." in text
    assert "v5e-16: 16 chips (4x4)" in text and " cost |" not in text
    assert " cost |" in report.to_markdown([plan(cost_per_hour=19.2)])
    both = report.to_markdown([one, other])
    assert both.count("albert_base_v2, v5e-16") == 3 and "(best)" not in both
    assert max(map(len, both.split("Assumed")[0].split("\n* ")[0].splitlines())) < 250


def test_json_and_picture_are_the_same_again():
    first, again = (report.to_json([plan()]) for _ in range(2))
    assert json.dumps(first) == json.dumps(again)
    (found,) = first["plans"]
    assert sum(one["best"] for one in found["candidates"]) == 1
    assert {"jax", "libtpu"} <= first["versions"].keys()
    picture = report.draw([plan()])
    assert picture.startswith(b"\x89PNG") and picture == report.draw([plan()])


def test_only_what_the_machines_need_is_assumed_and_named():
    tpu, gpu = plan(), plan(BASE | {"train_batch_size": 512}, "h100x8")
    of_tpu, of_gpu, of_both = (
        report.to_json(plans) for plans in ([tpu], [gpu], [gpu, tpu])
    )
    compilers = {"libtpu", "jax-cuda12-pjrt"}
    assert compilers & of_tpu["versions"].keys() == {"libtpu"}
    assert compilers & of_gpu["versions"].keys() == {"jax-cuda12-pjrt"}
    assert compilers < of_both["versions"].keys()
    assert "GPU" not in str(of_tpu["assumptions"])
    assert not re.search("TPU|chip", str(of_gpu["assumptions"]))
    assert {*of_tpu["assumptions"], *of_gpu["assumptions"]} == {*of_both["assumptions"]}
