"""The step on JAX trains to the weights of the one on TensorFlow."""

import json

import numpy as np
import pytest

from albert_tf.objectives.pretraining import OBJECTIVES
from tests.training.steps import OF_VECTORS, run_cases

# A second layer is for the sharing of weights, loops, and losses of every layer.
FLAT = {"config": {"num_hidden_layers": 1}}
# Layers have weights of their own.
OWN = {"config": {"depth_rank": 2, "depth_embedding": True}}
HALF = {"precision": "mixed_float16", "calls": [3], "accumulation": 2}
CASES = {
    "lamb": {"accumulation": 2, "answers": True, **OWN},
    # The last bit of a probability may decide which token is drawn.
    "electra": {"learns": "electra", "name": "adamw", "calls": [4, 4], **FLAT},
    "spanbert": {
        **{"learns": "spanbert", "name": "adamw", "depth": "loop_remat"},
        "depths": [1, 2],
        "optimizer": {"learning_rate": 0.003},
    },
    # A masked LM alone is taught the tokens and the states of a wider one.
    "taught": {
        **{"learns": "roberta", "taught": [[1, 2]], "name": "adamw", "calls": [4]},
        **{"accumulation": 2, "answers": True, **FLAT},
        "optimizer": {"learning_rate": 0.003},
    },
    "overflow": {
        **{"precision": "mixed_float16", "calls": [1, 2], "name": "adamw", **FLAT},
        **{"loss_scale": 2.0**24, "optimizer": {"clip_norm": 0}},
    },
}
# After more steps on random texts, rounding decides.
VECTORS = {"name": "adamw", "accumulation": 2, "calls": [4, 2]}
VECTORS["optimizer"] = {"learning_rate": 3e-3}
VECTORS = {name: {**VECTORS, "learns": name} for name in OF_VECTORS}
CASES["layers"] = VECTORS["layers"]
DROPPED = {**VECTORS["vectors"], **FLAT, "dropout": 0.3, "calls": [1]}
BROAD = {
    "vectors": VECTORS["vectors"],
    "electra": {**CASES["electra"], "config": {}, "answers": True},
    "adamw": {
        **{"name": "adamw", "depth": "loop"},
        "optimizer": {"learning_rate": 0.003},
    },
    "packed rows": {
        **{"name": "adamw", "packing": True, "answers": True},
        "optimizer": {"clip_norm": 0},
    },
    "unread pooler": {"pair_weight": 0.0},
    "bfloat16": {**HALF, "precision": "mixed_bfloat16"},
    "float16": HALF,
}
ROUNDING = {"bfloat16": 200, "float16": 40, "overflow": 40}


def complete(case, kind="one_device"):
    """Returns the arguments of a case: 12 steps, from weights of our own."""
    optimizer = {"learning_rate": 0.01, "num_train_steps": 60}
    optimizer |= case.get("optimizer", {})
    given = {"calls": [6, 6], **case, "optimizer": optimizer, "draws": True}
    return {**given, "kind": kind}


@pytest.fixture(scope="module")
def train(run_forked, tmp_path_factory):
    """Trains cases on an engine, on one device or several."""
    pytest.importorskip("jax")

    def run(cases, backend, kind="one_device"):
        cases = {name: complete(case, kind) for name, case in cases.items()}
        folder = tmp_path_factory.mktemp(backend)
        return run_cases(run_forked, folder, cases, KERAS_BACKEND=backend)

    return run


@pytest.fixture(scope="module")
def expected(train):
    """What the cases train to on TensorFlow."""
    return train(CASES, "tensorflow")


@pytest.fixture(scope="module")
def found(train):
    """What they train to on JAX, on several devices; LAMB with divided slots."""
    more = {"lamb": {**CASES["lamb"], "shard_optimizer": True}}
    more["dropped"] = {**DROPPED, "undivided": True}
    return train(CASES | more, "jax", "mirrored")


def assert_same_training(found, expected, case):
    assert sum("weight/" in name for name in expected) > 20
    for name, value in expected.items():
        # Its gradient is zero except for rounding, which the optimizer amplifies.
        if name.endswith(("key/bias", "key_bias")):
            continue
        if name in ("left", "untrained"):
            assert found[name].tolist() == value.tolist()
            continue
        error = 5e-5 if name.startswith(("weight/", "average/")) else 5e-4
        error *= ROUNDING.get(case, 1)
        np.testing.assert_allclose(found[name], value, error, error, err_msg=name)
    left = expected["left"].tolist()
    assert bool(left) == (case in ("unread pooler", "spanbert", "overflow")), left


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_both_engines_train_to_the_same_weights(found, expected, case):
    assert_same_training(found[case], expected[case], case)


@pytest.mark.slow
def test_micro_batches_drop_the_same_twice(found):
    (norm,), right = found["dropped"]["norms"], found["dropped"]["undivided"]
    assert norm == pytest.approx(float(right), rel=1e-5)


@pytest.mark.slow
def test_an_overflow_changes_nothing_but_the_scale(found):
    found = found["overflow"]
    assert len(found["left"]) == sum(name.startswith("weight/") for name in found)
    assert found["scales"].tolist() == [2.0**24, 2.0**23, 2.0**22]
    assert found["skipped"].tolist() == [1, 3]


@pytest.mark.broad
def test_one_device_and_other_cases(train):
    cases = CASES | BROAD
    cases = {name: {"calls": [20, 20, 10], **case} for name, case in cases.items()}
    found, expected = train(cases, "jax"), train(cases, "tensorflow")
    for name in cases:
        assert_same_training(found[name], expected[name], name)


def test_every_objective_has_a_case():
    covered = {case.get("learns", "albert") for case in CASES.values()}
    # The others have the terms and the model of one of these.
    others = {"bert", "vectors"}
    assert covered | others == set(OBJECTIVES) | set(OF_VECTORS)


DEPTHS = """
import json
import jax, numpy as np
from albert_tf import AlbertConfig, create_optimizer
from albert_tf.models.masked_lm import AlbertPretrainer
from albert_tf.objectives.pretraining import ALBERT
from albert_tf.training.jax.update import AXIS, Update
from benchmarks.rows import random_batch

jax.config.update("jax_disable_most_optimizations", True)
mesh = jax.sharding.Mesh(np.array(jax.devices()), (AXIS,))
found = {}
for form, depths in (("unrolled", [12]), ("loop_remat", [4, 12])):
    for layers in depths:
        config = AlbertConfig(
            vocab_size=53, embedding_size=8, hidden_size=32, num_hidden_layers=layers,
            num_attention_heads=2, intermediate_size=64, max_position_embeddings=64,
        )
        model = AlbertPretrainer(config, seed=3)
        optimizer = create_optimizer("adamw", learning_rate=0.01, num_train_steps=9)
        update = Update(model, ALBERT, optimizer, mesh, depth=form)
        batch = update.batch_specs(random_batch(config, 4, 64))
        program = update.compiled().lower(update.state_specs(), batch)
        lines, memory = len(program.as_text().splitlines()), 0
        if layers == 12:
            memory = program.compile().memory_analysis().temp_size_in_bytes
        found[f"{form} {layers}"] = lines, memory
print(json.dumps(found))
"""


@pytest.mark.slow
def test_loops_are_as_long_for_any_depth_and_keep_little(run_forked):
    pytest.importorskip("jax")
    done = run_forked("-c", DEPTHS, KERAS_BACKEND="jax")
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout)
    lines = [found[f"loop_remat {layers}"][0] for layers in (4, 12)]
    assert lines[1] <= 1.01 * lines[0]
    assert found["unrolled 12"][0] > 2 * lines[1]
    memory = {form: found[f"{form} 12"][1] for form in ("unrolled", "loop_remat")}
    assert memory["unrolled"] > 5 * memory["loop_remat"]
