"""Every head of fine-tuning through the formats that have it, and back, bit for bit."""

import numpy as np
import pytest

import albert_tf
from albert_tf.heads import HEADS
from albert_tf.models.base import weight_names
from tests.tiny import CONFIG, randomize

TAGS = ("O", "B-PER", "I-PER")
# What a fine-tuned model says about itself, by its head.
KINDS = {
    "text_classifier": [
        (("no", "yes"), "single_label_classification"),
        (("a", "b", "c"), "multi_label_classification"),
        ((), "regression"),
    ],
    "token_classifier": [(TAGS, None)],
    "question_answering": [((), None)],
    "beam_question_answering": [((), None)],
    "multiple_choice": [((), None)],
}
# Hugging Face has no such model of ALBERT; `beam_head_test` tests the refusal.
ONLY_TF1 = {"beam_question_answering"}
CASES = [
    pytest.param(format, head, *kind, id="-".join([format, head, kind[1] or ""]))
    for head, kinds in KINDS.items()
    for kind in kinds
    for format in ("huggingface", "tf1")
    if format == "tf1" or head not in ONLY_TF1
]


def test_every_head_of_fine_tuning_is_here():
    assert set(KINDS) == set(HEADS) - {"pretraining", "masked_lm"}


def make_model(head, labels, problem_type):
    kwargs = {}
    if head in ("text_classifier", "token_classifier"):
        kwargs["num_labels"] = len(labels) or 1
    model = randomize(HEADS[head].load_class()(CONFIG, seed=2, **kwargs))
    model.labels, model.problem_type = labels or None, problem_type
    return model


def outputs(model, head):
    rng = np.random.default_rng(1)
    shape = (3, 4, 9) if head == "multiple_choice" else (3, 9)
    mask = (np.arange(9) < 7) * np.ones(shape, "int32")
    batch = {
        "token_ids": rng.integers(5, 60, shape).astype("int32"),
        "segment_ids": ((np.arange(9) > 3) * mask).astype("int32"),
        "padding_mask": mask.astype("int32"),
    }
    out = model(batch)
    return out if isinstance(out, dict) else {"logits": out}


@pytest.mark.parametrize(("format", "head", "labels", "problem_type"), CASES)
def test_there_and_back(tmp_path, format, head, labels, problem_type):
    model = make_model(head, labels, problem_type)
    albert_tf.save_pretrained(model, tmp_path / "there", format=format)
    there = albert_tf.from_pretrained(tmp_path / "there", preprocessor=None)
    albert_tf.save_pretrained(there, tmp_path / "back", format="albert_tf")
    back = albert_tf.from_pretrained(tmp_path / "back", preprocessor=None)
    assert type(back) is type(model) and back.untrained_weights == []
    assert back.labels == model.labels
    if problem_type is not None:
        assert back.problem_type == problem_type
    found, expected = weight_names(back), weight_names(model)
    # A head that does not use the pooler has none in Hugging Face.
    assert {name for name in expected if "pooler" not in name} <= set(found)
    for name, value in found.items():
        np.testing.assert_array_equal(value, expected[name], err_msg=name)
    received = outputs(back, head)
    for name, value in outputs(model, head).items():
        np.testing.assert_array_equal(received[name], value, err_msg=name)
