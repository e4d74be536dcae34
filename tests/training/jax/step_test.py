"""The step on JAX trains to the weights of the one on TensorFlow."""

import json

import numpy as np
import pytest

from albert_tf.objectives.pretraining import OBJECTIVES

# One text for both: a process has one engine.
PROGRAM = r"""
import json, sys
import keras
import numpy as np
import tensorflow as tf
from albert_tf import AlbertConfig, create_optimizer
from albert_tf.heads import find
from albert_tf.models.base import weight_names
from albert_tf.objectives.pretraining import OBJECTIVES
from albert_tf.training.engine import (
    TrainStep, bring_home, create_strategy, distribute,
)

out, kind, devices, cases = sys.argv[1], *sys.argv[2:4], json.loads(sys.argv[4])
strategy = create_strategy(kind, num_devices=int(devices) or None)
rng = np.random.default_rng(0)
rows, length, predictions = 16 * 5, 7, 3
weights = np.ones((rows, predictions), "float32")
weights[::3, -1] = 0  # devices have different numbers of predictions
batch = {
    "token_ids": rng.integers(0, 53, (rows, length)).astype("int32"),
    "segment_ids": rng.integers(0, 2, (rows, length)).astype("int32"),
    "padding_mask": np.tile(np.arange(length) < 6, (rows, 1)).astype("int32"),
    "mask_positions": np.tile([[1, 2, 4]], (rows, 1)).astype("int32"),
    "mask_ids": rng.integers(0, 53, (rows, predictions)).astype("int32"),
    "mask_weights": weights,
    "sample_draws": rng.random((rows, predictions)).astype("float32"),
    "sentence_order_labels": rng.integers(0, 2, rows).astype("int32"),
    "sentence_order_weights": np.ones(rows, "float32"),
}
packed = {
    **batch,
    "pack_ids": np.tile([[1, 1, 1, 2, 2, 2, 0]], (rows, 1)).astype("int32"),
    "position_ids": np.tile([[0, 1, 2, 0, 1, 2, 0]], (rows, 1)).astype("int32"),
    "sentence_order_labels": rng.integers(0, 2, (rows, 2)).astype("int32"),
    "sentence_order_weights": np.ones((rows, 2), "float32"),
    "cls_positions": np.tile([[0, 3]], (rows, 1)).astype("int32"),
}

def run(
    learns="albert", name="lamb", dropout=0.0, packing=False, clip_norm=0.5,
    ema_decay=0.0, calls=(20, 20, 10), precision="float32", pair_weight=1.0,
    loss_scale=None, **options
):
    objective = OBJECTIVES[learns].with_pair_weight(pair_weight)
    config = AlbertConfig(
        vocab_size=53, embedding_size=8, hidden_size=16, num_hidden_layers=3,
        num_attention_heads=2, intermediate_size=20, max_position_embeddings=16,
        hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout,
    )
    with strategy.scope():
        model = find(objective.head).load_class()(config, seed=3, dtype=precision)
        optimizer = create_optimizer(
            name, learning_rate=0.01, num_train_steps=60, num_warmup_steps=2,
            clip_norm=clip_norm, ema_decay=ema_decay,
        )
    own = np.random.default_rng(1)  # backends draw other initial values
    for variable in weight_names(model).values():
        drawn = own.normal(0, 0.2, variable.shape)
        variable.assign(drawn + ("gamma" in variable.path))
    model.mark_untrained()
    step = TrainStep(model, objective, optimizer, strategy, seed=1, **options)
    first = {k: np.array(v) for k, v in weight_names(model).items()}
    def make(pipelines, pipeline):
        given = packed if packing else batch
        return tf.data.Dataset.from_tensor_slices(given).batch(16, True).repeat()
    iterator = iter(distribute(strategy, make))
    if loss_scale:
        optimizer.loss_scale.value.assign(loss_scale)
    sums, losses, norms, scales = None, [], [], []
    for count in calls:
        sums = step.train(iterator, count, sums)
        losses += sums["losses"].tolist()
        # Whether an overflow is infinite or no number is up to the engine.
        norms += np.nan_to_num(sums["grad_norms"], nan=-1, posinf=-1).tolist()
        scales += [*sums.get("loss_scales", ()), sums.get("skipped_steps", 0)]
    found = {f"weight/{k}": np.array(v) for k, v in weight_names(model).items()}
    left = [k for k in first if np.array_equal(first[k], found[f"weight/{k}"])]
    if ema_decay:
        for variable in model.trainable_variables:
            average = optimizer.slot(variable, "average")
            found[f"average/{variable.path}"] = np.array(average)
    one = next(iterator)
    evaluated = {k: float(v) for k, v in step.evaluate(one).items()}
    given = {k: v[:8] for k, v in batch.items()}
    outputs = step.predict(given)
    if isinstance(outputs, dict):
        outputs = outputs["mlm_logits"]
    bring_home(strategy, model)
    for name, variable in weight_names(model).items():
        assert keras.backend.backend() != "jax" or len(variable.value.devices()) == 1
        np.testing.assert_array_equal(variable, found[f"weight/{name}"])
    numbers = {
        "losses": losses, "norms": norms, "rate": float(sums["learning_rate"]),
        "sums": [float(sums[k]) for k in step.sum_names],
        "scales": scales, "ratios": [*sums.get("trust_ratios", {}).values()],
        "evaluated": [evaluated[k] for k in step.sum_names], "outputs": outputs,
    }
    return {**found, **{f"number/{k}": np.array(v) for k, v in numbers.items()},
            "left": np.array(sorted(left))}

found = {}
for number, case in cases.items():
    found |= {f"{number}:{k}": v for k, v in run(**case).items()}
np.savez(out, **found)
"""

CASES = {
    "lamb": {"accumulation": 2},
    "adamw": {"name": "adamw", "ema_decay": 0.9, "depth": "loop_remat"},
    "packed rows": {"name": "adamw", "packing": True, "clip_norm": 0},
    "unread pooler": {"pair_weight": 0.0},
    # The last bit of a probability may decide which token is drawn.
    "electra": {"learns": "electra", "name": "adamw", "calls": [4, 4]},
    "spanbert": {"learns": "spanbert", "depth": "loop"},
    "bfloat16": {"precision": "mixed_bfloat16", "calls": [3]},
    "float16": {"precision": "mixed_float16", "calls": [3], "accumulation": 2},
    "overflow": {
        **{"precision": "mixed_float16", "calls": [1, 2], "name": "adamw"},
        **{"loss_scale": 2.0**24, "ema_decay": 0.9, "clip_norm": 0},
    },
}
SHARDED = {"lamb": {**CASES["lamb"], "shard_optimizer": True}}
# Programs of a few operations are compiled for hours otherwise.
QUICK = {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}


@pytest.fixture(scope="module")
def trained(run_python, tmp_path_factory):
    """Returns what the cases train to on devices of an engine; each once."""
    pytest.importorskip("jax")
    folder, known = tmp_path_factory.mktemp("engines"), {}

    def run(backend, kind="one_device", devices=0, cases=None):
        key = backend, kind, devices, json.dumps(cases)
        if key not in known:
            path = folder / f"{len(known)}.npz"
            given = PROGRAM, path, kind, str(devices), json.dumps(cases or CASES)
            done = run_python("-c", *given, KERAS_BACKEND=backend, **QUICK)
            assert done.returncode == 0, done.stderr[-3000:]
            known[key] = dict(np.load(path))
        return known[key]

    return run


def assert_same(found, expected, case, rounding=1.0):
    names = [name for name in expected if name.startswith(f"{case}:")]
    assert sum("weight/" in name for name in names) > 20
    for name in names:
        # Its gradient is zero except for rounding, which the optimizer amplifies.
        if name.endswith("key/bias"):
            continue
        if name.endswith(":left"):
            assert found[name].tolist() == expected[name].tolist()
            continue
        error = 5e-5 if "weight/" in name or "average/" in name else 5e-4
        np.testing.assert_allclose(
            *(found[name], expected[name]),
            rtol=rounding * error,
            atol=rounding * error,
            err_msg=name,
        )


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("kind, devices", [("one_device", 0), ("mirrored", 8)])
def test_both_engines_train_to_the_same_weights(trained, case, kind, devices):
    found, expected = trained("jax", kind, devices), trained("tensorflow")
    rounding = {"bfloat16": 200, "float16": 40, "overflow": 40}
    assert_same(found, expected, case, rounding.get(case, 1))
    left = expected[f"{case}:left"].tolist()
    assert bool(left) == (case in ("unread pooler", "spanbert", "overflow")), left
    if case == "overflow":  # nothing has changed but the scale
        assert len(left) == sum(name.startswith(f"{case}:weight/") for name in found)
        scales = found[f"{case}:number/scales"].tolist()
        assert scales == [2.0**24, 1, 2.0**23, 2.0**22, 3]


@pytest.mark.slow
def test_divided_slots_train_to_the_same_weights(trained):
    found = trained("jax", "mirrored", 8, SHARDED)
    assert_same(found, trained("tensorflow"), "lamb")


def test_every_objective_has_a_case():
    covered = {case.get("learns", "albert") for case in CASES.values()}
    # The others have the terms and the model of one of these.
    assert covered | {"bert", "roberta"} == set(OBJECTIVES)


DEPTHS = """
import json
import jax, numpy as np
from albert_tf import AlbertConfig, create_optimizer
from albert_tf.models.masked_lm import AlbertPretrainer
from albert_tf.objectives.pretraining import ALBERT
from albert_tf.training.jax.update import AXIS, Update
from benchmarks.rows import random_batch

mesh = jax.sharding.Mesh(np.array(jax.devices()), (AXIS,))
found = {}
for form in ("unrolled", "loop", "loop_remat"):
    for layers in (6, 24):
        config = AlbertConfig(
            vocab_size=53, embedding_size=8, hidden_size=32, num_hidden_layers=layers,
            num_attention_heads=2, intermediate_size=64, max_position_embeddings=64,
        )
        model = AlbertPretrainer(config, seed=3)
        optimizer = create_optimizer("lamb", learning_rate=0.01, num_train_steps=9)
        update = Update(model, ALBERT, optimizer, mesh, depth=form)
        batch = update.batch_specs(random_batch(config, 4, 64))
        program = update.compiled().lower(update.state_specs(), batch)
        memory = program.compile().memory_analysis().temp_size_in_bytes
        found[f"{form} {layers}"] = len(program.as_text().splitlines()), memory
print(json.dumps(found))
"""


@pytest.mark.slow
def test_loops_are_as_long_for_any_depth_and_keep_little(run_python):
    pytest.importorskip("jax")
    done = run_python("-c", DEPTHS, KERAS_BACKEND="jax", **QUICK)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout)
    for form, least, most in (("unrolled", 2, 4), ("loop", 1, 1), ("loop_remat", 1, 1)):
        lines = [found[f"{form} {layers}"][0] for layers in (6, 24)]
        assert least <= lines[1] / lines[0] <= 1.01 * most, form
    memory = {form: found[f"{form} 24"][1] for form in ("unrolled", "loop_remat")}
    assert memory["unrolled"] > 5 * memory["loop_remat"]
