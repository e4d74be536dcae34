"""fairseq's RoBERTa and SpanBERT's `model.pt`, as torch writes and computes them."""

import argparse
import json
import math

import numpy as np
import pytest
import tensorflow as tf

import albert_tf
from albert_tf.converters import fairseq, torch_file
from albert_tf.converters.convert import convert_checkpoint
from albert_tf.errors import DataError
from albert_tf.models.base import weight_names
from albert_tf.objectives.pretraining import SPANBERT, SpanTargets
from tests.converters.fairseq_test import PAIR, PUBLISHED, ROBERTA, TIED
from tests.converters.fairseq_test import SPANBERT as SIZES
from tests.models.spanbert_test import SINGLE, runs_of, targets_of
from tests.peers import relatives_test, transformers_test
from tests.tiny import assert_same_weights, make_model, randomize

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

HEADS = {
    "RobertaForMaskedLM": "masked_lm",
    "RobertaForSequenceClassification": "text_classifier",
    "RobertaModel": None,
}
LM = "masked_lm"
PLAIN = {"sharing": "none", "embedding_size": 12}
# transformers' names to those of fairseq, in this order.
RENAMES = {
    "roberta.": "",
    "embeddings.word_embeddings": "embed_tokens",
    "embeddings.position_embeddings": "embed_positions",
    "embeddings.LayerNorm": "layernorm_embedding",
    "encoder.layer.": "layers.",
    "attention.self.query": "self_attn.q_proj",
    "attention.self.key": "self_attn.k_proj",
    "attention.self.value": "self_attn.v_proj",
    "attention.output.dense": "self_attn.out_proj",
    "attention.output.LayerNorm": "self_attn_layer_norm",
    "intermediate.dense": "fc1",
    "output.dense": "fc2",
    "output.LayerNorm": "final_layer_norm",
}


def to_fairseq(peer, prefix, is_old):
    """Returns the weights of a RoBERTa of transformers in fairseq's names."""
    state = {}
    for name, value in peer.state_dict().items():
        if "token_type" in name or name.endswith("position_ids"):
            if "token_type" in name:
                value.zero_()
            continue
        in_encoder = not name.startswith(("lm_head", "classifier"))
        for theirs, new in RENAMES.items():
            name = name.replace(theirs, new)
        name = name.replace("lm_head.decoder.weight", "lm_head.weight")
        name = name.replace("classifier.", "classification_heads.mnli.")
        in_head = name.startswith("classification_heads")
        stem = "sentence_encoder." if in_encoder else ""
        state[name if in_head else f"{prefix}.{stem}{name}"] = value
    state.pop(f"{prefix}.lm_head.decoder.bias", None)
    state = {k: v for k, v in state.items() if "pooler" not in k}
    if is_old:
        for layer in range(peer.config.num_hidden_layers):
            stem = f"{prefix}.sentence_encoder.layers.{layer}.self_attn."
            for part in ("weight", "bias"):
                joint = [state.pop(f"{stem}{x}_proj.{part}") for x in "qkv"]
                state[f"{stem}in_proj_{part}"] = torch.cat(joint)
        for part in ("weight", "bias"):
            stem = f"{prefix}.sentence_encoder."
            norm = state.pop(f"{stem}layernorm_embedding.{part}")
            state[f"{stem}emb_layer_norm.{part}"] = norm
        state[f"{prefix}.sentence_encoder.version"] = torch.ones(1)
    return state


def make_file(path, state, is_old, **changes):
    """Writes a checkpoint of fairseq with all that is not read."""
    args = argparse.Namespace(
        encoder_attention_heads=2, activation_fn="gelu", lr=[5e-4]
    )
    vars(args).update(changes)
    more = {"args": args} if is_old else {"args": None, "cfg": {"model": args}}
    torch.save(
        {
            "model": state,
            "optimizer_history": [{"num_updates": 3, "optimizer_name": "FairseqAdam"}],
            "extra_state": {"train_iterator": {"epoch": 1}, "val_loss": 2.5},
            "last_optimizer_state": {"state": {0: {"exp_avg": torch.zeros(3)}}},
            **more,
        },
        path / "model.pt",
    )


@pytest.mark.parametrize("name", HEADS)
@pytest.mark.parametrize("is_old", [False, True], ids=["later", "early"])
def test_roberta(name, is_old, tmp_path):
    peer = relatives_test.make_peer("Roberta", name.removeprefix("Roberta"))
    state = to_fairseq(peer, "decoder" if is_old else "encoder", is_old)
    make_file(tmp_path, state, is_old)
    model = albert_tf.from_pretrained(tmp_path)
    assert type(model) is type(make_model(HEADS[name]))
    assert model.config.family == "roberta" and model.untrained_weights == []
    batch = relatives_test.make_batch(peer)
    out = transformers_test.run_peer(peer, batch)
    if HEADS[name] is None:
        found, expected = model(batch)["sequence_output"], out.last_hidden_state
    else:
        found, expected = model(batch), out.logits
    np.testing.assert_allclose(found, expected.detach(), atol=1e-5, rtol=1e-5)
    if HEADS[name]:
        convert_checkpoint(tmp_path, tmp_path / "m", "huggingface", verify="reload")
        again = type(peer).from_pretrained(tmp_path / "m")
        transformers_test.assert_bit_exact(peer, again)


@pytest.mark.parametrize("name", HEADS)
def test_roberta_there_and_back(name, tmp_path):
    peer = relatives_test.make_peer("Roberta", name.removeprefix("Roberta"))
    state = to_fairseq(peer, "encoder", is_old=False)
    make_file(tmp_path, state, False)
    folders = [tmp_path / folder for folder in ("own", "written", "own_again", "again")]
    model = albert_tf.from_pretrained(tmp_path)
    albert_tf.save_pretrained(model, folders[0], labels=None)
    formats = ("fairseq", "albert_tf", "fairseq")
    for source, target, format in zip(folders, folders[1:], formats, strict=False):
        report = convert_checkpoint(source, target, format)
        assert all(row["equal"] for row in report.matched)
    assert any("strict=False" in note for note in report.notes) == (HEADS[name] != LM)
    files = [(folders[i] / "model.pt").read_bytes() for i in (1, 3)]
    assert files[0] == files[1]
    found = torch_file.load(folders[1] / "model.pt", argparse.Namespace)
    assert {"optimizer_history", "extra_state"} < found.keys()
    args, config = found["args"], model.config
    assert args.encoder_layers == config.num_hidden_layers and args.task == "masked_lm"
    assert args.max_positions == config.max_position_embeddings
    head = "classification_heads.sentence_classification_head"
    state = {k.replace("classification_heads.mnli", head): v for k, v in state.items()}
    assert found["model"].keys() == state.keys()
    for key, value in state.items():
        torch.testing.assert_close(found["model"][key], value, atol=0, rtol=0)
    if HEADS[name] == LM:
        table = found["model"]["encoder.sentence_encoder.embed_tokens.weight"]
        second = found["model"]["encoder.lm_head.weight"]
        assert second.data_ptr() == table.data_ptr()


def test_segments_of_a_roberta_are_added_to_its_positions(tmp_path):
    model = randomize(make_model(**ROBERTA, hidden_act="gelu", **PLAIN))
    albert_tf.save_pretrained(model, tmp_path / "own")
    report = convert_checkpoint(tmp_path / "own", tmp_path / "written", "fairseq")
    assert "added to the positions" in "".join(report.notes)
    again = albert_tf.from_pretrained(tmp_path / "written")
    batch = {**SINGLE, "segment_ids": SINGLE["segment_ids"] * 0}
    outputs = [np.asarray(m(batch)) for m in (model, again)]
    np.testing.assert_allclose(*outputs, atol=1e-5)
    assert np.ptp(outputs[0]) > 0.1


def restated(w, config, batch, max_span):
    """SpanBERT's loss from the tensors of its file, all with a gradient."""
    bert = transformers.BertModel(
        transformers.BertConfig(
            vocab_size=config.vocab_size,
            hidden_size=config.hidden_size,
            num_hidden_layers=config.num_hidden_layers,
            num_attention_heads=config.num_attention_heads,
            intermediate_size=config.intermediate_size,
            max_position_embeddings=config.max_position_embeddings,
            attn_implementation="eager",
        ),
        add_pooling_layer=False,
    ).eval()
    new = {"gamma": "weight", "beta": "bias"}
    encoder = {}
    for name, value in w.items():
        if name.startswith("decoder.bert."):
            stem, _, part = name.removeprefix("decoder.bert.").rpartition(".")
            encoder[f"{stem}.{new.get(part, part)}"] = value
    given = {k: torch.tensor(v).long() for k, v in batch.items() if k[-1] != "h"}
    inputs = {"input_ids": given["token_ids"], "token_type_ids": given["segment_ids"]}
    inputs["attention_mask"] = given["padding_mask"]
    x = torch.func.functional_call(bert, encoder, kwargs=inputs).last_hidden_state
    F = torch.nn.functional

    def layer(h, dense, norm):
        h = F.linear(h, w[f"decoder.{dense}.weight"], w[f"decoder.{dense}.bias"])
        gamma, beta = (w[f"decoder.{norm}.{part}"] for part in ("gamma", "beta"))
        return F.layer_norm(F.gelu(h), gamma.shape, gamma, beta, 1e-12)

    table = w["decoder.bert.embeddings.word_embeddings.weight"]
    weights = targets_of(batch, max_span, "original")
    sums = {"cls.predictions": [], PAIR: []}
    for row in range(len(weights)):
        for entry, first, last, place in runs_of(batch, row):
            label = given["mask_ids"][row, entry]
            transform = "cls.predictions.transform"
            position = batch["mask_positions"][row, entry]
            h = layer(x[row, position], f"{transform}.dense", f"{transform}.LayerNorm")
            hidden = {"cls.predictions": h}
            if weights[row, entry]:
                p = w[f"decoder.{PAIR}.position_embeddings.weight"][place]
                h = torch.cat([x[row, first - 1], x[row, last + 1], p])
                for i in "12":
                    mlp = f"{PAIR}.mlp_layer_norm"
                    h = layer(h, f"{mlp}.linear{i}", f"{mlp}.layer_norm{i}")
                hidden[PAIR] = h
            for head, h in hidden.items():
                logits = table @ h + w[f"decoder.{head}.bias"]
                sums[head].append(F.cross_entropy(logits, label))
    masked, pairs = (torch.stack(found) for found in sums.values())
    return masked.mean() + pairs.sum() / (len(pairs) + 1)


@pytest.fixture
def spanbert(tmp_path):
    model = randomize(make_model(**SIZES))
    albert_tf.save_pretrained(model, tmp_path / "m", format="fairseq")
    return model, tmp_path / "m"


def test_spanbert_loss_and_gradients(spanbert):
    model, path = spanbert
    w = torch.load(path / "model.pt", weights_only=True)
    shapes = {
        f"decoder.{layer}.{part}": shape
        for layer, parts in PUBLISHED.items()
        for part, shape in parts.items()
    }
    table = "decoder.bert.embeddings.word_embeddings.weight"
    shapes |= dict.fromkeys((f"decoder.{name}" for name in TIED), shapes[table])
    assert {name: tuple(value.shape) for name, value in w.items()} == shapes
    for name in TIED:  # one tensor, as there
        assert w[f"decoder.{name}"].data_ptr() == w[table].data_ptr()
    w = {name: value.clone().requires_grad_() for name, value in w.items()}
    expected = restated(w, model.config, SINGLE, SIZES["max_span"])
    expected.backward()
    objective = SPANBERT.with_span_targets(SpanTargets(SIZES["max_span"], "original"))
    weights = weight_names(model)
    with tf.GradientTape() as tape:
        sums = objective.sums(model(SINGLE), SINGLE)
        loss = objective.loss(sums, objective.weights(SINGLE))
    np.testing.assert_allclose(loss, expected.item(), atol=1e-5)
    found = tape.gradient(loss, [v.value for v in weights.values()])
    found = dict(zip(weights, found, strict=True))
    rows = {row.ours: row for row in fairseq.MODELS["bert"].rows(model.config)}
    for name, gradient in found.items():
        wanted = rows[name].turn(w[f"decoder.{rows[name].theirs}"].grad.numpy())
        np.testing.assert_allclose(gradient, wanted, atol=1e-5, err_msg=name)
        assert np.abs(wanted).max() > (0 if name.endswith("key/bias") else 1e-5), name


@pytest.mark.parametrize("kept", ["all", "no config", "torch's layer norms", "wrapped"])
def test_spanbert_there_and_back(spanbert, kept, tmp_path):
    model, path = spanbert
    before = (path / "model.pt").read_bytes()
    if kept == "no config":
        # 64 is then the size of a head, and here 12 is not.
        (path / "config.json").unlink()
        with pytest.raises(DataError, match="must be a multiple of 64, received 12"):
            albert_tf.from_pretrained(path)
        again = albert_tf.from_pretrained(path, config=model.config)
    else:
        state = torch.load(path / "model.pt", weights_only=True)
        if kept == "wrapped":
            state = {"model": state, "args": None}
        elif kept != "all":
            new = {"gamma": "weight", "beta": "bias"}
            parts = [name.rpartition(".") for name in state]
            names = [f"{stem}.{new.get(part, part)}" for stem, _, part in parts]
            state = dict(zip(names, state.values(), strict=True))
        torch.save(state, path / "model.pt")
        again = albert_tf.from_pretrained(path)
    assert again.max_span == 4 and again.config == model.config
    assert_same_weights(again, model)
    convert_checkpoint(path, tmp_path / "own", "albert_tf", config=model.config)
    convert_checkpoint(tmp_path / "own", tmp_path / "back", "fairseq")
    assert (tmp_path / "back/model.pt").read_bytes() == before


@pytest.mark.parametrize("prefix", ["bert.", ""])
def test_the_published_folder_has_the_encoder_alone(spanbert, prefix, tmp_path):
    model, path = spanbert
    state = torch.load(path / "model.pt", weights_only=True)
    stem = "decoder.bert."
    state = {
        prefix + name.removeprefix(stem): value
        for name, value in state.items()
        if name.startswith(stem)
    }
    folder = tmp_path / "hf"
    folder.mkdir()
    torch.save(state, folder / "pytorch_model.bin")
    values = json.loads((path / "config.json").read_text())
    assert "model_type" not in values and "layer_norm_eps" not in values
    (folder / "config.json").write_text(json.dumps(values))
    encoder = albert_tf.from_pretrained(folder)
    assert encoder.config == model.config
    expected = model.backbone(SINGLE)["sequence_output"]
    np.testing.assert_array_equal(encoder(SINGLE)["sequence_output"], expected)
    with pytest.warns(albert_tf.errors.UntrainedWeightsWarning, match="sbo_head"):
        again = albert_tf.from_pretrained(folder, head="span_boundary", seed=1)
    np.testing.assert_array_equal(again(SINGLE)["sequence_output"], expected)


def test_parameters_are_read_without_their_gradient():
    found = torch_file.tensors("x", {"x": torch.nn.Parameter(torch.ones(2))})
    np.testing.assert_array_equal(found["x"].read(), np.ones(2))


class Unwanted:
    """Calls a function where a pickle is loaded."""

    def __reduce__(self):
        return (math.sqrt, (2.0,))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"args": {"lr": Unwanted()}}, "file of tensors: holds math.sqrt$"),
        ({"state": {"x": Unwanted()}}, "file of tensors: holds math.sqrt$"),
        (
            {"state": {"x": 3}},
            "not a torch file of tensors: 'x' must be one, rec.* 'int'",
        ),
        ({"state": {"x": torch.eye(3).to_sparse()}}, "'x' must be a dense tensor"),
        ({"state": {"x": torch.ones(3, device="meta")}}, "'x' must be a dense tensor"),
        ({"state": {"x": torch.ones(3) * 1j}}, "'x' must be a dense tensor"),
        (
            {"state": {f"decoder.layers.{'1' * 5000}.x": torch.ones(3)}},
            "unknown tensor layers.11",
        ),
        ({"args": {"encoder_attention_heads": 3}}, "multiple of num_attention_heads"),
        ({"args": {"encoder_attention_heads": "2"}}, "num_attention_heads"),
        ({"args": {"activation_fn": "relu"}}, "must be gelu, received 'relu'"),
        ({"state": {"decoder.lm_head.weight": torch.zeros(3)}}, "differs from"),
        ({"state": {"decoder.x.weight": torch.zeros(3)}}, "unknown tensor x.weight"),
        (
            {"state": {"classification_heads.a.dense.bias": torch.zeros(3)}},
            "unknown tensor classification_heads.a.dense.bias and",
        ),
        (
            {"less": "embed_tokens"},
            "needs a tensor bert.* or sent.*embed_tokens.weight",
        ),
        ({"less": "layers.0.fc1"}, "needs a matrix .*fc1.weight"),
    ],
)
def test_what_is_refused(change, message, tmp_path):
    name = "ForSequenceClassification"
    state = to_fairseq(relatives_test.make_peer("Roberta", name), "decoder", True)
    less = change.get("less")
    state = {k: v for k, v in state.items() if less is None or less not in k}
    state |= change.get("state", {})
    make_file(tmp_path, state, True, **change.get("args", {}))
    with pytest.raises(DataError, match=message) as error:
        albert_tf.from_pretrained(tmp_path)
    assert "\n" not in str(error.value) and str(tmp_path) in str(error.value)
