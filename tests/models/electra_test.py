"""ELECTRA's model and loss against NumPy; samples, gradients, sizes, refusals."""

import math

import keras
import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

from albert_tf.config import AlbertConfig, generator_config
from albert_tf.converters.keras_model import from_model
from albert_tf.converters.nets import split
from albert_tf.models.base import weight_names
from albert_tf.models.electra import ElectraPretrainer, sample
from albert_tf.objectives.pretraining import ELECTRA
from albert_tf.training.callbacks import DivergedError, DivergenceGuard
from tests import tiny
from tests.models.base_test import assert_equal_outputs

B, T, P, V = 6, 11, 3, 53
CONFIG = tiny.tiny_config(vocab_size=V, initializer_range=0.3)
SHARING = ("tied", "disentangled", "none")


def make_batch(rows=B, seed=0):
    rng = np.random.default_rng(seed)
    places = np.sort([1 + rng.permutation(T - 3)[:P] for _ in range(rows)])
    weights = np.ones((rows, P), "float32")
    weights[::3, -1] = 0
    mask = np.ones((rows, T), "int32")
    mask[1::2, -2:] = 0
    ids = rng.integers(5, V, (rows, T)).astype("int32")
    return {
        "token_ids": ids * mask,
        "segment_ids": rng.integers(0, 2, (rows, T)).astype("int32"),
        "padding_mask": mask,
        "mask_positions": np.where(weights > 0, places, 0).astype("int32"),
        "mask_ids": rng.integers(5, V, (rows, P)).astype("int32"),
        "mask_weights": weights,
        "sample_draws": rng.random((rows, P)).astype("float32"),
    }


def make_model(sharing="tied", config=CONFIG, **changes):
    changes = {"generator_size": 0.5, "seed": 4, **changes}
    return ElectraPretrainer(config, embedding_sharing=sharing, **changes)


def softmax(x):
    exp = np.exp(x.astype("float64") - x.max(-1, keepdims=True))
    return exp / exp.sum(-1, keepdims=True)


def expected_tokens(logits, draws):
    """Of each prediction, the token whose interval its number falls into."""
    edges = softmax(logits).cumsum(-1)
    return np.array([[np.searchsorted(e, u, "right") for e, u in zip(*row, strict=True)]
                     for row in zip(edges, draws, strict=True)])  # fmt: skip


def test_ids_labels_and_loss_are_those_of_numpy():
    batch, model = make_batch(), make_model()
    batch["mask_ids"][0, 0] = 7
    outputs = {k: v.numpy() for k, v in model(batch).items()}
    logits = outputs["generator_logits"]
    drawn = expected_tokens(logits, batch["sample_draws"])
    # One of them is the original.
    batch["mask_ids"][0, 0] = drawn[0, 0]
    outputs = {k: v.numpy() for k, v in model(batch).items()}
    ids, replaced = batch["token_ids"].copy(), np.zeros((B, T), int)
    for b in range(B):
        places = batch["mask_positions"][b][batch["mask_weights"][b] > 0]
        assert len(set(places)) == len(places)
        for p, place in enumerate(places):
            ids[b, place] = drawn[b, p]
            replaced[b, place] = drawn[b, p] != batch["mask_ids"][b, p]
    np.testing.assert_array_equal(outputs["corrupted_ids"], ids)
    np.testing.assert_array_equal(outputs["replaced"], replaced)
    assert replaced[0, batch["mask_positions"][0, 0]] == 0 < replaced.sum()

    weights, mask = batch["mask_weights"], batch["padding_mask"]
    picked = np.take_along_axis(softmax(logits), batch["mask_ids"][..., None], -1)
    generator = -(np.log(picked[..., 0]) * weights).sum() / (weights.sum() + 1e-6)
    x = outputs["discriminator_logits"].astype("float64")
    losses = np.logaddexp(0, x) - x * replaced
    rtd = (losses * mask).sum() / (mask.sum() + 1e-6)
    metrics = metrics_of(outputs, batch)
    assert metrics["generator_loss"] == pytest.approx(generator, abs=1e-5)
    assert metrics["rtd_loss"] == pytest.approx(rtd, abs=1e-5)
    assert metrics["loss"] == pytest.approx(generator + 50 * rtd, rel=1e-6)
    hits = ((x > 0) == replaced) * mask
    assert metrics["rtd_accuracy"] == pytest.approx(hits.sum() / mask.sum(), abs=1e-6)
    share = replaced.sum() / mask.sum()
    assert metrics["rtd_share"] == pytest.approx(share)
    assert metrics["rtd_baseline"] == pytest.approx(1 - share)
    correct = (logits.argmax(-1) == batch["mask_ids"]) * weights
    found = metrics["generator_accuracy"] * weights.sum()
    assert found == pytest.approx(correct.sum(), abs=1e-4)


def metrics_of(outputs, batch):
    sums = ELECTRA.sums(outputs, batch)
    return ELECTRA.metrics({k: np.float32(v) for k, v in sums.items()})


@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_samples_follow_the_softmax(temperature):
    rng = np.random.default_rng(3)
    count, size = 60_000, 19
    logits = rng.normal(0, 1.5, (1, 1, size)).astype("float32")
    draws = rng.random((1, count)).astype("float32")
    many = np.tile(logits, (1, count, 1))
    found = np.bincount(sample(many, draws, temperature).numpy()[0], minlength=size)
    expected = softmax(logits[0, 0] / temperature) * count
    assert stats.chisquare(found, expected).pvalue > 0.01
    # The test can fail.
    other = softmax(logits[0, 0] / (temperature + 0.2)) * count
    assert stats.chisquare(found, other).pvalue < 1e-6


def test_the_original_token_can_be_excluded():
    logits = np.zeros((1, 1000, 4), "float32")
    logits[..., 2] = 9.0  # nearly always
    draws = np.linspace(0, 1 - 2**-24, 1000, dtype="float32")[None]
    never = np.full((1, 1000), 2)
    assert (sample(logits, draws).numpy() == 2).mean() > 0.99
    assert set(sample(logits, draws, never=never).numpy().ravel()) == {0, 1, 3}
    batch = make_batch()
    outputs = make_model(disallow_correct=True, temperature=0.1)(batch)
    assert outputs["replaced"].numpy().sum() == batch["mask_weights"].sum()


def test_padding_is_never_drawn_where_it_has_no_position():
    config = CONFIG.replace(family="roberta", position_offset=2)  # <pad> is 1
    model, batch = make_model(config=config), make_batch()
    model.generator.mlm_head.output_bias.assign(np.eye(V, dtype="float32")[1] * 50)
    found = model(batch)["corrupted_ids"].numpy()
    assert not (found == 1).any() and (found != batch["token_ids"]).any()


@pytest.mark.parametrize("draw", [0.0, 0.5, 1 - 2**-24])
def test_what_has_no_probability_is_never_drawn(draw):
    logits = np.full((1, 1, 30_000), -1e4, "float32")
    logits[..., 100:29_000] = 1.0
    found = int(sample(logits, np.full((1, 1), draw, "float32"))[0, 0])
    assert 100 <= found < 29_000


def gradients(model, batch, weights):
    """Of the generator's and of the discriminator's loss, by name; None for none."""
    variables = weight_names(model)
    with tf.GradientTape() as tape:
        sums = ELECTRA.sums(model(batch), batch)
        loss = sum(w * sums[f"{n}_loss_sum"] for n, w in weights.items())
    return tape.gradient(loss, {name: v.value for name, v in variables.items()})


@pytest.mark.parametrize("sharing", SHARING)
def test_the_discriminator_does_not_train_the_generator(sharing):
    batch, model = make_batch(), make_model(sharing)
    found = gradients(model, batch, {"rtd": 1.0})
    for name, gradient in found.items():
        assert (gradient is None) == name.startswith("generator/"), name
    found = gradients(model, batch, {"generator": 1.0})
    for name, gradient in found.items():
        reads = name.startswith("generator/")
        reads |= sharing == "tied" and name.startswith("backbone/embeddings/")
        assert (gradient is not None) == reads, name


def test_disentangled_tables_are_a_sum():
    batch, model = make_batch(), make_model("disentangled")
    names = weight_names(model)
    tables = [n for n in names if n.startswith("backbone/embed") and "_emb" in n]
    assert len(tables) == 3
    assert not any(np.any(names[name]) for name in tables)
    deltas = np.random.default_rng(1)
    for name in tables:
        names[name].assign(deltas.normal(size=names[name].shape))
    plain = make_model("none")
    for name, variable in weight_names(plain).items():
        variable.assign(names[name])
        if name in tables:
            variable.assign_add(names[f"generator/{name}"])
    assert_equal_outputs(model(batch), plain(batch), atol=1e-5)


def test_a_shared_block_is_applied_fewer_times():
    config = CONFIG.replace(num_hidden_layers=4, depth_rank=2)
    options = {"generator_size": 1, "generator_layers": 0.5, "share_encoder": True}
    model = make_model(config=config, **options)
    assert model.generator.config == config.replace(num_hidden_layers=2)
    own = [n for n in weight_names(model) if n.startswith("generator/")]
    assert own and all(name.startswith("generator/mlm_head/") for name in own)
    # The generator is a masked LM of two layers with the same weights.
    sizes = {"vocab_size": V, "initializer_range": 0.3, "depth_rank": 2}
    alone = tiny.make_model("masked_lm", **sizes)
    assert {*split(from_model(model))["generator"].tensors} == {*weight_names(alone)}
    for name, variable in weight_names(alone).items():
        variable.assign(weight_names(model.generator)[name])
    batch = make_batch()
    logits = model(batch)["generator_logits"]
    np.testing.assert_allclose(logits, alone(batch), atol=1e-6)


def test_a_model_is_made_again_from_its_config():
    model = make_model("disentangled", temperature=0.7)
    again = ElectraPretrainer.from_config(model.get_config())
    assert again.get_config() == model.get_config()
    for first, second in zip(model.weights, again.weights, strict=True):
        np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize(
    ("preset", "size", "expected"),
    [  # as released: width, feed-forward, heads
        ("bert_base", 1 / 3, (256, 1024, 4)),
        ("bert_large", 0.25, (256, 1024, 4)),
        ("albert_base_v2", 0.25, (192, 768, 3)),
    ],
)
def test_sizes_of_generators(preset, size, expected):
    config = AlbertConfig.from_preset(preset)
    found = generator_config(config, size, 1.0)
    sizes = found.hidden_size, found.intermediate_size, found.num_attention_heads
    assert sizes == expected
    assert found.num_hidden_layers == config.num_hidden_layers
    assert found.embedding_size == config.embedding_size
    assert generator_config(config, 1, 1) == config
    quarter = generator_config(config, 1, 0.25).num_hidden_layers
    assert quarter == config.num_hidden_layers // 4


SMALL = {"hidden_size": 256, "num_attention_heads": 4, "intermediate_size": 1024}


def test_numbers_of_parameters():
    def count(**changes):
        # Variables get no memory: only their shapes matter.
        with keras.StatelessScope(initialize_variables=False):
            config = AlbertConfig(vocab_size=30522, **SMALL, **changes)
            model = ElectraPretrainer(config)
            of = lambda model: sum(math.prod(v.shape) for v in model.weights)  # noqa: E731
            return of(model), of(model.generator)

    # ELECTRA-small with the generator of the paper, and both with one block each.
    assert count(sharing="none") == (14_196_219, 4_620_026)
    assert count()[0] == 4_959_035


SHARED = {"share_encoder": True, "generator_size": 1}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"generator_size": 0}, "generator_size must be a positive number, received 0"),
        ({"generator_layers": "a"}, "_layers must be a positive .* received 'a"),
        ({"temperature": None}, "temperature must be a positive number, received None"),
        ({"generator_size": 1e300}, r"generator_size must be at most 16, r"),
        ({"generator_layers": -1}, "generator_layers must be a positive .* -1"),
        ({"generator_size": 0.75}, "generator_size=0.75: .* number of heads, 2 .* 9"),
        ({"embedding_sharing": "half"}, "must be one of tied, dis.* 'half'"),
        ({"temperature": 0}, "temperature must be a positive number, received 0"),
        ({"share_encoder": True}, "share_encoder: generator_size must be 1.* 0.25"),
        ({**SHARED, "generator_layers": 2}, "layers must be at most 1, received 2"),
        (
            {**SHARED, "config": CONFIG.replace(sharing="none")},
            "share_encoder needs sharing='all' and one group, .* 'none, 1'",
        ),
    ],
)
def test_what_is_refused(changes, message):
    with pytest.raises(ValueError, match=message) as raised:
        ElectraPretrainer(**{"config": CONFIG, **changes})
    assert "\n" not in str(raised.value)


def test_an_input_is_missing():
    batch = make_batch()
    del batch["sample_draws"]
    with pytest.raises(ValueError, match="inputs must have 'sample_draws'"):
        make_model()(batch)


def test_a_divergence_names_its_net():
    model, batch = make_model(), make_batch()
    before = model.get_weights()
    for name, said in (
        ("generator/mlm_head/output_bias", "of generator_loss"),
        ("discriminator/prediction/bias", "of rtd_loss"),
        ("backbone/embeddings/position_embeddings", "of generator_loss and rtd_loss"),
    ):
        model.set_weights(before)
        variable = weight_names(model)[name]
        variable.assign(np.full(variable.shape, np.nan))
        sums = {"learning_rate": 0.1, **ELECTRA.sums(model(batch), batch)}
        results = {"losses": [np.nan], "grad_norms": [0.0], **sums}
        with pytest.raises(DivergedError, match=rf"loss is nan at step 1, {said} \("):
            DivergenceGuard().on_step(0, results)


def test_outputs_are_float32_in_bfloat16():
    half = make_model(dtype="mixed_bfloat16")(make_batch())
    assert {v.dtype for v in half.values()} == {tf.float32, tf.int32}


def test_nothing_but_numbers_is_said_of_an_untrained_model():
    batch = make_batch()
    outputs = {k: v.numpy() for k, v in make_model()(batch).items()}
    metrics = metrics_of(outputs, batch)
    line = ELECTRA.describe(3, metrics)
    assert "generator accuracy" in line and "RTD accuracy" in line
    assert f"(trivial baseline {metrics['rtd_baseline']:.3f})" in line
    outputs["discriminator_logits"][:] = np.nan
    assert np.isnan(metrics_of(outputs, batch)["loss"])


def test_initial_values_are_the_original_s():
    config = CONFIG.replace(embedding_size=30, hidden_size=60, family="electra")
    names = weight_names(ElectraPretrainer(config, seed=1, generator_size=0.5))
    found = {k: np.abs(v.numpy()) for k, v in names.items() if k.endswith("kernel")}
    for name, fans in {
        "backbone/encoder/embedding_projection": 90,
        "discriminator/prediction": 61,
    }.items():
        values = found.pop(f"{name}/kernel")
        limit = (6 / fans) ** 0.5
        assert 0.9 * limit < values.max() <= limit
        assert values.mean() == pytest.approx(limit / 2, rel=0.25)
    for name, values in found.items():
        assert values.max() <= 2 * config.initializer_range, name
