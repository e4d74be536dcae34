"""RoBERTa and ELECTRA of transformers against ours: every class, losses, gradients."""

import numpy as np
import pytest
import tensorflow as tf

import albert_tf
from albert_tf.converters.convert import convert_checkpoint
from albert_tf.converters.huggingface import name_table
from albert_tf.models.base import weight_names
from tests.peers import transformers_test as peers

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

pytestmark = pytest.mark.peers

KINDS = {
    "Roberta": {"pad_token_id": 1, "type_vocab_size": 1, "layer_norm_eps": 1e-5},
    "Electra": {"embedding_size": 8},
}
HEADS = {name: h for name, h in peers.HEADS.items() if h != "pretraining"}
CASES = [("Electra", "ForPreTraining", "discriminator")] + [
    (kind, name, head) for kind in KINDS for name, head in HEADS.items()
]
SIZES = {**peers.SIZES, "hidden_size": 16, "num_attention_heads": 2}
SIZES |= {
    "intermediate_size": 20,
    "num_hidden_layers": 2,
    "max_position_embeddings": 18,
}
for name in ("embedding_size", "classifier_dropout_prob"):
    del SIZES[name]


def make_peer(kind, name):
    """A model whose every tensor is random, by the seed of `transformers_test`."""
    labels = 2 if name == "ForQuestionAnswering" else 3
    config = getattr(transformers, f"{kind}Config")(
        **{**SIZES, **KINDS[kind], "classifier_dropout": 0.0, "num_labels": labels},
        attn_implementation="eager",
    )
    return peers.randomize(getattr(transformers, kind + name)(config))


def make_batch(peer, choices=None):
    """Rows with padding, one of them with a padding id in its text."""
    config = peer.config
    shape = (3, 11) if choices is None else (3, choices, 11)
    rng = np.random.default_rng(3)
    lengths = np.array([11, 7, 4]).reshape(-1, *[1] * (len(shape) - 1))
    mask = (np.zeros(shape, int) + np.arange(11) < lengths).astype(np.int32)
    ids = rng.integers(5, config.vocab_size, shape).astype(np.int32)
    ids[mask == 0] = config.pad_token_id
    ids[0, ..., 5] = config.pad_token_id
    segments = rng.integers(0, config.type_vocab_size, shape).astype(np.int32)
    return {"token_ids": ids, "segment_ids": segments, "padding_mask": mask}


@pytest.mark.parametrize(("kind", "name", "head"), CASES)
def test_every_class_both_ways(kind, name, head, tmp_path):
    peer = make_peer(kind, name)
    peer.save_pretrained(tmp_path / "theirs")
    model = albert_tf.from_pretrained(tmp_path / "theirs")
    assert model.untrained_weights == []
    batch = make_batch(peer, choices=4 if head == "multiple_choice" else None)
    peers.assert_same_logits(peer, model, batch, head)
    backbone = getattr(model, "backbone", model)
    flat = {k: v.reshape(-1, 11) for k, v in batch.items()}
    ours = backbone(flat, output_hidden_states=True)["hidden_states"]
    theirs = peers.run_peer(peer, batch, output_hidden_states=True).hidden_states
    assert len(ours) == len(theirs)
    for received, expected in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(received, expected.detach().numpy(), atol=1e-5)
    albert_tf.save_pretrained(model, tmp_path / "back", format="huggingface")
    again = peers.reload_peer(type(peer), tmp_path / "back")
    peers.assert_bit_exact(peer, again)
    assert again.config.max_position_embeddings == 18
    if name == "ForMaskedLM":
        report = convert_checkpoint(tmp_path / "theirs", tmp_path / "m", "albert_tf")
        assert max(report.outputs["layer 2"].values()) < 1e-5


def nll(labels, logits):
    return tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)


def losses_of(head, out, labels, batch):
    """transformers' losses, which divide by the tokens or texts they read."""
    real = tf.cast(batch["padding_mask"], "float32")
    if head == "masked_lm":
        losses = nll(np.maximum(labels, 0), out)
        return tf.reduce_mean(tf.boolean_mask(losses, labels != -100))
    if head == "discriminator":
        targets = tf.cast(labels, "float32")
        loss = tf.nn.sigmoid_cross_entropy_with_logits(targets, out)
        return tf.reduce_sum(loss * real) / tf.reduce_sum(real)
    if head == "question_answering":
        places = labels["start_positions"], labels["end_positions"]
        both = zip(places, (out["start_logits"], out["end_logits"]), strict=True)
        return sum(tf.reduce_mean(nll(place, logits)) for place, logits in both) / 2
    return tf.reduce_mean(nll(labels, out))


def make_labels(head, peer, batch):
    rng = np.random.default_rng(5)
    rows, shape = len(batch["token_ids"]), batch["token_ids"].shape
    if head == "masked_lm":
        labels = rng.integers(5, peer.config.vocab_size, shape)
        is_masked = (rng.random(shape) < 0.4) & (batch["padding_mask"] > 0)
        return np.where(is_masked, labels, -100)
    if head in ("token_classifier", "discriminator"):
        return rng.integers(0, 3 if head == "token_classifier" else 2, shape)
    if head == "question_answering":
        places = ("start_positions", "end_positions")
        return {name: rng.integers(0, 4, rows) for name in places}
    return rng.integers(0, 3, rows)


# Of a head, the gradients of one kind: both compute the same with it.
ONCE = [
    ("Electra", "ForPreTraining"),
    ("Electra", "ForTokenClassification"),
    ("Electra", "ForQuestionAnswering"),
    ("Roberta", "ForMaskedLM"),
    ("Roberta", "ForSequenceClassification"),
    ("Roberta", "ForMultipleChoice"),
]


@pytest.mark.parametrize(
    ("kind", "name", "head"),
    [
        pytest.param(*case, marks=() if case[:2] in ONCE else pytest.mark.broad)
        for case in CASES
        if case[2]
    ],
)
def test_losses_and_gradients(kind, name, head, tmp_path):
    peer = make_peer(kind, name)
    peer.save_pretrained(tmp_path)
    model = albert_tf.from_pretrained(tmp_path)
    batch = make_batch(peer, choices=4 if head == "multiple_choice" else None)
    labels = make_labels(head, peer, batch)
    given = labels if isinstance(labels, dict) else {"labels": labels}
    targets = {k: torch.tensor(v).long() for k, v in given.items()}
    expected = peers.run_peer(peer, batch, **targets).loss
    expected.backward()
    weights = weight_names(model)
    with tf.GradientTape() as tape:
        loss = losses_of(head, model(batch), labels, batch)
    np.testing.assert_allclose(loss, expected.item(), atol=1e-5)
    gradients = tape.gradient(loss, [v.value for v in weights.values()])
    ours = dict(zip(weights, gradients, strict=True))
    theirs = dict(peer.named_parameters(remove_duplicate=False))
    rows = [r for r in name_table(model.config, head, False) if r.theirs in theirs]
    assert {r.ours for r in rows} == set(weights)
    pad = peer.config.pad_token_id
    for row in rows:
        found = ours[row.ours]
        wanted = row.turn(theirs[row.theirs].grad.numpy())
        found = np.zeros_like(wanted) if found is None else np.array(found)
        if row.ours.endswith(("word_embeddings", "position_embeddings")):
            # Theirs gives the padding's row no gradient.
            found[pad], wanted[pad] = 0, 0
        np.testing.assert_allclose(found, wanted, atol=1e-5, err_msg=row.ours)


UNROLLED = [
    ("Model", "relu"),
    ("ForPreTraining", "base"),
    ("ForTokenClassification", "groups_do_not_divide"),
    ("ForQuestionAnswering", "epsilon"),
    ("ForMaskedLM", "exact_gelu"),
    pytest.param("Model", "rule_of_groups_differs", marks=pytest.mark.broad),
]


@pytest.mark.parametrize(("name", "variant"), UNROLLED)
def test_an_albert_as_an_electra(name, variant, tmp_path):
    """Theirs of ALBERT against theirs of the ELECTRA that was written."""
    albert = peers.make_peer(name, "Albert", **peers.VARIANTS[variant])
    albert.save_pretrained(tmp_path / "albert")
    folders = (tmp_path / "albert", tmp_path / "electra")
    report = convert_checkpoint(*folders, "electra", verify="peer")
    last = f"layer {albert.config.num_hidden_layers}"
    assert {"reload", "target_peer"} <= report.outputs[last].keys()
    assert max(max(row.values()) for row in report.outputs.values()) < 1e-5
    kept = "Model" if name == "ForPreTraining" else name
    electra = getattr(transformers, f"Electra{kept}")
    electra = peers.reload_peer(electra, tmp_path / "electra")
    batch = peers.make_batch()
    before = peers.run_peer(albert, batch, output_hidden_states=True)
    after = peers.run_peer(electra, batch, output_hidden_states=True)
    pairs = zip(before.hidden_states, after.hidden_states, strict=True)
    for expected, received in pairs:
        torch.testing.assert_close(received, expected, atol=1e-5, rtol=1e-5)
    expected, received = peers.peer_logits(before), peers.peer_logits(after)
    for key, value in received.items() if kept == name else ():
        np.testing.assert_allclose(value, expected[key], atol=1e-5, rtol=1e-5)
    # New heads are drawn; the encoder is read whole.
    fresh = transformers.ElectraForSequenceClassification.from_pretrained(
        tmp_path / "electra"
    )
    same = fresh.electra.state_dict()
    base = getattr(electra, "electra", electra).state_dict()
    assert all(torch.equal(value, same[key]) for key, value in base.items())
