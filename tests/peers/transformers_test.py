"""Hugging Face models against ours: forward, gradients, and both directions."""

import json
import logging

import numpy as np
import pytest

import albert_tf
from albert_tf.converters import torch_file

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

pytestmark = pytest.mark.peers

SIZES = {
    "vocab_size": 61,
    "embedding_size": 10,
    "hidden_size": 18,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 26,
    "max_position_embeddings": 16,
    "type_vocab_size": 2,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
    "classifier_dropout_prob": 0.0,
    "pad_token_id": 0,
    "bos_token_id": 2,
    "eos_token_id": 3,
}
VARIANTS = {
    "base": {},
    "groups2_inner2": {"num_hidden_groups": 2, "inner_group_num": 2},
    "groups_do_not_divide": {"num_hidden_layers": 5, "num_hidden_groups": 3},
    "rule_of_groups_differs": {"num_hidden_layers": 18, "num_hidden_groups": 14},
    "e_equals_d": {"embedding_size": 18},
    "relu": {"hidden_act": "relu"},
    "exact_gelu": {"hidden_act": "gelu"},
    "epsilon": {"layer_norm_eps": 1e-5},
}
HEADS = {
    "Model": None,
    "ForPreTraining": "pretraining",
    "ForMaskedLM": "masked_lm",
    "ForSequenceClassification": "text_classifier",
    "ForTokenClassification": "token_classifier",
    "ForQuestionAnswering": "question_answering",
    "ForMultipleChoice": "multiple_choice",
}
# As ALBERT's, or as other heads of BERT.
ALIKE = ("Model", "ForTokenClassification", "ForMultipleChoice")
CASES = [(name, "Albert") for name in HEADS] + [
    pytest.param(name, "Bert", marks=pytest.mark.broad if name in ALIKE else ())
    for name in HEADS
]


def make_peer(name, kind="Albert", seed=7, **changes):
    """A model with weights of standard deviation 0.2, in every tensor."""
    sizes = {**SIZES, **changes}
    config_class = getattr(transformers, f"{kind}Config")
    if kind == "Bert":
        for key in ("embedding_size", "classifier_dropout_prob"):
            sizes.pop(key)
    config = config_class(**sizes, attn_implementation="eager")
    return randomize(getattr(transformers, kind + name)(config), seed)


def randomize(peer, seed=7):
    """Returns the model with other weights in every tensor, for inference."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in peer.parameters():
            noise = torch.randn(parameter.shape, generator=generator) * 0.2
            is_gamma = parameter.ndim == 1 and bool((parameter == 1).all())
            parameter.copy_(noise + 1 if is_gamma else noise)
    return peer.eval()


def make_batch(length=11, rows=3, choices=None, seed=3):
    rng = np.random.default_rng(seed)
    shape = (rows, length) if choices is None else (rows, choices, length)
    mask = (rng.random(shape) > 0.3).astype(np.int32)  # with holes
    mask[..., 0] = 1
    return {
        "token_ids": rng.integers(5, 61, shape).astype(np.int32),
        "segment_ids": rng.integers(0, 2, shape).astype(np.int32),
        "padding_mask": mask,
    }


def run_peer(peer, batch, **kwargs):
    names = ("input_ids", "token_type_ids", "attention_mask")
    pairs = zip(names, batch.values(), strict=True)
    inputs = {name: torch.tensor(value).long() for name, value in pairs}
    return peer(**inputs, **kwargs)


def peer_logits(output):
    names = (
        "logits",
        "prediction_logits",
        "sop_logits",
        "seq_relationship_logits",
        "start_logits",
        "end_logits",
        "last_hidden_state",
        "pooler_output",
    )
    found = {name: getattr(output, name, None) for name in names}
    return {k: v.detach().numpy() for k, v in found.items() if v is not None}


def our_logits(model, batch, head):
    if head == "pretraining":
        rows, length = batch["token_ids"].shape
        batch = {**batch, "mask_positions": np.tile(np.arange(length), (rows, 1))}
    out = model(batch)
    if not isinstance(out, dict):
        return {"logits": out}
    theirs = {
        "sequence_output": ["last_hidden_state"],
        "pooled_output": ["pooler_output"],
        "mlm_logits": ["prediction_logits"],
        "sop_logits": ["sop_logits", "seq_relationship_logits"],
    }
    return {k: value for name, value in out.items() for k in theirs.get(name, [name])}


def assert_same_logits(peer, model, batch, head):
    expected = peer_logits(run_peer(peer, batch))
    received = our_logits(model, batch, head)
    assert expected
    for name, value in expected.items():
        np.testing.assert_allclose(received[name], value, atol=1e-5, err_msg=name)


def reload_peer(cls, folder):
    peer, info = cls.from_pretrained(folder, output_loading_info=True)
    for problem in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        assert not info[problem], (problem, info[problem])
    return peer.eval()


def assert_bit_exact(first, second):
    first, second = first.state_dict(), second.state_dict()
    assert first.keys() == second.keys()
    for name, value in first.items():
        assert torch.equal(value, second[name]), name


def check_both_ways(name, kind, tmp_path, **changes):
    head = HEADS[name]
    peer = make_peer(name, kind, **changes)
    peer.save_pretrained(tmp_path / "theirs")
    model = albert_tf.from_pretrained(tmp_path / "theirs", head="auto")
    assert model.untrained_weights == []
    batch = make_batch(choices=4 if head == "multiple_choice" else None)
    assert_same_logits(peer, model, batch, head)
    albert_tf.save_pretrained(model, tmp_path / "back", format="huggingface")
    assert_bit_exact(peer, reload_peer(type(peer), tmp_path / "back"))
    return peer, model


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_every_head(name, kind, tmp_path):
    check_both_ways(name, kind, tmp_path)


@pytest.mark.parametrize("variant", VARIANTS)
def test_variants(variant, tmp_path):
    changes = VARIANTS[variant]
    peer, model = check_both_ways("ForPreTraining", "Albert", tmp_path, **changes)
    for length in (1, 11, 16):
        batch = make_batch(length)
        expected = run_peer(peer, batch, output_hidden_states=True).hidden_states
        received = model.backbone(batch, output_hidden_states=True)["hidden_states"]
        for ours, theirs in zip(received, expected, strict=True):
            np.testing.assert_allclose(ours, theirs.detach().numpy(), atol=1e-5)


def test_identity_projection_is_folded_and_written_again(tmp_path):
    peer = make_peer("Model", embedding_size=18)
    with torch.no_grad():
        peer.encoder.embedding_hidden_mapping_in.weight.copy_(torch.eye(18))
        peer.encoder.embedding_hidden_mapping_in.bias.zero_()
    peer.save_pretrained(tmp_path / "theirs")
    model = albert_tf.from_pretrained(tmp_path / "theirs", head=None)
    assert model.config.embedding_projection == "auto"
    assert not model.config.has_embedding_projection
    assert_same_logits(peer, model, make_batch(), None)
    albert_tf.save_pretrained(model, tmp_path / "back", format="huggingface")
    assert_bit_exact(peer, reload_peer(type(peer), tmp_path / "back"))


def test_fully_padded_rows_follow_the_original_not_this_peer(tmp_path):
    peer = make_peer("Model")
    peer.save_pretrained(tmp_path)
    model = albert_tf.from_pretrained(tmp_path, head=None)
    batch = make_batch()
    batch["padding_mask"][1] = 0
    expected = run_peer(peer, batch).last_hidden_state.detach().numpy()
    received = np.asarray(model(batch)["sequence_output"])
    np.testing.assert_allclose(received[[0, 2]], expected[[0, 2]], atol=1e-5)
    # Ours attends as if nothing were masked (the original adds -10000 to all).
    batch["padding_mask"][1] = 1
    unmasked = np.asarray(model(batch)["sequence_output"])
    np.testing.assert_allclose(received[1], unmasked[1], atol=2e-2)
    assert np.abs(expected[1] - unmasked[1]).max() > 0.05


@pytest.mark.parametrize(
    ("problem_type", "count"),
    [
        ("regression", 1),
        ("multi_label_classification", 5),
        ("single_label_classification", 3),
    ],
)
def test_problem_types_and_labels(problem_type, count, tmp_path):
    names = [f"class {i}" for i in range(count)]
    peer = make_peer(
        "ForSequenceClassification",
        num_labels=count,
        problem_type=problem_type,
        id2label=dict(enumerate(names)),
        label2id={name: i for i, name in enumerate(names)},
    )
    peer.save_pretrained(tmp_path / "theirs")
    model = albert_tf.from_pretrained(tmp_path / "theirs", head="auto")
    assert (model.problem_type, list(model.labels)) == (problem_type, names)
    for step, format in enumerate(("albert_tf", "huggingface")):
        path = tmp_path / str(step)
        albert_tf.save_pretrained(model, path, format=format)
        model = albert_tf.from_pretrained(path, head="auto")
        assert (model.problem_type, list(model.labels)) == (problem_type, names)
    again = reload_peer(type(peer), path)
    assert again.config.problem_type == problem_type
    assert again.config.id2label == dict(enumerate(names))


def test_sharded_and_torch_files(tmp_path):
    peer = make_peer("ForPreTraining")
    peer.save_pretrained(tmp_path / "sharded", max_shard_size="4KB")
    assert (tmp_path / "sharded/model.safetensors.index.json").exists()
    model = albert_tf.from_pretrained(tmp_path / "sharded", head="auto")
    assert_same_logits(peer, model, make_batch(), "pretraining")
    (tmp_path / "torch").mkdir()
    peer.config.save_pretrained(tmp_path / "torch")
    torch.save(peer.state_dict(), tmp_path / "torch/pytorch_model.bin")
    model = albert_tf.from_pretrained(tmp_path / "torch", head="pretraining")
    assert_same_logits(peer, model, make_batch(), "pretraining")


def test_a_pickle_that_is_more_than_tensors_is_refused(tmp_path):
    class Evil:
        def __reduce__(self):
            return (open, (str(tmp_path / "written"), "w"))

    make_peer("Model").config.save_pretrained(tmp_path)
    torch.save({"embeddings.x": Evil()}, tmp_path / "pytorch_model.bin")
    with pytest.raises(albert_tf.errors.DataError, match="not a torch file of tensors"):
        albert_tf.from_pretrained(tmp_path, head=None)
    assert not (tmp_path / "written").exists()


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (3, "not a torch file of tensors: 'x' must be one, rec.* 'int'"),
        (torch.eye(3).to_sparse(), "'x' must be a dense tensor"),
        (torch.ones(3, device="meta"), "'x' must be a dense tensor"),
        (torch.ones(3) * 1j, "'x' must be a dense tensor"),
    ],
)
def test_torch_files_hold_dense_tensors(value, message, tmp_path):
    state = {"p": torch.nn.Parameter(torch.ones(2))}
    torch.save(state, tmp_path / "a.bin")
    np.testing.assert_array_equal(torch_file.load(f"{tmp_path}/a.bin")["p"].read(), 1)
    torch.save(state | {"x": value}, tmp_path / "a.bin")
    with pytest.raises(albert_tf.errors.DataError, match=message):
        torch_file.load(f"{tmp_path}/a.bin")


def test_our_config_is_theirs(tmp_path):
    peer = make_peer("ForTokenClassification", hidden_act="gelu", num_labels=5)
    peer.save_pretrained(tmp_path / "theirs")
    model = albert_tf.from_pretrained(tmp_path / "theirs", head="auto")
    albert_tf.save_pretrained(model, tmp_path / "back", format="huggingface")
    first = json.loads((tmp_path / "theirs/config.json").read_text())
    second = json.loads((tmp_path / "back/config.json").read_text())
    for key in set(first) & set(second) - {"dtype"}:
        assert first[key] == second[key], key


logging.getLogger("transformers").setLevel(logging.ERROR)
