"""JAX's step beside transformers': what counts as work, the page, and tiny runs."""

import functools
import typing

import keras
import numpy as np
import pytest

from albert_tf import features
from albert_tf.config import AlbertConfig
from albert_tf.data.prepare import create
from albert_tf.errors import DataError, UsageError
from albert_tf.objectives.pretraining import ALBERT
from benchmarks import backends, gpu, gpu_page, rows, topics
from benchmarks.cases import EAGER, FUSED, GRADIENT, OUTPUT, Case
from benchmarks.contestants import Contestant, check_engines, in_turns
from tests import tiny

H100 = "NVIDIA H100 80GB HBM3"
# Of models that are compiled.
TINY = {"vocab_size": 90, "num_hidden_layers": 1}


def test_padding_and_other_examples_are_no_work():
    mask = np.array([[1, 1, 1, 1, 1, 0, 0], [1, 1, 1, 0, 0, 0, 0]])
    cost = lambda n: 3 * n * tiny.CONFIG.flops_per_token(n)  # noqa: E731
    padded = {features.PADDING_MASK: mask}
    assert gpu.model_flops(tiny.CONFIG, padded) == cost(5) + cost(3)
    packs = np.array([[1, 1, 2, 2, 2, 0, 0], [1, 1, 1, 0, 0, 0, 0]])
    packed = padded | {features.PACK_IDS: packs}
    assert gpu.model_flops(tiny.CONFIG, packed) == cost(2) + 2 * cost(3)


def test_scoring_every_token_is_the_same_loss():
    batch = rows.random_batch(tiny.CONFIG, 2, 13)
    batch[features.MASK_WEIGHTS][1, -1] = 0.0
    model = tiny.shared_model("pretraining")
    given = batch, rows.scored_everywhere(batch)
    one, other = (ALBERT.sums(model(b, training=False), b) for b in given)
    assert given[1][features.MASK_POSITIONS].shape == (2, 13)
    assert len(one) > 3
    for name, value in one.items():
        found = keras.ops.convert_to_numpy(other[name])
        assert found == pytest.approx(float(value), rel=1e-5), name


def test_real_rows_travel_in_a_file(tmp_path, monkeypatch):
    alone = functools.partial(create.create_pretraining_data, num_processes=1)
    monkeypatch.setattr(create, "create_pretraining_data", alone)
    path = str(tmp_path / "rows.npz")
    text, model = str(tiny.TEXT), str(tiny.SPIECE)
    summaries = rows.write_rows(path, text, model, 2, 24)
    assert summaries[rows.PACKED].startswith("packed: ")
    packed = rows.read_rows(path, rows.PACKED, 2)
    assert packed[features.PACK_IDS].shape == (2, 24)
    assert features.PACK_IDS not in rows.read_rows(path, rows.PADDED, 1)
    batch = rows.with_text(rows.random_batch(tiny.CONFIG, 2, 24), packed)
    places = np.arange(2)[:, None], batch[features.MASK_POSITIONS]
    tokens = packed[features.TOKEN_IDS]
    np.testing.assert_array_equal(batch[features.TOKEN_IDS], tokens)
    np.testing.assert_array_equal(batch[features.MASK_IDS], tokens[places])
    with pytest.raises(UsageError, match="must have rows of 16 tokens, received 24"):
        rows.with_text(rows.random_batch(tiny.CONFIG, 2, 16), packed)
    with pytest.raises(UsageError, match=r"must have 3 rows, received 2"):
        rows.read_rows(path, rows.PADDED, 3)
    with pytest.raises(UsageError, match="--batches_file: cannot read"):
        rows.read_rows(str(tmp_path / "none.npz"), rows.PADDED, 1)
    with pytest.raises(UsageError, match="--input_file: must have 900 rows of 24"):
        rows.write_rows(path, text, model, 900, 24)


def found_step(name: str, seconds: float, **changes) -> dict:
    """Returns what `gpu.run` collects of a case."""
    values = {"part": "sizes", "title": "base, 64 x 512", "name": name, "first": 9.0}
    values |= {"seconds": [9 * seconds, seconds, seconds], "memory": 2**31}
    return {**values, "tokens": 1000, "flops": int(4e12), **changes}


def test_page_of_steps():
    lost = {"part": "sizes", "title": "large, 1 x 8", "name": "x", "failed": "no room"}
    found = [
        found_step(gpu_page.OURS, 0.008),
        found_step(gpu_page.OURS_EVERYWHERE, 0.01),
        found_step(gpu_page.THEIRS, 0.02),
        found_step(gpu_page.THEIRS_MASKED, 0.013),
        lost,
    ]
    report = gpu_page.to_report(found, H100)
    by_name = {row.name: row for row in report.rows}
    used = by_name["base, 64 x 512: share of the peak"]
    assert used.value == pytest.approx(500 / 989) and used.target == "at least 0.41"
    equal = by_name[
        "base, 64 x 512: "
        f"{gpu_page.OURS_EVERYWHERE} / {gpu_page.THEIRS_MASKED}, tokens/s"
    ]
    assert equal.value == pytest.approx(1.3) and equal.target == "at least 1.2"
    assert "| albert_tf | 8.0 ms | 125,000 | 500 | 50.6% | 2.00 GiB |" in report.text
    assert "* large, 1 x 8, x: no room" in report.text
    assert report.series["measured"] == found
    assert "| 8.0 ms | 125,000 | 500 | - |" in gpu_page.to_report(found, "TPU").text


def test_page_of_attention():
    both = {"part": "table", "title": GRADIENT, "tokens": 1}
    found = [
        found_step("2 x 512: jax, eager", 0.003, program=3 * 2**20, **both),
        found_step("2 x 512: jax, fused", 0.002, program=2 * 2**20, **both),
        {"name": "4 x 512: jax, eager", "failed": "no room", **both},
        found_step("4 x 512: jax, fused", 0.002, **both),
    ]
    report = gpu_page.to_report(found, H100)
    (row,) = report.rows
    assert (row.name, row.target) == (
        "gradient, 2 x 512: fused is faster by",
        "more than 17.7",
    )
    assert row.value == pytest.approx(50)
    line = "| 2 x 512 | 3.00 / 2.00 | +50.0% | 3 / 2 | +50.0% | +17.7%, +25.0% |"
    assert line in report.text


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"parts": ("a",)}, "--parts must be some of sizes, table, packed, depth"),
        ({"sizes": ()}, "--sizes must be some of base, "),
        ({"parts": ("packed",)}, "--parts=packed requires --batches_file"),
    ],
)
def test_settings_that_cannot_be_measured(changes, message):
    with pytest.raises(UsageError, match=message):
        gpu.Settings(**changes)


def test_engines_that_are_not_there():
    with pytest.raises(UsageError, match="--backend: must be some of jax, "):
        check_engines(("tensorflow", "mxnet"))


def test_turns_are_as_long_as_a_clock_needs():
    steps: list[int] = []

    def run(count: int) -> float:
        steps.append(count)
        return count * 0.001

    assert in_turns({"a": run}, 3, "steps")["a"] == pytest.approx([0.001] * 3)
    in_turns({"a": run}, 1, "steps", 40)
    assert steps == [2, 2, 25, 25, 25, 2, 2, 40]


class Recorded:
    """Takes a contestant's place, and keeps what it was told."""

    calls: typing.ClassVar[list[str]] = []

    def __init__(self, engine: str):
        self.engine = engine

    def __enter__(self):
        self.told("begins")
        return self

    def __exit__(self, *unused):
        self.told("ends")

    def told(self, what: str):
        self.calls.append(f"{self.engine} {what}")

    def device(self) -> str:
        return H100

    def prepare(self, cases):
        self.told("prepares")
        self.cases = cases

    def facts(self):
        self.told("has prepared")
        return {name: {"first": 1.0} for name in self.cases}

    def run(self, name: str, steps: int) -> float:
        if self.calls[-1] != "turns":
            self.calls.append("turns")
        return float(steps)


def test_nothing_is_prepared_while_another_is_measured(monkeypatch):
    monkeypatch.setattr(gpu, "Contestant", Recorded)
    monkeypatch.setattr(Recorded, "calls", calls := [])
    settings = gpu.Settings(parts=("sizes", "depth"), sizes=("base",), tiny=True)
    report = gpu.run(settings, lambda report: None)
    assert len(report.series["measured"]) == 7
    ours, theirs = "jax", "transformers"
    both = [f"{ours} begins", f"{theirs} begins"]
    both += [f"{ours} prepares", f"{ours} has prepared"]
    both += [f"{theirs} prepares", f"{theirs} has prepared", "turns"]
    both += [f"{theirs} ends", f"{ours} ends"]
    one = ["begins", "prepares", "has prepared"]
    alone = [*(f"{ours} {what}" for what in one), "turns", f"{ours} ends"]
    assert calls == both + alone


@pytest.mark.broad
def test_a_case_that_fails_does_not_end_the_process():
    good = Case(tiny.CONFIG, rows.random_batch(tiny.CONFIG, 2, 12), precision="float32")
    with Contestant("tensorflow") as contestant:
        contestant.prepare({"bad": Case(tiny.CONFIG, {}), "good": good})
        facts = contestant.facts()
        assert "InvalidArgument" in facts["bad"]["failed"]
        assert facts["good"]["first"] > 0 and contestant.run("good", 2) > 0
        with pytest.raises(DataError, match="tensorflow: KeyError"):
            contestant.run("none", 1)


@pytest.mark.backends
@pytest.mark.parametrize(
    "part", ["sizes", pytest.param("table", marks=pytest.mark.broad)]
)
def test_tiny_models_show_that_everything_runs(monkeypatch, part):
    pytest.importorskip("jax")
    monkeypatch.setattr(gpu, "_TINY", gpu._TINY | TINY)
    monkeypatch.setattr(gpu, "_TABLE", {OUTPUT: gpu._TABLE[OUTPUT]})
    values = {"backend": ["jax"], "parts": [part]}
    values |= {"sizes": ["base"], "steps": 2, "batches_file": ""}
    values |= {"write_batches": "", "compile_for": ""}
    saved = []
    report = topics.measure("step", values | {"scale": "small"}, saved.append)
    assert saved[-1] == report and "failed" not in report.text
    assert report.series["device"] == "cpu"
    measured = report.series["measured"]
    assert [len(one["seconds"]) for one in measured] == [2] * 2
    if part == "table":
        forms = [f"4 x 128: jax, {form}" for form in (EAGER, FUSED)]
        assert forms == [one["name"] for one in measured]
        return
    monkeypatch.setattr(gpu, "Contestant", Recorded)
    monkeypatch.setattr(Recorded, "device", lambda self: "cpu")
    with pytest.raises(UsageError, match="JAX sees no GPU here; --scale=small"):
        topics.measure("step", values | {"scale": "full"}, saved.append)


@pytest.mark.broad
def test_backends_take_turns(monkeypatch):
    pytest.importorskip("jax")
    config = tiny.CONFIG.replace(**TINY)
    monkeypatch.setattr(AlbertConfig, "from_preset", lambda name: config)
    report = backends.run(("jax", "tensorflow"), "", ((2, 12),), 2, "float32")
    found = {row.name: row for row in report.rows}
    one, other = (found[f"2 x 12: {name}"] for name in ("jax", "tensorflow"))
    ratio = found["2 x 12: tensorflow / jax"].value
    assert ratio == pytest.approx(other.value / one.value)
    assert len(one.details["seconds"]) == 2
