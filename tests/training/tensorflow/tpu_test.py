"""The step is one that a TPU can compile: static shapes, nothing on the host.

Traced, not run: there is no TPU. See `fake_tpu`.
"""

import itertools
import json
from collections import Counter

import numpy as np
import pytest

from tests.data.synthetic_records import make_example, write
from tests.training.tensorflow.fake_tpu import REPLICAS

BROAD = {
    f"{optimizer}, {accumulation} parts, {'packed' if packing else 'not packed'}": {
        "optimizer": optimizer,
        "accumulation": accumulation,
        "packing": packing,
    }
    for optimizer, accumulation, packing in itertools.product(
        ("lamb", "adamw"), (1, 2), (False, True)
    )
}
OTHERS = {
    "float32": {"dtype": "float32", "dropout": 0.0},
    "not clipped": {"clip_norm": 0.0},
    "jit_compile": {"jit_compile": True},
    **{
        f"averages, {name}": {"ema_decay": 0.9, "learning_rate_schedule": name}
        for name in ("linear", "cosine", "trapezoid")
    },
}
# Heads are fine-tuned in rows of one length (`finetune --distribution=tpu`).
HEADS = {
    head: {"head": head, "dtype": "float32", "optimizer": "adamw"}
    for head in ("text_classifier", "question_answering", "token_classifier")
}
MORE_HEADS = {
    f"{head}, {accumulation} parts": {
        **{"head": head, "accumulation": accumulation, "ema_decay": 0.9},
        "optimizer": "adamw",
    }
    for head in (*HEADS, "multiple_choice")
    for accumulation in (1, 2)
}
MORE_HEADS["squad2"] = {"head": "beam_question_answering", "optimizer": "adamw"}
LENGTHS = {"head": "text_classifier", "layers": 1, "fixed_length": False}
# What the checks must find.
DYNAMIC = {
    name: {"dynamic": name, "layers": 1, "only_training": True}
    for name in ("boolean_mask", "numpy_function")
}


@pytest.fixture(scope="module")
def trace(tmp_path_factory, run_forked):
    rng = np.random.default_rng(2)
    rows = [make_example(rng, length) for length in rng.integers(7, 29, 37)]
    records = write(tmp_path_factory.mktemp("records"), rows)

    def run(cases):
        module = "tests.training.tensorflow.fake_tpu"
        done = run_forked("-m", module, records, json.dumps(cases), timeout=1800)
        assert done.returncode == 0, done.stderr[-3000:]
        return json.loads(done.stdout.splitlines()[-1])

    return run


@pytest.fixture(scope="module")
def broad(trace):
    return trace(BROAD | OTHERS | DYNAMIC | MORE_HEADS | {"lengths": LENGTHS})


def check(found, variables):
    """Checks what was found in a graph that updates so many variables."""
    assert found["ops"]["TPUReplicateMetadata"] == 1
    assert found["on_tpu"]["MatMul"] > 10
    # All gradients, and the weights of the loss.
    assert found["on_tpu"].get("CrossReplicaSum", 0) == (variables and variables + 1)
    assert not found["forbidden"] and not found["unknown"]
    # A TPU compiles the whole replica, whatever jit_compile says.
    assert not {"PartitionedCall", "StatefulPartitionedCall"} & found["on_tpu"].keys()
    # The host counts the steps of a call and collects loss and norm of each; nothing
    # else there is of unknown length.
    types = {label.split()[0] for label in found["host"]}
    assert types <= {"Range", "TensorListStack", "Identity"}


@pytest.mark.slow
def test_a_tpu_can_compile_the_step(trace):
    case = {"dtype": "float32", "layers": 1, "dropout": 0.0, "only_training": True}
    cases = {"plain": case, "averages": case | OTHERS["averages, cosine"]}
    plain, averages = (one["train"] for one in trace(cases).values())
    check(plain, variables=32)
    check(averages, variables=32)
    # The TPU updates the averages, too.
    more = Counter(averages["on_tpu"]) - Counter(plain["on_tpu"])
    updates = sum(n for name, n in more.items() if name.startswith("Assign"))
    assert updates == 32


def check_head(found):
    check(found["train"], found["variables"])
    check(found["predict"], variables=0)
    assert found["train"]["ops"]["IteratorGetNext"] == REPLICAS


@pytest.mark.slow
def test_a_tpu_can_compile_the_steps_of_fine_tuning(trace):
    for found in trace(HEADS).values():
        check_head(found)


@pytest.mark.broad
@pytest.mark.parametrize("case", MORE_HEADS)
def test_a_tpu_can_compile_the_steps_of_every_head(broad, case):
    check_head(broad[case])


@pytest.mark.broad
@pytest.mark.parametrize("case", BROAD | OTHERS)
def test_a_tpu_can_compile_every_kind_of_step(broad, case):
    check(broad[case]["train"], variables=32)
    check(broad[case]["evaluate"], variables=0)
    # Both replicas take their share of a batch from the host.
    assert broad[case]["train"]["ops"]["IteratorGetNext"] == REPLICAS


@pytest.mark.broad
def test_the_checks_find_what_a_tpu_cannot_compile(broad):
    masked, on_host = (broad[name]["train"] for name in DYNAMIC)
    assert any(label.startswith("Where") for label in masked["forbidden"])
    assert masked["unknown"]
    assert any(label.startswith("PyFunc") for label in on_host["forbidden"])
    assert broad["lengths"]["train"]["unknown"]
