"""KerasHub's models against ours: presets in both directions."""

import warnings

import numpy as np
import pytest

import albert_tf
from albert_tf.converters import load
from albert_tf.converters.parity import TEXTS
from tests.tiny import SPIECE, make_model

keras_hub = pytest.importorskip("keras_hub")

pytestmark = pytest.mark.peers

SIZES = {
    "vocabulary_size": 61,
    "num_layers": 2,
    "num_heads": 3,
    "embedding_dim": 10,
    "hidden_dim": 18,
    "intermediate_dim": 26,
    "max_sequence_length": 16,
}
VARIANTS = {
    "base": {},
    "groups2_inner2": {"num_groups": 2, "num_inner_repetitions": 2},
    "e_equals_d": {"embedding_dim": 18},
    "segments": {"num_segments": 3, "dropout": 0.1},
}
TASKS = {
    None: keras_hub.models.AlbertBackbone,
    "masked_lm": keras_hub.models.AlbertMaskedLM,
    "text_classifier": keras_hub.models.AlbertTextClassifier,
}


def make_peer(head, tokenizer=None, **changes):
    """A model with weights of standard deviation 0.2."""
    backbone = keras_hub.models.AlbertBackbone(**{**SIZES, **changes})
    peer = backbone
    if head == "masked_lm":
        peer = TASKS[head](backbone, preprocessor=tokenizer)
    elif head == "text_classifier":
        peer = TASKS[head](backbone, num_classes=5, preprocessor=tokenizer)
    rng = np.random.default_rng(4)
    for variable in peer.weights:
        if "seed" not in variable.path:
            is_gamma = variable.path.endswith("gamma")
            variable.assign(rng.normal(1.0 if is_gamma else 0.0, 0.2, variable.shape))
    return peer


def make_batch(head, length=11):
    rng = np.random.default_rng(3)
    mask = (rng.random((3, length)) > 0.3).astype(np.int32)
    mask[:, 0] = 1
    batch = {
        "token_ids": rng.integers(5, 61, (3, length)),
        "segment_ids": rng.integers(0, 2, (3, length)),
        "padding_mask": mask,
    }
    if head == "masked_lm":
        batch["mask_positions"] = rng.integers(0, length, (3, 4))
    return {name: value.astype(np.int32) for name, value in batch.items()}


def assert_same_outputs(peer, model, head):
    for length in (1, 11, 16):
        batch = make_batch(head, length)
        expected, received = peer(batch), model(batch)
        if head is not None:
            expected, received = {"logits": expected}, {"logits": received}
        for name, value in expected.items():
            np.testing.assert_allclose(received[name], value, atol=1e-5, err_msg=name)


def assert_same_weights(first, second):
    first, second = first.get_weights(), second.get_weights()
    assert len(first) == len(second)
    for one, two in zip(first, second, strict=True):
        np.testing.assert_array_equal(one, two)


def from_preset(head, path):
    options = {} if head is None else {"preprocessor": None}
    with warnings.catch_warnings():
        # Keras warns if a variable of the files finds no place, or the reverse.
        warnings.filterwarnings("error", category=UserWarning)
        return TASKS[head].from_preset(str(path), **options)


@pytest.mark.parametrize(
    ("head", "variant"),
    [
        (None, "base"),
        ("masked_lm", "base"),
        ("text_classifier", "base"),
        (None, "groups2_inner2"),
        ("masked_lm", "e_equals_d"),
        ("text_classifier", "segments"),
    ],
)
def test_both_ways(head, variant, tmp_path):
    peer = make_peer(head, **VARIANTS[variant])
    peer.save_to_preset(str(tmp_path / "theirs"))
    model = albert_tf.from_pretrained(tmp_path / "theirs", head="auto")
    assert model.untrained_weights == []
    assert_same_outputs(peer, model, head)
    albert_tf.save_pretrained(model, tmp_path / "back", format="keras_hub")
    assert_same_weights(peer, from_preset(head, tmp_path / "back"))


def test_identity_projection(tmp_path):
    peer = make_peer(None, embedding_dim=18)
    peer.embeddings_projection.kernel.assign(np.eye(18))
    peer.embeddings_projection.bias.assign(np.zeros(18))
    peer.save_to_preset(str(tmp_path / "theirs"))
    model = albert_tf.from_pretrained(tmp_path / "theirs", head=None)
    assert not model.config.has_embedding_projection
    assert_same_outputs(peer, model, None)
    albert_tf.save_pretrained(model, tmp_path / "back", format="keras_hub")
    assert_same_weights(peer, from_preset(None, tmp_path / "back"))


def test_a_preset_with_its_tokenizer(tmp_path):
    for head in ("masked_lm", "text_classifier"):
        model = make_model(head, mlm_layer_norm_eps=1e-5)
        path = tmp_path / head
        albert_tf.save_pretrained(model, path, format="keras_hub", tokenizer=SPIECE)
        peer = TASKS[head].from_preset(str(path))
        x = peer.preprocessor(["hello world"])
        x = x[0] if isinstance(x, tuple) else x
        np.testing.assert_allclose(peer(x), model(x), atol=1e-5)
        assert load.load_tokenizer(path).vocab_size == 30000
    tokenizer = keras_hub.models.AlbertTokenizer.from_preset(str(path))
    assert tokenizer.vocabulary_size() == 30000
    ours = albert_tf.AlbertTokenizer(SPIECE)
    for text in TEXTS:
        assert [int(i) for i in tokenizer(text)] == ours.encode(text), text


def test_masked_lm_without_pooler_gets_an_unused_one(tmp_path):
    model = make_model("masked_lm", vocab_size=61, mlm_layer_norm_eps=1e-5)
    albert_tf.save_pretrained(model, tmp_path / "m", format="keras_hub")
    assert_same_outputs(from_preset("masked_lm", tmp_path / "m"), model, "masked_lm")
