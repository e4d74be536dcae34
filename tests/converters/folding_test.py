"""A folded model computes what its source does, as far as the rank allows."""

import json

import numpy as np
import pytest

import albert_tf
from albert_tf.converters.checkpoint import Tensor
from albert_tf.converters.fold_settings import FoldSettings
from albert_tf.converters.folding import fold, fold_checkpoint, folded_config
from albert_tf.converters.keras_model import build_model, from_model
from albert_tf.errors import DataError, UsageError
from tests.commands import run_command
from tests.converters.as_electra_test import batch_of
from tests.models.base_test import assert_equal_outputs
from tests.tiny import SPIECE, make_model, randomize

CLOSE = {"atol": 1e-5, "rtol": 1e-5}
PLAIN = {"vocab_size": 41, "num_hidden_layers": 3, "sharing": "none"}
BERT = {**PLAIN, "embedding_size": 12, "hidden_act": "gelu"}
ELECTRA = {**PLAIN, "family": "electra", "hidden_act": "gelu"}
ROBERTA = {**BERT, "family": "roberta", "position_offset": 2, "type_vocab_size": 1}
ROBERTA["num_hidden_layers"] = 6
KEY = {"depth_matrices": ("key",), "depth_rank": 1}


def save(path, head=None, **changes):
    """A folder with random weights everywhere, which are large in layer norms, too."""
    model = randomize(make_model(head, **changes))
    albert_tf.save_pretrained(model, path)
    return model


@pytest.mark.parametrize(
    ("head", "source", "options"),
    [
        ("pretraining", BERT, {}),
        ("discriminator", ELECTRA, {"shared_layer": 2}),
        ("masked_lm", ROBERTA, {"num_hidden_groups": 3, "sharing": "attention"}),
        (None, PLAIN | {"inner_group_num": 2}, {"sharing": "ffn"}),
    ],
)
def test_the_full_rank_computes_the_same(head, source, options, tmp_path):
    model = save(tmp_path / "m", head, **source)
    settings = FoldSettings(depth_rank=12, **options)
    report = fold_checkpoint(tmp_path / "m", tmp_path / "one", settings)
    again = albert_tf.from_pretrained(tmp_path / "one")
    assert type(again) is type(model) and again.untrained_weights == []
    assert again.config.sharing == options.get("sharing", "all")
    batch = batch_of() | {"mask_positions": np.array([[1], [3], [0]], np.int32)}
    batch["segment_ids"] %= model.config.type_vocab_size
    assert_equal_outputs(again(batch), model(batch), **CLOSE)
    assert all(row["left_out"] < 1e-6 for row in report.parts.values())
    assert report.parameters == again.count_params()
    stored = json.loads((tmp_path / "one/fold.json").read_text())
    assert stored["parts"] == report.parts


def test_a_rank_is_the_nearest_balanced_and_biases_stay():
    model = randomize(make_model(**BERT))
    source = from_model(model)
    config = folded_config(source, FoldSettings(depth_rank=4))
    folded, report = fold(source, config)
    value = lambda name: folded.tensors[f"backbone/encoder/{name}"].read()  # noqa: E731
    own = lambda name: source.tensors[f"backbone/encoder/{name}"].read()  # noqa: E731
    kernels = [own(f"ffn_{i}/output/kernel") for i in range(3)]
    shared = value("ffn_0/output/kernel")
    np.testing.assert_allclose(shared, np.mean(kernels, axis=0), atol=1e-7)
    a, b = (value(f"depth_2/ffn_output_{part}") for part in "ab")
    left = np.linalg.norm(kernels[2] - shared - a @ b)
    values = np.linalg.svd(kernels[2] - shared)[1]
    np.testing.assert_allclose(left, np.linalg.norm(values[4:]), rtol=1e-5)
    np.testing.assert_allclose(a.T @ a, b @ b.T, atol=1e-5)
    bias = value("ffn_0/output/bias") + value("depth_2/ffn_output_bias")
    np.testing.assert_allclose(bias, own("ffn_2/output/bias"), atol=1e-6)
    for name in ("attention_layer_norm_1/gamma", "ffn_layer_norm_2/beta"):
        np.testing.assert_array_equal(value(name), own(name))
    assert 0.1 < report.parts["layer 3"]["left_out"] < 1
    # Where nothing is left, training must still be able to move something.
    folded, _ = fold(source, config, shared_layer=1)
    assert value("depth_0/key_a").any() and not value("depth_0/key_b").any()


@pytest.mark.parametrize("source", [BERT, ELECTRA | {"embedding_size": 9}])
def test_tables_of_a_lower_rank_are_exact_in_fewer_dimensions(source):
    """The layer norm of the embeddings must divide by the same variance."""
    model = randomize(make_model("masked_lm", **source))
    for table in model.backbone.embeddings.tables:
        basis = np.random.default_rng(1).normal(size=(5, table.shape[1]))
        table.assign(table.numpy()[:, :5] @ basis + table.numpy()[:, :1])
    source = from_model(model)
    config = folded_config(source, FoldSettings(depth_rank=12, embedding_size=6))
    folded, report = fold(source, config)
    again = build_model(folded, None)
    batch = batch_of()
    expected = model.backbone(batch)["sequence_output"]
    np.testing.assert_allclose(again(batch)["sequence_output"], expected, **CLOSE)
    assert report.parts["embeddings"]["left_out"] < 1e-6
    assert "training heals it" in report.notes[0]
    assert "the head masked_lm is left out" in report.notes[1] and folded.head is None
    _, report = fold(source, config.replace(embedding_size=3))
    assert 0.1 < report.parts["embeddings"]["left_out"] < 1


def test_command_with_texts(tmp_path):
    model = randomize(make_model("text_embedder", **BERT | {"vocab_size": 30000}))
    albert_tf.save_pretrained(model, tmp_path / "m", tokenizer=SPIECE)
    (tmp_path / "texts").write_text("a text\n\nand another one\n")
    given = f"--from={tmp_path}/m", f"--output_dir={tmp_path}/one", "--groups=1"
    given += "--depth_rank=5", "--embedding_size=8", f"--texts_file={tmp_path}/texts"
    done = run_command("fold", *given)
    assert (done.code, done.err) == (0, "")
    stored = json.loads((tmp_path / "one/fold.json").read_text())
    assert stored["texts"] == 2 and list(stored["parts"])[0] == "embeddings"
    assert all(0 < row["cosine"] < 1 for row in stored["parts"].values())
    assert done.out == (tmp_path / "one/fold.txt").read_text()
    again = albert_tf.from_pretrained(tmp_path / "one")
    assert again.predict(["a text"], verbose=0).shape == (1, 12)
    done = run_command("fold", *given)
    assert done.code == 2 and "exists" in done.error
    # Its layers share weights now.
    given = f"--from={tmp_path}/one", f"--output_dir={tmp_path}/two"
    done = run_command("fold", *given)
    assert done.code == 1 and "have weights of their own" in done.error


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"depth_rank": 13}, "--depth_rank must be at most 12, the width of query"),
        ({"depth_rank": -1}, "--depth_rank must not be negative, received -1"),
        ({"sharing": "none"}, "--sharing must be one of all, attention, ffn, received"),
        ({"num_hidden_groups": 2}, "must divide the 3 layers of model.*, received 2"),
        ({"embedding_size": 13}, "--embedding_size must be at most 12, .*received 13"),
        (KEY | {"depth_rank": 0}, "needs a depth_rank above 0"),
        ({"depth_matrices": ("k",), "depth_rank": 1}, "a list of different names of"),
        (
            KEY | {"sharing": "ffn"},
            "must be kernels that --sharing=ffn shares, .*'key'",
        ),
        ({"shared_layer": 4}, "--shared_layer must be at most 3, .* received 4"),
    ],
)
def test_what_does_not_fit_is_refused(options, message):
    source = from_model(make_model(name="model", **BERT))
    with pytest.raises(UsageError, match=message):
        folded_config(source, FoldSettings(**options))


def test_sources_that_cannot_be_folded(tmp_path):
    target = tmp_path / "one"
    save(tmp_path / "m", vocab_size=41, depth_rank=2)
    with pytest.raises(DataError, match="its layers have weights of their own"):
        fold_checkpoint(tmp_path / "m", target, FoldSettings(depth_rank=2))
    save(tmp_path / "n", **BERT)
    with pytest.raises(DataError, match="holds no tokenizer"):
        fold_checkpoint(tmp_path / "n", target, FoldSettings(), texts=["a"])
    source = from_model(make_model(**BERT))
    with pytest.raises(DataError, match="nothing to fold: .*--num_hidden_groups=3"):
        folded_config(source, FoldSettings(num_hidden_groups=3))
    name = "backbone/encoder/ffn_1/output/kernel"
    broken = np.full(source.tensors[name].shape, np.nan, np.float32)
    source.tensors[name] = Tensor.of(name, broken)
    with pytest.raises(DataError, match="ffn_output of layer 1 must be finite"):
        fold(source, folded_config(source, FoldSettings()))
    source.tensors[name] = Tensor.of(name, broken[:, 1:])
    with pytest.raises(DataError, match=r"must have shape \(20, 12\), received"):
        fold(source, folded_config(source, FoldSettings()))
    assert not target.exists()
