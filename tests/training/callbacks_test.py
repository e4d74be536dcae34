"""What the loop calls: divergences, the best evaluation, answers to sentences."""

import json
import math
import types
from unittest import mock

import numpy as np
import pytest
import tensorflow as tf

import albert_tf
from albert_tf.errors import DataError, UsageError
from albert_tf.inference.fill_mask import FillMask
from albert_tf.models.base import weight_names
from albert_tf.models.masked_lm import AlbertPretrainer
from albert_tf.objectives.pretraining import ALBERT
from albert_tf.optimizers.create import create_optimizer
from albert_tf.training import callbacks, context
from albert_tf.training.callbacks import (
    DivergedError,
    DivergenceGuard,
    KeepBest,
    KeepModel,
    KeepWeights,
)
from albert_tf.training.context import RunContext, no_pictures
from albert_tf.training.pretrain import find_objective
from albert_tf.training.pretrain_settings import PretrainSettings
from albert_tf.training.tensorflow.step import TrainStep
from albert_tf.training.weights import WeightAverages
from tests import tiny
from tests.training.runs import pretraining


def lines(*losses, norm=1.0):
    return [{"split": "train", "loss": x, "grad_norm": norm} for x in losses]


def find(guard, losses, norms=None, done=10, scales=None):
    norms = norms or [1.0] * len(losses)
    results = {"losses": losses, "grad_norms": norms, "learning_rate": 0.1}
    if scales is not None:
        results["loss_scales"] = scales
    try:
        guard.on_step(done, results)
    except DivergedError as e:
        return e
    return None


def test_numbers_must_be_finite_from_the_first_step():
    guard = DivergenceGuard()
    assert find(guard, [1e9, 3.0]) is None
    for bad in (math.nan, math.inf, -math.inf):
        assert find(guard, [3.0, bad, bad]).step == 12
        error = find(guard, [3.0, 3.0], [bad, 1.0])
        assert error.step == 11 and "gradient norm" in str(error)
        assert set(error.values) == {"loss", "grad_norm"}


def test_a_skipped_step_is_no_divergence_while_the_scale_can_fall():
    guard = DivergenceGuard(lines(1, 1, 1), max_norm_ratio=5.0)
    norms, scales = [math.nan, math.inf, 1.0], np.array([4.0, 2.0, 1.0])
    assert find(guard, [3.0] * 3, norms, scales=scales) is None
    error = find(guard, [3.0] * 3, norms, scales=scales / 2)
    assert error.step == 12 and "or use another --precision" in str(error)
    # The scale has no part in a loss, or in a norm that is only too large.
    assert find(guard, [math.nan, 3.0, 3.0], norms, scales=scales).step == 11
    assert find(guard, [3.0] * 3, [1.0, 6.0, 1.0], scales=scales).step == 12


def test_the_usual_is_a_median_of_at_least_three_lines():
    ratios = {"max_loss_ratio": 2.0, "max_norm_ratio": 5.0}
    assert find(DivergenceGuard(lines(1, 1), **ratios), [9.0]) is None
    # One outlier among the lines does not move it.
    guard = DivergenceGuard(lines(1, 50, 1, 1), **ratios)
    assert find(guard, [2.0], [5.0]) is None
    assert "2.1 times the usual 1" in str(find(guard, [2.1]))
    assert "5.2 times the usual 1" in str(find(guard, [1.0], [5.2]))
    # It follows the last twenty lines.
    for line in lines(*[10.0] * 20):
        guard.on_log(line)
    assert find(guard, [19.0]) is None


def test_a_resumed_run_judges_alike():
    every = [*lines(3, 4, 5), {"split": "eval", "loss": 1e6}, *lines(6, 7)]
    whole = DivergenceGuard(max_loss_ratio=1.5)
    for line in every:
        if line["split"] == "train":
            whole.on_log(line)
    for guard in (whole, DivergenceGuard(every, max_loss_ratio=1.5)):
        assert find(guard, [7.6]) and not find(guard, [7.5])


class Best(KeepBest):
    """Notes the steps that were the best so far."""

    def __init__(self, metric="accuracy", patience=0, lines=()):
        super().__init__("", metric, None, patience)
        self.resume(lines)
        self.steps = []

    def save(self, step):
        self.steps.append(step)


def select(values, patience=0, metric="accuracy"):
    best = Best(metric, patience)
    for step, value in enumerate(values, 1):
        best.on_evaluate(step, {metric: value})
    return best


@pytest.mark.parametrize(
    ("metric", "values", "better"),
    [
        ("accuracy", [0.5, 0.7, 0.6, 0.7], [1, 2]),
        ("mlm_accuracy", [0.5, 0.3, 0.7], [1, 3]),
        # Less of a loss is better, whatever stands before it.
        ("mse", [0.5, 0.3, 0.4], [1, 2]),
        ("ema_mlm_loss", [0.5, 0.3, 0.4], [1, 2]),
        ("accuracy", [math.nan, 0.1, math.nan], [2]),
        ("loss", [math.inf, 3.0], [2]),
    ],
)
def test_the_first_of_the_best_is_kept(metric, values, better):
    best = select(values, metric=metric)
    assert best.steps == better and best.best_step == better[-1]
    assert best.best_value == values[better[-1] - 1]


def test_patience():
    for patience in (0, 1, 2):
        assert select([0.5, 0.4, 0.5], patience).should_stop == bool(patience)
        assert not select([0.5, 0.4, 0.6], patience).should_stop
    # Also of a run whose metric is never a number.
    best = select([math.nan, math.nan, math.nan], 2, "pearson")
    assert not best.steps and best.should_stop and best.has_no_number


def test_evaluations_on_record_decide_as_new_ones():
    best = Best(
        "accuracy", 2, [{"step": 2, "accuracy": 0.5}, {"step": 4, "accuracy": 0.4}]
    )
    assert not best.should_stop
    best.on_evaluate(4, {"accuracy": 1.0})  # on record already
    best.on_evaluate(6, {"accuracy": 0.5})
    assert not best.steps and best.should_stop


def test_weights_come_back(tmp_path):
    model = tiny.make_model("text_classifier")
    lines = [{"step": 5, "accuracy": 1.0}]
    best = KeepWeights(model, str(tmp_path / "best"), "accuracy", None)
    best.resume(lines)
    best.save(3)
    values = {n: np.array(v) for n, v in weight_names(model).items()}
    tiny.randomize(model)
    best.save(5)
    best.restore(3)
    for name, variable in weight_names(model).items():
        np.testing.assert_array_equal(variable, values[name])
    best.on_save()
    left = [path.name for path in (tmp_path / "best").iterdir()]
    assert left == ["step-5.safetensors"]
    with pytest.raises(DataError, match="step-3.safetensors: .* are missing"):
        best.restore(3)


EXAMPLES = {"records": "ab" * 32, "rows": 8, "masked_lm_prob": 0.15, "max_ngram": 3}


class Folder:
    """The folder of a run that has no record."""

    def __init__(self, path):
        self.join = lambda name: str(path / name)


@pytest.fixture
def keeper(tmp_path, tokenizer):
    model = tiny.make_model("pretraining")

    def make(metric="loss", ema_decay=0.0, examples=EXAMPLES):
        optimizer = create_optimizer(
            "adamw", learning_rate=0.1, num_train_steps=5, ema_decay=ema_decay
        )
        step = TrainStep(model, ALBERT, optimizer, tf.distribute.get_strategy())
        averages = WeightAverages(model, optimizer)
        for average in averages.averages.values():
            average.assign(average + 0.25)
        data = types.SimpleNamespace(evaluated_on=lambda: examples)
        settings = types.SimpleNamespace(keep_best=metric)
        carried = settings, Folder(tmp_path), tokenizer, data, step, averages
        return KeepModel(RunContext(*carried, no_pictures))

    make.model = model
    return make


@pytest.fixture
def read(tmp_path):
    return lambda: json.loads((tmp_path / "best/best.json").read_text())


def bias(folder):
    return albert_tf.from_pretrained(folder / "best").get_weights()[-1]


def test_the_best_model_is_kept_and_survives(tmp_path, keeper, read, caplog):
    last, best = keeper.model.trainable_variables[-1], keeper()
    best.on_evaluate(1, {"loss": float("nan")})
    assert "the loss of step 1 is nan: the model is not kept" in caplog.text
    for step, loss in ((2, 3.0), (4, 1.5), (6, 2.0)):
        last.assign(np.full(last.shape, step))
        best.on_evaluate(step, {"loss": loss, "mlm_accuracy": 0.5})
    kept = {"metric": "loss", "value": 1.5, "step": 4, "evaluated_on": EXAMPLES}
    assert read() == kept
    assert bias(tmp_path).tolist() == [4, 4]
    # A run continued from a checkpoint of step 3 repeats steps 4 and 6.
    again = keeper()
    before = (tmp_path / "best/best.json").stat().st_mtime_ns
    for step, loss in ((4, 1.5), (6, 2.0), (8, 1.5)):
        again.on_evaluate(step, {"loss": loss})
    assert (tmp_path / "best/best.json").stat().st_mtime_ns == before
    last.assign(np.full(last.shape, 10))
    again = keeper()
    again.on_evaluate(2, {"loss": 1.25})  # a batch after step 1 was left out
    assert bias(tmp_path).tolist() == [10, 10]
    # Another metric begins anew.
    keeper("mlm_accuracy").on_evaluate(12, {"loss": 9.0, "mlm_accuracy": 0.125})
    assert read() == kept | {"metric": "mlm_accuracy", "value": 0.125, "step": 12}
    assert [p.name for p in tmp_path.iterdir()] == ["best"]  # nothing half-written


def test_numbers_of_other_examples_are_not_compared(tmp_path, keeper, read, caplog):
    keeper().on_evaluate(2, {"loss": 1.0})
    for change in ({"rows": 4}, {"records": "cd" * 32}, {"masked_lm_prob": 0.1}):
        examples = EXAMPLES | change
        caplog.clear()
        best = keeper(examples=examples)
        (warning,) = caplog.messages
        assert "best.json: was measured on other examples, records=" in warning
        assert f"rows={examples['rows']} masked_lm_prob=" in warning
        assert "max_ngram=3; the next evaluation replaces it" in warning
        best.on_evaluate(4, {"loss": 9.0})
        best.on_evaluate(6, {"loss": 9.5})
        assert read()["evaluated_on"] == examples
        assert (read()["step"], read()["value"]) == (4, 9.0)
    caplog.clear()
    folder = tmp_path / "best"
    (folder / "model.safetensors").write_bytes(b"")  # a damaged one is replaced
    keeper().on_evaluate(10, {"loss": 9.5})
    assert "model.safetensors: is not the file" in caplog.text
    assert read()["step"] == 10 and len(bias(tmp_path)) == 2


def test_a_metric_of_the_averages_keeps_the_averages(tmp_path, keeper):
    best = keeper("ema_loss", ema_decay=0.9)
    raw = keeper.model.get_weights()[-1]
    best.on_evaluate(2, {"loss": 1.0, "ema_loss": 2.0})
    np.testing.assert_array_equal(bias(tmp_path), [0.25, 0.25])
    np.testing.assert_array_equal(keeper.model.get_weights()[-1], raw)


def test_metrics_that_cannot_be(keeper, tmp_path):
    given = {"eval_file": "x", "keep_best": "ema_loss"}
    for metric, decay in (("sop_accuracy", 0.0), ("ema_mlm_accuracy", 0.9)):
        changes = {**given, "keep_best": metric, "ema_decay": decay}
        find_objective(PretrainSettings(**pretraining(tmp_path, **changes)))
    with pytest.raises(UsageError, match="--keep_best must be one of loss, mlm_loss, "):
        find_objective(PretrainSettings(**pretraining(tmp_path, **given)))
    with pytest.raises(UsageError, match="no such metric, only loss, mlm_loss"):
        keeper("sop_loss").on_evaluate(2, {"loss": 1.0, "mlm_loss": 1.0})


TEXTS = ("the [MASK] .", "[MASK] and [MASK]", "one [MASK] two")


class Step:
    """A step of two devices that answers without them."""

    num_shares = 2

    def __init__(self, strategy=None):
        self.model = AlbertPretrainer(tiny.CONFIG, seed=1)
        self.strategy = strategy or tf.distribute.OneDeviceStrategy("/cpu:0")

    def predict(self, batch):
        assert {len(rows) for rows in batch.values()} == {4}
        outputs = self.model(batch, training=False)
        return {name: value.numpy() for name, value in outputs.items()}


class Tpu(tf.distribute.TPUStrategy):
    """That of a TPU which nobody has asked for."""

    cluster_resolver = None


@pytest.fixture
def answering(tmp_path, tokenizer):
    def answering(step, first=0, ema_decay=0.0, texts=TEXTS, eval_file="x"):
        optimizer = create_optimizer(
            "adamw", learning_rate=0.1, num_train_steps=5, ema_decay=ema_decay
        )
        optimizer.build(step.model.trainable_variables)
        averages = WeightAverages(step.model, optimizer)
        for average in averages.averages.values():
            average.assign(tf.ones_like(average) * 0.25)
        settings = types.SimpleNamespace(
            sample_texts=texts, max_seq_length=16, eval_file=eval_file
        )
        carried = settings, Folder(tmp_path), tokenizer, None, step, averages
        return callbacks.Samples(RunContext(*carried, no_pictures), first)

    return answering


def answers_in(tmp_path):
    lines = (tmp_path / "samples.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def test_the_answers_are_those_of_the_weights(answering, tmp_path, tokenizer):
    step = Step()
    made = answering(step, ema_decay=0.9)
    before = step.model.get_weights()
    made.on_evaluate(4, {"loss": 1.0})
    for one, other in zip(before, step.model.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)
    last, average = answers_in(tmp_path)
    assert (last["step"], last["weights"]) == (4, "last")
    assert (average["step"], average["weights"]) == (4, "average")
    for line in (last, average):
        if line is average:
            step.model.set_weights([np.full_like(w, 0.25) for w in before])
        assert [one["text"] for one in line["answers"]] == list(TEXTS)
        fill_mask = FillMask(step.model, tokenizer)
        for one in line["answers"]:
            expected = fill_mask(one["text"])
            expected = [expected] if len(one["masks"]) == 1 else expected
            for mask, wanted in zip(one["masks"], expected, strict=True):
                assert [token for token, _ in mask] == [w["token_str"] for w in wanted]
                scores = [w["score"] for w in wanted]
                assert [s for _, s in mask] == pytest.approx(scores, rel=1e-3)


def test_a_resumed_run_writes_the_same_file(answering, tmp_path):
    step = Step()
    whole = answering(step)
    contents = []
    for number in (2, 4, 6):
        whole.on_evaluate(number, {})
        contents.append((tmp_path / "samples.jsonl").read_bytes())
    # Killed while it wrote: the last line is torn.
    (tmp_path / "samples.jsonl").write_bytes(contents[2][:-9])
    again = answering(step, first=4)
    assert (tmp_path / "samples.jsonl").read_bytes() == contents[1]
    # Killed before the evaluation of step 4 was on record: it is repeated.
    again.on_evaluate(4, {})
    assert (tmp_path / "samples.jsonl").read_bytes() == contents[1]
    again.on_evaluate(6, {})
    assert (tmp_path / "samples.jsonl").read_bytes() == contents[2]
    # Without texts from now on, what is not repeated goes nevertheless.
    answering(step, first=2, texts=("",)).on_evaluate(4, {})
    assert (tmp_path / "samples.jsonl").read_bytes() == contents[0]


def test_lines_that_cannot_be_written_are_written_at_the_end(
    answering, tmp_path, monkeypatch
):
    made = answering(Step())
    with monkeypatch.context() as patch:
        full = mock.Mock(side_effect=OSError("disk full"))
        patch.setattr("builtins.open", full)
        made.on_evaluate(2, {})
        assert not (tmp_path / "samples.jsonl").stat().st_size
    made.on_end()
    assert [line["step"] for line in answers_in(tmp_path)] == [2]


def test_nothing_is_written_without_texts_by_helpers_and_on_a_tpu(
    answering, tmp_path, monkeypatch
):
    for changes in ({"texts": ("",)}, {"texts": ()}, {"eval_file": ""}):
        answering(Step(), **changes).on_evaluate(2, {})
    answering(Step(strategy=object.__new__(Tpu))).on_evaluate(2, {})
    monkeypatch.setattr(context, "helper_name", lambda strategy: "worker-1")
    answering(Step()).on_evaluate(2, {})
    assert not (tmp_path / "samples.jsonl").exists()


def test_a_text_that_is_too_long_is_left_out(answering, tmp_path, caplog):
    long = "the [MASK]" + " the" * 14
    answering(Step(), texts=(long, *TEXTS)).on_evaluate(2, {})
    assert "--sample_texts: one is left out: text: expected at most 16" in caplog.text
    assert "(--max_seq_length), received 18" in caplog.text
    assert [one["text"] for one in answers_in(tmp_path)[0]["answers"]] == list(TEXTS)
