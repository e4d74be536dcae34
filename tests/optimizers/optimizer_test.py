"""Updates, exclusions, serialization, and use in compile and fit."""

import json
import types

import keras
import numpy as np
import pytest
import tensorflow as tf

from albert_tf.errors import UsageError
from albert_tf.optimizers.adamw import AdamStyleOptimizer, AdamW, canonical_path
from albert_tf.optimizers.create import create_optimizer
from albert_tf.optimizers.lamb import Lamb
from albert_tf.optimizers.schedules import WarmupPolynomialDecay
from tests.tiny import make_model

MULTIPLIERS = "learning_rate_multipliers"
BETA_1, BETA_2, EPSILON, DECAY = 0.9, 0.999, 1e-6, 0.01


def reference_step(name, weights, gradients, moments, rate, clip, multipliers=None):
    """One step in float64 numpy, written from the original's description.

    Returns the trust ratios of the variables that have one.
    """
    norm = np.sqrt(sum((g**2).sum() for g in gradients.values()))
    ratios = []
    for path, weight in weights.items():
        gradient = gradients[path] * min(1.0, clip / norm)
        m, v = moments.setdefault(path, (0.0, 0.0))
        m = BETA_1 * m + (1 - BETA_1) * gradient
        v = BETA_2 * v + (1 - BETA_2) * gradient**2
        moments[path] = m, v
        update = m / (np.sqrt(v) + EPSILON)
        if "bias" not in path:
            update = update + DECAY * weight
            norms = np.linalg.norm(weight), np.linalg.norm(update)
            ratios.append(norms[0] / norms[1] if min(norms) > 0 else 1.0)
            update = update * (ratios[-1] if name == "lamb" else 1)
        weights[path] = weight - rate * (multipliers or {}).get(path, 1.0) * update
    return ratios


@pytest.mark.parametrize("multipliers", [None, {"kernel": 0.25, "zeros": 3.0}])
@pytest.mark.parametrize("name", ["lamb", "adamw"])
def test_steps_equal_numpy(name, multipliers):
    rng = np.random.default_rng(3)
    shapes = {"kernel": (5, 3), "bias": (3,), "zeros": (2, 7)}
    weights = {p: rng.normal(size=s) for p, s in shapes.items()}
    weights["zeros"] *= 0  # Norm 0: trust ratio 1.
    variables = [keras.Variable(w, name=p) for p, w in weights.items()]
    options = {"clip_norm": 0.7, "learning_rate_multipliers": multipliers}
    optimizer = create_optimizer(name, learning_rate=0.1, num_train_steps=8, **options)
    optimizer.build(variables)
    if name == "lamb":
        assert [v.name for v in optimizer.adapted_variables] == ["kernel", "zeros"]
        assert not np.any(optimizer.last_trust_ratios)
    moments = {}
    for step in range(5):
        scale = [3.0, 0.01, 1.0, 1.0, 5.0][step]  # Clipped and not clipped.
        gradients = {p: scale * rng.normal(size=s) for p, s in shapes.items()}
        rate = 0.1 * (1 - step / 8)
        state = (weights, gradients, moments, rate, 0.7, multipliers)
        ratios = reference_step(name, *state)
        tensors = [tf.constant(g, tf.float32) for g in gradients.values()]
        optimizer.apply(tensors, variables)
        if name == "lamb":
            found = optimizer.last_trust_ratios
            np.testing.assert_allclose(found, ratios, rtol=2e-5, atol=2e-6)
    for variable, weight in zip(variables, weights.values(), strict=True):
        np.testing.assert_allclose(variable, weight, rtol=2e-5, atol=2e-6)
    if name == "lamb":  # of some variables: the others have no ratio of this step
        optimizer.apply(tensors[:1], variables[:1])
        assert (np.array(optimizer.last_trust_ratios) > 0).tolist() == [True, False]


def test_the_first_expression_that_is_found_sets_the_multiplier():
    variables = [keras.Variable(np.ones(2), name=n) for n in ("bias", "kernel", "x")]
    optimizer = AdamW(0.1, learning_rate_multipliers={"^k": 0.5, "k|b": 0.25})
    optimizer.build(variables)
    assert optimizer._rates == (0.25, 0.5, 1.0)


def test_zero_gradient_and_zero_weight_stay_finite():
    variable = keras.Variable(np.zeros((3, 2), "float32"), name="kernel")
    optimizer = Lamb(0.1)
    optimizer.apply([tf.zeros((3, 2))], [variable])
    np.testing.assert_array_equal(variable, np.zeros((3, 2)))
    assert float(optimizer.last_global_norm) == 0.0


def test_an_infinite_gradient_is_loud():
    variables = [keras.Variable(np.ones(2, "f"), name=n) for n in ("kernel", "other")]
    AdamW(0.1).apply([tf.constant([1.0, np.inf]), tf.ones(2)], variables)
    assert np.isnan(variables[1].numpy()).all()


@pytest.mark.parametrize(
    "make",
    [AdamW, Lamb, lambda rate: AdamW(rate, loss_scale_factor=8.0)],
    ids=["adamw", "lamb", "adamw_scaled"],
)
def test_repeated_ids_equal_the_dense_gradient(make):
    """Keras's own Adam is 45 times off at the first step here (segment embedding)."""
    ids = np.zeros((32, 128), "int32")
    ids[:, 64:] = 1
    values = []
    for dense in (False, True):
        table = keras.Variable(np.full((2, 4), 0.5, "float32"), name="table")
        optimizer = make(0.01)
        history = []
        for _ in range(4):
            with tf.GradientTape() as tape:
                value = table.value
                rows = tf.one_hot(ids, 2) @ value if dense else tf.gather(value, ids)
                loss = optimizer.scale_loss(tf.reduce_mean((rows - 1.0) ** 2))
            (gradient,) = tape.gradient(loss, [table.value])
            assert isinstance(gradient, tf.IndexedSlices) != dense
            optimizer.apply([gradient], [table])
            history.append(table.numpy())
        values.append((history, float(optimizer.last_global_norm)))
    np.testing.assert_allclose(values[0][0], values[1][0], rtol=1e-6)
    # 4096 float32 terms in another order; the norm of the rows is 45 times smaller.
    assert values[0][1] == pytest.approx(values[1][1], rel=1e-4)


def test_mixed_float16_with_loss_scale():
    """The wrapper unscales before our clipping and skips a step that overflowed."""
    variable = keras.Variable(np.ones((3, 2), "float32"), name="kernel")
    plain = keras.Variable(np.ones((3, 2), "float32"), name="kernel")
    wrapped = keras.optimizers.LossScaleOptimizer(Lamb(0.1), initial_scale=1024.0)
    optimizer = Lamb(0.1)
    gradient = tf.constant(np.random.default_rng(5).normal(size=(3, 2)), tf.float32)

    @tf.function
    def step(g):
        wrapped.apply([g], [variable])

    step(gradient * 1024.0)
    optimizer.apply([gradient], [plain])
    np.testing.assert_allclose(variable, plain, rtol=1e-6)
    before = variable.numpy()
    step(gradient * np.inf)
    np.testing.assert_array_equal(variable, before)
    assert int(wrapped.iterations.numpy()) == 1


@pytest.mark.parametrize("name", ["lamb", "adamw"])
def test_config_round_trip(name):
    arguments = dict(
        learning_rate=0.02,
        num_train_steps=21,
        num_warmup_steps=4,
        weight_decay_rate=0.03,
        clip_norm=0.5,
        beta_1=0.8,
        epsilon=1e-5,
        exclude_from_weight_decay=["bias", "^x"],
        learning_rate_multipliers={"^b/": 0.5, "a": 0.25},
        step_offset=1,
        ema_decay=0.99,
    )
    if name == "lamb":
        arguments["exclude_from_layer_adaptation"] = ["gamma"]
    optimizer = create_optimizer(name, **arguments)
    config = json.loads(json.dumps(keras.optimizers.serialize(optimizer)))
    again = keras.optimizers.deserialize(config)
    assert type(again) is type(optimizer)
    assert again.get_config() == optimizer.get_config()
    assert type(optimizer).from_config(optimizer.get_config()).clip_norm == 0.5


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "lamp"}, "optimizer must be one of"),
        ({"weight_decay_rate": -1}, "weight_decay_rate must be"),
        ({"beta_1": 1.0}, "beta_1 must be"),
        ({"beta_2": -0.1}, "beta_2 must be"),
        ({"epsilon": 0.0}, "epsilon must be"),
        *(({"ema_decay": v}, "ema_decay must be .*received") for v in (1.0, -0.1)),
        *(({"clip_norm": v}, "clip_norm must be") for v in (-1.0, float("nan"))),
        ({"exclude_from_weight_decay": ["("]}, "exclude_from_weight_decay must hold"),
        ({MULTIPLIERS: {"(": 1}}, f"{MULTIPLIERS} must hold"),
        ({MULTIPLIERS: {"a": -1}}, f"{MULTIPLIERS} must be"),
    ],
)
def test_bad_arguments_are_named(arguments, message):
    good = {"name": "lamb", "learning_rate": 0.1, "num_train_steps": 9}
    with pytest.raises(UsageError, match=message):
        create_optimizer(**{**good, **arguments})


def test_misuse_is_named():
    optimizer = Lamb(0.1)
    variable = keras.Variable(np.ones(2), name="kernel")
    with pytest.raises(UsageError, match="none before build"):
        optimizer.slot(variable, "m")
    optimizer.build([variable])
    with pytest.raises(UsageError, match="received 'velocity'"):
        optimizer.slot(variable, "velocity")
    with pytest.raises(UsageError, match="constructor"):
        optimizer.exclude_from_weight_decay(var_names=["bias"])


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("bias_study/", "sop_head/kernel"),
        ("bias_study/", "mlm_head/dense/kernel"),
        ("my_backbone/", "embeddings/layer_norm/gamma"),
        *(("", name) for name in ("backbone/pooler/kernel", "layer_norm/gamma", "x")),
    ],
)
def test_names_leave_out_the_name_of_the_model(model, name):
    assert canonical_path(types.SimpleNamespace(path=model + name)) == name


@pytest.mark.parametrize("caller", ["apply", "_backend_update_step"])
def test_keras_must_call_what_is_overridden(caller, monkeypatch):
    monkeypatch.setattr(keras.optimizers.Optimizer, caller, lambda *args: None)
    with pytest.raises(RuntimeError, match=f"Optimizer.{caller} does not call _"):
        Lamb(0.1)


def test_exclusions_are_arguments():
    variables = [keras.Variable(np.ones(3), name=n) for n in ("a_kernel", "b_kernel")]
    for names, decays in ((["^a_"], [False, True]), ("", [True, True])):
        given = {"exclude_from_layer_adaptation": "^b_", "num_train_steps": 9}
        given |= {"exclude_from_weight_decay": names, "learning_rate": 0.1}
        optimizer = create_optimizer("lamb", **given)
        optimizer.build(variables)
        assert [optimizer.uses_weight_decay(v) for v in variables] == decays
        assert [optimizer.uses_layer_adaptation(v) for v in variables] == [True, False]


STEPS = 9


def train(name, left_out=(), **arguments):
    """Returns the weights after every update, the optimizer and its variables.

    In the steps that are `left_out`, the second variable has no gradient.
    """
    rng = np.random.default_rng(4)
    variables = [
        keras.Variable(rng.normal(size=shape), dtype="float32", name=path)
        for shape, path in (((3, 5), "kernel"), ((5,), "bias"))
    ]
    optimizer = create_optimizer(
        name, learning_rate=0.1, num_train_steps=2 * STEPS, **arguments
    )
    optimizer.build(variables)
    history = []
    for step in range(STEPS):
        read = variables[:1] if step in left_out else variables
        gradients = [rng.normal(size=v.shape).astype("float32") for v in read]
        gradients = [keras.ops.convert_to_tensor(g) for g in gradients]
        optimizer.apply(gradients, read)
        history.append([v.numpy() for v in variables])
    return history, optimizer, variables


@pytest.mark.parametrize(
    ("name", "decay", "left_out"),
    [("lamb", 0.5, ()), ("adamw", 0.9999, ()), ("lamb", 0.8, (0, 2, 3, 7))],
)
def test_average_is_the_weighted_mean_of_the_weights(name, decay, left_out):
    history, optimizer, variables = train(name, left_out, ema_decay=decay)
    parts = decay ** np.arange(STEPS - 1, -1, -1, dtype="float64")
    for index, variable in enumerate(variables):
        past = np.stack([weights[index] for weights in history]).astype("float64")
        expected = np.tensordot(parts, past, 1) / parts.sum()
        found = optimizer.slot(variable, "average").numpy()
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
        assert np.abs(found - variable.numpy()).max() > 1e-3


@pytest.mark.parametrize("name", ["lamb", "adamw"])
def test_the_updates_are_those_without_an_average(name):
    plain, optimizer, variables = train(name)
    averaged, *_ = train(name, ema_decay=0.9)
    for one, other in zip(plain[-1], averaged[-1], strict=True):
        np.testing.assert_array_equal(one, other)
    # And nothing is kept that nobody asked for.
    assert not [v for v in optimizer.variables if "average" in v.path]
    with pytest.raises(UsageError, match="slot must be one of m, v, received"):
        optimizer.slot(variables[0], "average")


@pytest.mark.parametrize("fused", [True, False])
def test_bias_correction_is_that_of_keras(fused, monkeypatch):
    arguments = {"beta_2": 0.98, "epsilon": 1e-3, "clip_norm": 0}
    if not fused:
        monkeypatch.setattr(AdamW, "_update", AdamStyleOptimizer._update)
    every = {"bias_correction": True, "exclude_from_weight_decay": ()}
    history, *_ = train("adamw", **every, **arguments)

    def keras_adam(name, learning_rate, **kwargs):
        rate = WarmupPolynomialDecay(learning_rate, 2 * STEPS)
        del arguments["clip_norm"]
        return keras.optimizers.AdamW(rate, weight_decay=0.01, **arguments)

    monkeypatch.setitem(globals(), "create_optimizer", keras_adam)
    expected, *_ = train("adamw")
    for one, other in zip(history, expected, strict=True):
        for x, y in zip(one, other, strict=True):
            np.testing.assert_allclose(x, y, rtol=2e-5, atol=1e-6)


def test_weights_of_single_layers_have_trust_ratios_of_their_own():
    model = make_model(depth_rank=2, depth_embedding=True, depth_matrices=["key"])
    optimizer = Lamb(0.1)
    optimizer.build(model.trainable_variables)
    own = {v.path: v for v in model.trainable_variables if "/depth_1/" in v.path}
    names = [path.rpartition("/")[2] for path in own]
    assert names == ["input_bias", "key_a", "key_b", "key_bias"]
    # What starts as 0 would be held there by its own norm.
    every = Lamb(0.1, exclude_from_weight_decay="")
    every.build(model.trainable_variables)
    for decides, right in (
        (optimizer.uses_weight_decay, [False, True, True, False]),
        (optimizer.uses_layer_adaptation, [False, True, False, False]),
        (every.uses_weight_decay, [True] * 4),
        (every.uses_layer_adaptation, [False, True, False, False]),
    ):
        assert [decides(v) for v in own.values()] == right
