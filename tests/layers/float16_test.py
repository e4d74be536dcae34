"""Near 65,504, float16's largest number, values and gradients are those of float64."""

import importlib.util
import json

import pytest

PROGRAM = """
import json
import keras
import numpy as np
from keras import ops
from albert_tf.config import ACTIVATIONS, AlbertConfig
from albert_tf.layers.attention import SelfAttention
from albert_tf.layers.gradients import LayerNorm, get_activation

backend = keras.backend.backend()
TRUTH = "float64" if backend == "tensorflow" else "float32"

def both(function, x, upstream):
    if backend == "tensorflow":
        import tensorflow as tf
        x = tf.constant(x)
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = function(x)
        return y, tape.gradient(y, x, tf.constant(upstream))
    if backend == "jax":
        import jax
        y, pull = jax.vjp(function, ops.convert_to_tensor(x))
        return y, pull(ops.convert_to_tensor(upstream))[0]
    x = ops.convert_to_tensor(x).requires_grad_()
    y = function(x)
    y.backward(ops.convert_to_tensor(upstream))
    return y, x.grad

def errors(make, x, upstream):
    # The largest errors, relative to the largest number of a row, and whether all are
    # finite.
    found = []
    for dtype, name in (("float16", "mixed_float16"), (TRUTH, TRUTH)):
        given = (values.astype(dtype) for values in (x, upstream))
        found.append([ops.convert_to_numpy(v) for v in both(make(name), *given)])
    lines = []
    for half, truth in zip(*found):
        assert half.dtype == "float16", half.dtype
        error = np.abs(half.astype("float64") - truth)
        scale = np.maximum(np.abs(truth).max(-1, keepdims=True), 1.0)
        lines.append([bool(np.isfinite(half).all()), float((error / scale).max())])
    return lines

rng = np.random.default_rng(0)
LIMIT = 65504.0
sizes = [LIMIT, 4e4, 4096, 256, 255, 20, 5, 1, 0.1, 6e-5, 6e-8, 0]
x = np.array([[size, -size] for size in sizes]).reshape(-1, 1).astype("float16")
upstream = np.linspace(2, -1, len(x))[:, None].astype("float16")
found = {}
for name in ACTIVATIONS:
    found[name] = errors(lambda _: get_activation(name), x, upstream)

rows = rng.uniform(-LIMIT, LIMIT, (6, 24))
rows[0] = [LIMIT, -LIMIT] * 12
rows[1] = [LIMIT] * 23 + [-LIMIT]
rows[2] = [LIMIT] + [0] * 23
rows[3:5] *= 1e-7
rows = rows.astype("float16")
upstream = rng.normal(size=rows.shape).astype("float16")

def norm(dtype):
    layer = LayerNorm(1e-12, dtype=dtype)
    layer.build((None, 24))
    return layer

found["layer norm"] = errors(norm, rows, upstream)

config = AlbertConfig(
    vocab_size=9, embedding_size=4, hidden_size=16, num_attention_heads=1,
    num_hidden_layers=1, intermediate_size=8,
)

def attention(dtype):
    layer = SelfAttention(config, dtype=dtype)
    layer.build()
    one, zero = np.eye(16), np.zeros(16)
    layer.set_weights([w for _ in range(4) for w in (one, zero)])
    return lambda x: layer(x, bias=ops.convert_to_tensor(mask))[0]

# Scores of up to 16 * 127 ** 2 / 4 = 64,516; a masked token in the second row.
x = rng.uniform(-2, 2, (2, 5, 16))
x[:, 0], x[:, 1], x[1, 2] = 127, -127, 40
mask = np.zeros((2, 1, 1, 5), "float32")
mask[1, ..., 3] = -10000
x = x.astype("float16")
upstream = rng.normal(size=x.shape).astype("float16") / 64
found["softmax"] = errors(attention, x, upstream)
print(json.dumps(found))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "backend",
    [
        "tensorflow",
        pytest.param("jax", marks=pytest.mark.backends),
        pytest.param("torch", marks=pytest.mark.backends),
    ],
)
def test_values_and_gradients_up_to_the_limit(backend, run_python, run_forked):
    if importlib.util.find_spec(backend) is None:
        pytest.skip(f"{backend} is not installed")
    run = run_forked if backend == "tensorflow" else run_python
    done = run("-c", PROGRAM, KERAS_BACKEND=backend)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert len(found) == 8
    for name, lines in found.items():
        for what, (finite, error) in zip(("value", "gradient"), lines, strict=True):
            # A few roundings to 11 bits.
            assert finite and error < 3e-3, (name, what, error)
