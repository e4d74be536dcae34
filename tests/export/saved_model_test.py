"""The exported model: equal to the Keras model, robust, and nothing but computation."""

import json
import math
import pathlib

import keras
import numpy as np
import pytest
import tensorflow as tf

from albert_tf.errors import DataError, UsageError
from albert_tf.export import cpu, manifest, saved_model
from albert_tf.export.signatures import make_signatures
from albert_tf.export.text_inputs import TextInputs
from albert_tf.inference.classifier import Classifier
from albert_tf.inference.embedder import Embedder
from albert_tf.models.backbone import AlbertBackbone
from albert_tf.models.classifiers import AlbertTextClassifier
from albert_tf.storage import files
from tests import tiny
from tests.export import heads


@pytest.fixture(scope="module")
def classify(tokenizer):
    return Classifier(heads.make_model("text_classifier"), tokenizer)


@pytest.fixture(scope="module")
def folder(exported):
    made = pathlib.Path(exported("text_classifier"))
    assert made.name == "7"
    assert [path.name for path in made.parent.iterdir()] == ["7"]
    return made


@pytest.fixture(scope="module")
def loaded(folder):
    return tf.saved_model.load(folder)


@pytest.fixture(scope="module")
def ask(loaded):
    def ask(texts, signature="serving_default", **others):
        inputs = {"text": tf.constant(texts, tf.string), **others}
        outputs = loaded.signatures[signature](**inputs)
        return {name: value.numpy() for name, value in outputs.items()}

    return ask


TEXTS = ["I loved it!", "", "The 1990, café's " * 30, "x"]


def test_text_equals_the_keras_model(ask, classify):
    got = ask(TEXTS)
    assert got.keys() == {"probabilities", "logits", "label"}
    np.testing.assert_allclose(got["logits"], classify.logits(TEXTS), atol=1e-5)
    np.testing.assert_allclose(got["probabilities"], classify.scores(TEXTS), atol=1e-6)
    expected = [row["label"] for row in classify(TEXTS)]
    assert [label.decode() for label in got["label"]] == expected
    assert len(set(expected)) > 1


def test_pair_equals_the_keras_model(ask, classify):
    pairs = ["yes", "the dog " * 40, "a", ""]
    got = ask(TEXTS, "pair", text_pair=tf.constant(pairs))
    np.testing.assert_allclose(got["logits"], classify.logits(TEXTS, pairs), atol=1e-5)
    alone = ask(TEXTS[3:])["logits"]  # its second text is empty
    np.testing.assert_allclose(got["logits"][3:], alone, atol=1e-5)


def test_tokens_preprocess_classify(ask, loaded, classify, tokenizer):
    inputs = ask(TEXTS, "preprocess")
    assert inputs["token_ids"].shape == (4, 24)
    # A short text does not pay for the longest.
    for count, width in ((1, 16), (14, 16), (15, 24), (99, 24)):
        found = ask(["x", "a " * count], "preprocess")
        assert found["token_ids"].shape == found["padding_mask"].shape == (2, width)
    tokens = {
        "token_ids": tf.constant(inputs["token_ids"]),
        "lengths": tf.constant(inputs["padding_mask"].sum(1), tf.int32),
        "segment_ids": tf.constant(inputs["segment_ids"]),
    }
    got = loaded.tokens(**tokens)
    np.testing.assert_allclose(got["logits"], classify.logits(TEXTS), atol=1e-5)
    examples = [heads.example(text) for text in TEXTS]
    got = loaded.signatures["classify"](inputs=tf.constant(examples))
    np.testing.assert_allclose(got["scores"], classify.scores(TEXTS), atol=1e-6)
    assert got["classes"].numpy()[3].tolist() == [x.encode() for x in heads.LABELS]
    with pytest.raises(tf.errors.InvalidArgumentError, match="Feature: text .* requ"):
        loaded.signatures["classify"](inputs=tf.constant([*examples, b""]))


def test_a_batch_padded_by_the_server(loaded, classify, tokenizer):
    # A server that merges requests repeats the first element of a matrix.
    row = [tokenizer.cls_id, *tokenizer.encode("hello world"), tokenizer.sep_id]
    padded = tf.constant([row + [row[0]] * 7])
    tokens = {"token_ids": padded, "segment_ids": padded * 0}
    got = loaded.signatures["tokens"](lengths=tf.constant([len(row)]), **tokens)
    expected = classify.logits(["hello world"])
    np.testing.assert_allclose(got["logits"], expected, atol=1e-5)


def test_batch_of_none_and_padding_changes_nothing(ask):
    assert ask([])["probabilities"].shape == (0, 3)
    alone = np.concatenate([ask([text])["logits"] for text in TEXTS])
    np.testing.assert_allclose(ask(TEXTS)["logits"], alone, atol=1e-5)


BAD_TEXTS = {
    "empty": (b"", b""),
    "blanks": (b" \n\t ", b""),
    "only NUL": (b"\0\0", None),
    "NUL inside": (b"a\0b", None),
    "NUL then text": (b"\0the cat", None),
    "bad byte": (b"abc \xff\xfe def", b"abc def"),
    "truncated": (b"the caf\xc3", b"the caf"),
    "overlong": (b"x \xc0\xaf y", b"x y"),
    "surrogate": (b"x\xed\xa0\x80y", b"x y"),
    "special pieces": (b"[CLS] x [SEP] [MASK] <pad>", None),
    "byte order mark": (b"\xef\xbb\xbfhi", None),
    "control": (b"a\x01\x02\x1bb", None),
    "emoji": ("good 👍🏽 👩‍👩‍👧".encode(), None),
    "zero width": ("a\u200bb".encode(), None),
    "right to left": ("مرحبا".encode(), None),
    "cjk": ("你好世界".encode(), None),
}


def test_bad_texts(ask, tokenizer):
    good = "a good film"
    texts = [good, *(text for text, _ in BAD_TEXTS.values()), good]
    got = ask(texts, "preprocess")
    probabilities = ask(texts)["probabilities"]
    assert np.isfinite(probabilities).all()
    # The neighbours are answered as if they had been asked alone.
    alone = ask([good, good])["probabilities"]
    np.testing.assert_allclose(probabilities[[0, -1]], alone, atol=1e-6)
    specials = {tokenizer.cls_id, tokenizer.sep_id, tokenizer.mask_id}
    for row, (case, (text, same_as)) in enumerate(BAD_TEXTS.items(), start=1):
        ids = got["token_ids"][row][got["padding_mask"][row] == 1].tolist()
        expected = tokenizer.encode(text if same_as is None else same_as)
        assert ids == [tokenizer.cls_id, *expected[:22], tokenizer.sep_id], case
        assert not specials & set(ids[1:-1]), case


@pytest.mark.parametrize(
    "text",
    [
        b"the cat " * 400_000,
        b"a" * 3_000_000,
        b" " * 1_000_000 + b"the cat",
        "\ufdfa".encode() * 300_000,
        b"\xff" * 2_000_000,
    ],
    ids=["words", "one word", "blanks", "expanding", "not UTF-8"],
)
def test_huge_texts_cost_little(ask, text):
    got = ask([text, b"x"], "preprocess")
    assert got["token_ids"].shape == (2, 16 if text[:1] in b" \xff" else 24)
    if text.startswith(b" "):
        assert got["padding_mask"][0].sum() == 4


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"token_ids": [[2, 30000, 3]]}, "token_ids: from 0 to 29999"),
        ({"token_ids": [[2, -1, 3]]}, "token_ids: from 0 to 29999"),
        ({"segment_ids": [[0, 2, 0]]}, "segment_ids: from 0 to 1"),
        ({"lengths": [0]}, "lengths: from 1 to the columns"),
        ({"lengths": [4]}, "lengths: from 1 to the columns"),
        ({"lengths": [3, 3]}, "expected the same number of rows"),
        ({"segment_ids": [[0]]}, "segment_ids: of the shape of token_ids"),
        (
            {"token_ids": [[2] * 25], "segment_ids": [[0] * 25]},
            "token_ids: at most 24 columns",
        ),
    ],
)
def test_bad_tokens(loaded, changes, message):
    inputs = {"token_ids": [[2, 5, 3]], "lengths": [3], "segment_ids": [[0, 0, 0]]}
    inputs = {k: tf.constant(v) for k, v in {**inputs, **changes}.items()}
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        loaded.signatures["tokens"](**inputs)


def test_no_path_of_this_machine(folder):
    data = (folder / "saved_model.pb").read_bytes()
    for path in (str(folder), str(pathlib.Path.home()), "site-packages", ".py"):
        assert path.encode() not in data


TOKENS = {"serving_default", "pair", "tokens", "preprocess", "embed", "embed_layer"}


def specs(**ranks):
    """Returns inputs as a manifest describes them."""
    strings = {"text", "text_pair", "inputs", "words", "context", "question", "choices"}
    kinds = {name: "string" if name in strings else "int32" for name in ranks}
    return {name: f"{kinds[name]} {[None] * rank}" for name, rank in ranks.items()}


def test_manifest(folder):
    found = json.loads((folder / manifest.FILE).read_text())
    listed = files.digests_of(folder)
    del listed[manifest.FILE]
    assert found["files"] == listed
    assert manifest.verify(folder) == found
    expected = {"precision": "float32", "forward": "fast", "labels": heads.LABELS}
    expected |= {"kind": "AlbertTextClassifier", "max_seq_length": 24, "layers": 2}
    assert {name: found[name] for name in expected} == expected
    assert found["signatures"].keys() == TOKENS | {"classify"}
    inputs = {k: v for one in found["signatures"].values() for k, v in one.items()}
    texts = specs(text=1, text_pair=1, inputs=1, layer=1)
    assert inputs == texts | specs(token_ids=2, segment_ids=2, lengths=1)


def test_every_weight_is_stored_once(folder, classify):
    shapes = dict(tf.train.list_variables(str(folder / "variables/variables")))
    sizes = [math.prod(shape) for name, shape in shapes.items() if shape]
    assert sum(sizes) == classify.model.count_params()


ANSWERING = {"doc_stride": 4, "max_query_length": 6, "n_best_size": 5}
ANSWERING |= {"max_answer_length": 30, "null_threshold": 0.25}
ANSWERING |= {"unanswerable": True, "max_windows": 64}


@pytest.fixture
def export_one(monkeypatch, tokenizer, tmp_path):
    """Exports a model with one of its signatures, in a part of the time."""

    def export(model, name, **options):
        make = lambda *given: {name: make_signatures(*given)[name]}  # noqa: E731
        monkeypatch.setattr(saved_model, "make_signatures", make)
        path = tmp_path / "m"
        saved_model.export_saved_model(model, path, tokenizer=tokenizer, **options)
        return str(path), json.loads((path / manifest.FILE).read_text())

    return export


@pytest.mark.slow
@pytest.mark.parametrize(
    ("head", "name", "inputs", "expected"),
    [
        (
            "token_classifier",
            "words",
            specs(words=2, num_words=1),
            {"labels": heads.TAGS, "max_seq_length": heads.TAGS_LENGTH},
        ),
        (
            "multiple_choice",
            "counted",
            specs(context=1, question=1, choices=2, num_choices=1),
            {"max_seq_length": 20, "max_qa_length": 9, "fills_blanks": True},
        ),
        (
            "beam_question_answering",
            "serving_default",
            specs(question=1, context=1),
            {"max_seq_length": 24, "answering": ANSWERING},
        ),
    ],
)
def test_the_manifest_of_other_heads(head, name, inputs, expected, export_one):
    _, found = export_one(heads.make_model(head), name, warmup_batch_sizes=())
    assert found["signatures"] == {name: inputs}
    assert {name: found[name] for name in expected} == expected


@pytest.mark.slow
def test_bfloat16(classify, export_one, monkeypatch):
    monkeypatch.setattr(cpu, "flags", lambda: frozenset({"avx512f", "amx_bf16"}))
    options = {"warmup_batch_sizes": (1,), "precision": "bfloat16"}
    made, found = export_one(classify.model, "serving_default", **options)
    assert (found["precision"], found["forward"]) == ("bfloat16", "fast")
    reader = tf.train.load_checkpoint(f"{made}/variables/variables")
    types = reader.get_variable_to_dtype_map().values()
    # For one shared block: the projection, query-key-value, output and both of the
    # feed-forward, each with a bias.
    assert sum(dtype == tf.bfloat16 for dtype in types) == 10
    served = tf.saved_model.load(made).signatures["serving_default"]
    got = served(text=tf.constant(TEXTS))["logits"].numpy()
    error = np.abs(got - classify.logits(TEXTS)).max()
    assert 1e-5 < error < 0.2


@pytest.mark.slow
def test_another_dtype_is_left_to_keras(classify, tokenizer, export_one):
    config = classify.model.config
    model = AlbertTextClassifier(config, num_labels=3, dtype="mixed_bfloat16")
    model.set_weights(classify.model.get_weights())
    made, found = export_one(model, "serving_default", warmup_batch_sizes=())
    assert (found["precision"], found["forward"]) == ("float32", "keras")
    got = tf.saved_model.load(made).signatures["serving_default"](text=["a cat"])
    expected = Classifier(model, tokenizer, heads.LABELS).logits(["a cat"])
    np.testing.assert_allclose(got["logits"], expected, atol=0.02)


def test_an_encoder_alone(tokenizer):
    signatures = heads.functions_of(Embedder(heads.make_model(None), tokenizer), 24)
    assert signatures.keys() == TOKENS
    got = signatures["serving_default"](text=tf.constant(["a cat", "b"]))
    assert got.keys() == {"mean_output", "cls_output", "pooled_output"}


def test_pretraining(tokenizer):
    model = heads.make_model("pretraining")
    signatures = make_signatures(model, TextInputs(tokenizer, 24))
    got = signatures["serving_default"](text=tf.constant(["a cat", "b"]))
    assert got.keys() == {"mean_output", "cls_output", "pooled_output"}
    assert "classify" not in signatures and "fill_mask" in signatures
    tokens = {"token_ids": [[2, 4, 3]], "segment_ids": [[0, 0, 0]]}
    inputs = {k: tf.constant(v) for k, v in tokens.items()}
    inputs["mask_positions"] = tf.constant([[1]])
    got = signatures["masked_lm"](lengths=tf.constant([3]), **inputs)
    expected = model(inputs)["mlm_logits"]
    np.testing.assert_allclose(got["logits"], expected, atol=1e-5)
    inputs["mask_positions"] = tf.constant([[3]])
    with pytest.raises(tf.errors.InvalidArgumentError, match="mask_positions: from 0"):
        signatures["masked_lm"](lengths=tf.constant([3]), **inputs)


def test_refuses(classify, folder, tokenizer, tmp_path, monkeypatch):
    monkeypatch.setattr(cpu, "flags", lambda: frozenset({"avx2"}))
    before = sorted(folder.rglob("*"))
    encoder, tagger = heads.make_model(None), heads.make_model("token_classifier")
    small = AlbertBackbone(tiny.CONFIG.replace(vocab_size=40))
    for changes, message in (
        ({"path": folder.parent, "version": 7}, "7: exists already"),
        ({"path": folder}, "7: exists already"),
        ({"top_k": 3}, "top_k: AlbertTextClassifier has no use"),
        ({"answering": {"top": 3, 3: 4}}, "answering: .* has no use for top, 3"),
        ({"model": encoder, "labels": ["a"]}, "labels: AlbertBackbone has no use"),
        ({"version": 0}, "version must be positive, received 0"),
        ({"max_seq_length": 25}, "max_position_embeddings=24, received 25"),
        (
            {"model": keras.Sequential()},
            "AlbertTextEmbedder, ElectraPretrainer, received Sequential",
        ),
        ({"labels": ["a", "b"]}, "labels: expected 3 names, .* received 2"),
        (
            {"model": tagger, "labels": ["O", "B"]},
            "labels: expected 5 names, .*received",
        ),
        ({"model": tagger, "labels": ["O", "", *"abc"]}, "labels: expected 5 names"),
        ({"model": small}, "at most vocab_size=40 tokens"),
        ({"precision": "bfloat16"}, "received a CPU without AVX-512"),
    ):
        given = {"model": classify.model, "path": tmp_path / "m", **changes}
        with pytest.raises(UsageError, match=message):
            saved_model.export_saved_model(**given, tokenizer=tokenizer)
    assert sorted(folder.rglob("*")) == before
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_failure_leaves_nothing(export_one, tmp_path):
    model = AlbertTextClassifier(tiny.CONFIG, num_labels=3, seed=5)
    model.classifier.bias.assign([np.nan, 0, 0])
    with pytest.raises(DataError, match="NaN or infinity; check the model's weights"):
        export_one(model, "serving_default", warmup_batch_sizes=(1,))
    assert not list(tmp_path.iterdir())
