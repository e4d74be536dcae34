"""RoBERTa, ELECTRA and BERT through the commands: Python answers as a SavedModel."""

import functools

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_text  # noqa: F401  (registers the operations)

from albert_tf.converters.load import from_pretrained, save_pretrained
from albert_tf.inference.classifier import Classifier
from albert_tf.inference.question_answerer import QuestionAnswerer
from albert_tf.text import inputs
from albert_tf.text.byte_bpe import ByteBPETokenizer, train
from albert_tf.text.wordpiece import WordPieceTokenizer
from tests.commands import run_command
from tests.export import heads
from tests.text import kinds
from tests.tiny import make_model
from tests.training.runs import family as examples

# RoBERTa's order, in which padding is 1.
SPECIAL = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
SIZES = {"max_position_embeddings": 64, "sharing": "none", "hidden_act": "gelu"}
SIZES["num_hidden_layers"] = 1
ROBERTA = {"type_vocab_size": 1, "position_offset": 2, "layer_norm_eps": 1e-5}
FAMILIES = {
    "roberta": {**SIZES, **ROBERTA, "embedding_size": 12},
    "electra": {**SIZES, "embedding_size": 6},
}
TEXTS = ["Élodie went to Zürich Street.", "", "1,204 boats  in the café\u0301 ½ 😀"]
PAIRS = ["The wind came from the south-west. " * 9, "noon", "a band \n of the village"]


@functools.cache
def tokenizer_of(name):
    if name == "roberta":
        return ByteBPETokenizer(train(kinds.TEXTS * 3, 600, SPECIAL))
    return WordPieceTokenizer(kinds.WORDPIECE_FILE)


def save_start(folder, name, head):
    """Returns the folder that a family's fine-tuning starts from, in its own format."""
    tokenizer = tokenizer_of(name)
    sizes = {**FAMILIES[name], "family": name, "vocab_size": tokenizer.vocab_size}
    model = make_model(head, **sizes)
    save_pretrained(model, folder, format="huggingface", tokenizer=tokenizer)
    return folder


def run(verb, **flags):
    done = run_command(verb, **flags)
    assert done.code == 0, done.err
    return done.out


def plain(value):
    """Returns a tensor as JSON has it."""
    values = value.numpy().tolist()
    return [x.decode() if isinstance(x, bytes) else x for x in values]


def check_texts(model):
    classify = Classifier.from_pretrained(model)
    pair = heads.functions_of(classify, classify.max_seq_length)["pair"]
    found = pair(tf.constant(TEXTS), tf.constant(PAIRS))
    expected = classify(TEXTS, PAIRS)
    assert plain(found["label"]) == [want["label"] for want in expected]
    scores = found["probabilities"].numpy().max(-1)
    assert scores == pytest.approx([want["score"] for want in expected], abs=1e-6)


def check_spans(model, served):
    contexts = [PAIRS[0] * 4, TEXTS[2] * 3, PAIRS[2]]
    run("export", model=model, output_dir=served, warmup_batch_sizes="")
    served = tf.saved_model.load(str(served)).signatures["serving_default"]
    found = served(question=tf.constant(TEXTS), context=tf.constant(contexts))
    expected = QuestionAnswerer.from_pretrained(model)(TEXTS, contexts)
    for name in ("answer", "start", "end", "score"):
        values = [want[name] for want in expected]
        values = pytest.approx(values, abs=1e-6) if name == "score" else values
        assert plain(found[name]) == values
    for want, context in zip(expected, contexts, strict=True):
        assert want["answer"] == context[want["start"] : want["end"]]


# tests/export has tags, choices and masks of their tokenizers.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "head", "task"),
    [("roberta", "masked_lm", "spans"), ("electra", "discriminator", "texts")],
)
def test_fine_tuned_models(tmp_path, eager, name, head, task):
    eager(task == "texts")  # the steps of spans are computed as a graph
    given = examples(task, tmp_path, save_start(tmp_path / "start", name, head))
    given |= {"num_train_steps": 2, "eval_steps": 2, "output_dir": tmp_path / "run"}
    if task == "texts":
        given["text_pair_column"] = "id"
    run("finetune", **given)
    eager(False)
    model = tmp_path / "run"
    config = from_pretrained(model).config
    assert (config.family, config.type_vocab_size) == (name, 2 - (name == "roberta"))
    out = tmp_path / ("p.json" if task == "spans" else "p.jsonl")
    file = {"input_file": given["dev_file"], "output_file": out}
    run("predict", model=model, **file)
    assert out.stat().st_size
    if task == "texts":
        check_texts(model)
    else:
        check_spans(model, tmp_path / "served")


def test_a_pair_has_two_separators():
    tokenizer = tokenizer_of("roberta").for_segments(1)
    a, b = tokenizer.encode("a"), tokenizer.encode("b day")
    encoded = inputs.encode_texts(tokenizer, ["a"], ["b day"], max_seq_length=16)
    batch = inputs.padded_inputs(encoded, np.arange(1), 12, tokenizer.pad_id)
    # `<s> A </s></s> B </s>`
    row = [0, *a, 2, 2, *b, 2]
    assert batch["token_ids"].tolist() == [row + [1] * (12 - len(row))]
    assert not batch["segment_ids"].any()
