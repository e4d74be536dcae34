"""The command `plan`, with a compiler that only computes."""

import json

import pytest

from albert_tf.planning import compiler
from albert_tf.planning.plan import make_plan
from tests.commands import run_command
from tests.imports import ROOT
from tests.planning.fake_compiler import Compiler


@pytest.fixture
def fake(monkeypatch):
    made = Compiler()
    monkeypatch.setattr(compiler, "check_installed", lambda topology: None)
    monkeypatch.setitem(make_plan.__kwdefaults__, "compiled", made)
    return made


CONFIG = f"--config={ROOT}/configs/pretrain/albert_base_v2.py"


def test_a_plan_is_printed_and_written(fake, tmp_path):
    given = ("--topology=v5e-16", "--cost_per_hour=19.2", CONFIG)
    stem = tmp_path / "new/plan"
    done = run_command("plan", *given, f"--output_file={stem}.json")
    assert done.code == 0, done.err
    page = stem.with_suffix(".md").read_text()
    assert page.endswith(done.out) and "](plan.png)" in page
    assert "`albert-tf plan --topology=v5e-16 --cost_per_hour=19.2 --config=" in page
    assert "compiling loop_remat, 16 rows at once" in done.err
    assert stem.with_suffix(".png").read_bytes().startswith(b"\x89PNG")
    (found,) = json.loads(stem.with_suffix(".json").read_text())["plans"]
    assert (found["chips"], found["train_batch_size"]) == (16, 4096)
    assert found["cost"] == 19.2 * found["hours"]
    again = run_command("plan", *given, f"--output_file={stem}")
    assert again.code == 2 and "plan.json exists already" in again.error


def test_lists_are_compared(fake):
    models = "--preset=albert_base_v2,albert_large_v2"
    done = run_command(
        *("plan", CONFIG, models, "--topology=v4-32,v6e-8", "--json"),
        *("--depth=loop_remat", "--global_batch=512", "--seq_length=128"),
    )
    assert done.code == 0, done.err
    plans = json.loads(done.out)["plans"]
    assert [(plan["model"], plan["topology"]) for plan in plans] == [
        ("albert_base_v2", "v4-32"),
        ("albert_base_v2", "v6e-8"),
        ("albert_large_v2", "v4-32"),
        ("albert_large_v2", "v6e-8"),
    ]
    assert {plan["max_seq_length"] for plan in plans} == {128}
    assert {depth for depth, _ in fake.requests} == {"loop_remat"}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("", "--topology is required"),
        ("--topology=v5e-17", "--topology must be one of v5e-1, v5e-4, "),
        (
            "--topology=t4 --preset=albert_base_v2",
            "--precision must be float16 or float32 on a t4, which has no products in",
        ),
        ("--topology=v5e-16 --preset=huge", "--preset=huge: preset must be one of "),
        (
            "--topology=v5e-16,v4-8 --preset=albert_base_v2 --cost_per_hour=1",
            "--cost_per_hour is that of one --topology",
        ),
        ("--topology=v5e-16 --cost_per_hour=nan", "must be positive, received nan"),
        ("--topology=v5e-16 --cost_per_hour=-1", "must be positive, received -1"),
        (
            "--topology=v5e-16 --preset=albert_base_v2 --global_batch=100",
            "--global_batch must be a multiple of the 16 devices of v5e-16, received",
        ),
        ("--topology=v5e-16 --efficiency=2", "--efficiency must be in (0, 1], rec"),
    ],
)
def test_refusals(fake, given, message):
    done = run_command("plan", *given.split())
    assert done.code == 2 and message in done.error and not done.out
    assert not fake.requests


def test_without_the_extra(monkeypatch):
    monkeypatch.setattr(compiler.importlib.util, "find_spec", lambda name: None)
    done = run_command("plan", "--preset=albert_base_v2", "--topology=v5e-16")
    assert done.code == 2
    assert "needs jax and libtpu: pip install 'albert_tf[plan]'" in done.error
