"""RoBERTa, ELECTRA and BERT through the commands: Python answers as a SavedModel."""

import functools
import json

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_text  # noqa: F401  (registers the operations)

from albert_tf.converters.load import from_pretrained, save_pretrained
from albert_tf.inference.classifier import Classifier
from albert_tf.inference.embedder import Embedder
from albert_tf.inference.fill_mask import FillMask
from albert_tf.inference.multiple_choice import MultipleChoice
from albert_tf.inference.question_answerer import QuestionAnswerer
from albert_tf.inference.token_classifier import TokenClassifier
from albert_tf.text import inputs
from albert_tf.text.byte_bpe import ByteBPETokenizer, train
from albert_tf.text.wordpiece import WordPieceTokenizer
from tests.commands import run_command
from tests.text import kinds
from tests.tiny import make_model
from tests.training.runs import family as examples

# RoBERTa's order, in which padding is 1.
SPECIAL = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
SIZES = {"max_position_embeddings": 64, "sharing": "none", "hidden_act": "gelu"}
SIZES["num_hidden_layers"] = 1
BERT = {**SIZES, "vocab_size": 1000}
ROBERTA = {"type_vocab_size": 1, "position_offset": 2, "layer_norm_eps": 1e-5}
FAMILIES = {
    "roberta": {**SIZES, **ROBERTA, "vocab_size": 600},
    "electra": {**BERT, "embedding_size": 6},
    "bert": {**BERT, "embedding_size": 12},
}
TEXTS = ["Élodie went to Zürich Street.", "", "1,204 boats  in the café\u0301 ½ 😀"]
PAIRS = ["The wind came from the south-west. " * 9, "noon", "a band \n of the village"]


@functools.cache
def tokenizer_of(name):
    if name == "roberta":
        return ByteBPETokenizer(train(kinds.TEXTS * 3, 600, SPECIAL))
    return WordPieceTokenizer(kinds.WORDPIECE_FILE)


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    """Returns the folder that a family's fine-tuning starts from, in its own format."""

    @functools.cache
    def make(name, head="masked_lm"):
        folder = tmp_path_factory.mktemp(name) / head
        sizes = {**FAMILIES[name], "family": name}
        sizes["vocab_size"] = tokenizer_of(name).vocab_size
        sizes.setdefault("embedding_size", 12)
        tokenizer = tokenizer_of(name)
        model = make_model(head, **sizes)
        save_pretrained(model, folder, format="huggingface", tokenizer=tokenizer)
        return folder

    return make


def run(verb, **flags):
    done = run_command(verb, **flags)
    assert done.code == 0, done.err
    return done.out


def plain(value):
    """Returns a NumPy value as JSON has it."""
    if isinstance(value, np.ndarray):
        return [plain(item) for item in value]
    return value.decode() if isinstance(value, bytes) else value


def served_answers(folder, tmp_path, signature="serving_default", **columns):
    """Returns the answers of the exported model, a dict for each row."""
    if not (tmp_path / "served").exists():
        given = {"output_dir": tmp_path / "served", "warmup_batch_sizes": ""}
        run("export", model=folder, **given)
    served = tf.saved_model.load(str(tmp_path / "served"))
    columns = {name: tf.constant(values) for name, values in columns.items()}
    found = served.signatures[signature](**columns)
    arrays = {name: plain(value.numpy()) for name, value in found.items()}
    count = len(next(iter(columns.values())))
    return [{k: v[i] for k, v in arrays.items()} for i in range(count)]


def check_texts(model, tmp_path):
    rows = served_answers(model, tmp_path, "pair", text=TEXTS, text_pair=PAIRS)
    expected = Classifier.from_pretrained(model)(TEXTS, PAIRS)
    for row, want in zip(rows, expected, strict=True):
        assert row["label"] == want["label"]
        assert max(row["probabilities"]) == pytest.approx(want["score"], abs=1e-6)


def check_words(model, tmp_path):
    rows = served_answers(model, tmp_path, "tag", text=PAIRS + TEXTS)
    expected = TokenClassifier.from_pretrained(model)(PAIRS + TEXTS, aggregate=False)
    for row, want in zip(rows, expected, strict=True):
        count = row["num_words"]
        assert count == len(want)
        assert row["tags"][:count] == [entry["entity"] for entry in want]
        assert row["words"][:count] == [entry["word"] for entry in want]
        scores = [entry["score"] for entry in want]
        np.testing.assert_allclose(row["scores"][:count], scores, atol=1e-6)


def check_choices(model, tmp_path):
    choices = [["noon", "in the café"], ["a", "b", "c" * 90], ["one"]]
    padded = [row + [""] * (3 - len(row)) for row in choices]
    given = {"context": PAIRS, "question": TEXTS, "choices": padded}
    rows = served_answers(model, tmp_path, **given)
    expected = MultipleChoice.from_pretrained(model)(PAIRS, choices, TEXTS)
    for row, want in zip(rows, expected, strict=True):
        scores = [x["score"] for x in sorted(want, key=lambda x: x["index"])]
        found = row["probabilities"][: len(scores)]
        np.testing.assert_allclose(found, scores, atol=1e-6)
        assert row["choice"] == want[0]["choice"]


def check_spans(model, tmp_path):
    contexts = [PAIRS[0] * 4, TEXTS[2] * 3, PAIRS[2]]
    rows = served_answers(model, tmp_path, question=TEXTS, context=contexts)
    answer = QuestionAnswerer.from_pretrained(model)
    expected = answer(TEXTS, contexts)
    for row, want, context in zip(rows, expected, contexts, strict=True):
        assert row["score"] == pytest.approx(want["score"], abs=1e-6)
        found = {name: row[name] for name in ("answer", "start", "end")}
        assert found == {name: want[name] for name in found}
        assert want["answer"] == context[want["start"] : want["end"]]


CHECKS = {
    "texts": check_texts,
    "words": check_words,
    "choices": check_choices,
    "spans": check_spans,
}
# The others take long; tests/export has choices and masks of byte-level BPE.
FEW = [("roberta", "spans"), ("electra", "texts")]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "task"),
    [
        pytest.param(a, b, marks=[] if (a, b) in FEW else pytest.mark.broad)
        for a in FAMILIES
        for b in CHECKS
    ],
)
def test_fine_tuned_models(start, tmp_path, name, task):
    given = examples(
        task, tmp_path, start(name, *["discriminator"][: name == "electra"])
    )
    given |= {"num_train_steps": 2, "eval_steps": 2, "output_dir": tmp_path / "run"}
    if task == "texts":
        given["text_pair_column"] = "id"
    run("finetune", **given)
    model = tmp_path / "run"
    config = from_pretrained(model).config
    assert (config.family, config.type_vocab_size) == (name, 2 - (name == "roberta"))
    out = tmp_path / ("p.json" if task == "spans" else "p.jsonl")
    file = {"input_file": given["dev_file"], "output_file": out}
    run("predict", model=model, **file)
    assert out.stat().st_size
    CHECKS[task](model, tmp_path)


@pytest.mark.broad  # as the others
@pytest.mark.parametrize("name", FAMILIES)
def test_masks_and_vectors(start, tmp_path, name):
    model = start(name)
    texts = ["a [MASK] day in [MASK]", "[MASK]"]
    rows = served_answers(model, tmp_path, "fill_mask", text=texts)
    expected = FillMask.from_pretrained(model)(texts, top_k=10)
    expected[1] = [expected[1]]
    for row, masks in zip(rows, expected, strict=True):
        ids = [[x["token"] for x in mask] for mask in masks]
        assert row["token_ids"][: len(masks)] == ids
        tokens = [[x["token_str"] for x in mask] for mask in masks]
        assert row["tokens"][: len(masks)] == tokens
    printed = json.loads(run("fill_mask", model=model, text=texts[1], json="true"))
    assert [x["token"] for x in printed["result"]] == rows[1]["token_ids"][0][:5]
    table, out = tmp_path / "t.jsonl", tmp_path / "v.npy"
    texts = TEXTS + PAIRS
    table.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    run("embed", model=model, input_file=table, text_column="text", output_file=out)
    served = [row["mean_output"] for row in served_answers(model, tmp_path, text=texts)]
    np.testing.assert_allclose(np.load(out), served, atol=1e-5)
    embed = Embedder.from_pretrained(model)
    np.testing.assert_allclose(embed(texts), served, atol=1e-5)


def test_a_pair_has_two_separators():
    tokenizer = tokenizer_of("roberta").for_segments(1)
    a, b = tokenizer.encode("a"), tokenizer.encode("b day")
    encoded = inputs.encode_texts(tokenizer, ["a"], ["b day"], max_seq_length=16)
    batch = inputs.padded_inputs(encoded, np.arange(1), 12, tokenizer.pad_id)
    # `<s> A </s></s> B </s>`
    row = [0, *a, 2, 2, *b, 2]
    assert batch["token_ids"].tolist() == [row + [1] * (12 - len(row))]
    assert not batch["segment_ids"].any()
