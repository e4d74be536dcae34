"""Fine-tuning heads of Hugging Face against ours: logits, losses and gradients."""

import numpy as np
import pytest
import tensorflow as tf

import albert_tf
from albert_tf.converters.huggingface import name_table
from albert_tf.models.base import weight_names
from albert_tf.objectives.finetuning import Span, for_task

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from transformers.trainer_pt_utils import LabelSmoother  # noqa: E402

from tests.peers.transformers_test import (  # noqa: E402
    assert_same_logits,
    make_batch,
    make_peer,
    peer_logits,
    run_peer,
)

pytestmark = pytest.mark.peers
ROWS, LENGTH, CHOICES = 5, 13, 4


def make_rows(choices=None):
    """Rows `[CLS] A [SEP] B [SEP]` of several lengths, padded at the end."""
    batch = make_batch(LENGTH, ROWS, choices)
    shape = batch["token_ids"].shape
    rng = np.random.default_rng(8)
    lengths = rng.integers(6, LENGTH + 1, shape[:-1])[..., None]
    places = np.arange(LENGTH)
    mask = (places < lengths).astype("int32")
    ids = np.where(mask, batch["token_ids"], 0)
    ids[..., 0] = 2
    ids = np.where((places == 4) | (places == lengths - 1), 3, ids)
    return {
        "token_ids": ids.astype("int32"),
        "segment_ids": (mask * (places > 4)).astype("int32"),
        "padding_mask": mask,
    }


def make_targets(task, batch, classes):
    """Targets in our batch's keys, and as arguments of the peer's `forward`."""
    rng = np.random.default_rng(4)
    if task == "regression":
        labels = rng.normal(2, 1, ROWS).astype("float32")
    elif task == "multi_label_classification":
        labels = rng.integers(0, 2, (ROWS, classes)).astype("float32")
    elif task == "token_classifier":
        labels = rng.integers(0, classes, (ROWS, LENGTH)).astype("int32")
        counted = (rng.random(labels.shape) < 0.5) & (batch["padding_mask"] > 0)
        labels = np.where(counted, labels, -1)
        theirs = np.where(counted, labels, -100)
        return {"labels": labels}, {"labels": torch.tensor(theirs).long()}
    elif task == "question_answering":
        spans = {
            "start_positions": np.array([0, 5, 1, 0, 3], "int32"),
            "end_positions": np.array([0, 5, 2, 0, 5], "int32"),
        }
        return spans, {k: torch.tensor(v).long() for k, v in spans.items()}
    else:
        count = CHOICES if task == "multiple_choice" else classes
        labels = rng.integers(0, count, ROWS).astype("int32")
    tensor = torch.tensor(labels)
    is_float = labels.dtype == np.float32
    return {"labels": labels}, {"labels": tensor if is_float else tensor.long()}


def differentiate(objective, model, batch):
    """Returns the loss and its gradients by the names of the weights."""
    weights = weight_names(model)
    with tf.GradientTape() as tape:
        sums = objective.sums(model(batch), batch)
        loss = objective.loss(sums, objective.weights(batch))
    found = tape.gradient(loss, [v.value for v in weights.values()])
    found = [None if g is None else np.asarray(tf.convert_to_tensor(g)) for g in found]
    return float(loss), dict(zip(weights, found, strict=True))


TASKS = {
    "single_label_classification": ("ForSequenceClassification", "text_classifier"),
    "multi_label_classification": ("ForSequenceClassification", "text_classifier"),
    "regression": ("ForSequenceClassification", "text_classifier"),
    "token_classifier": ("ForTokenClassification", "token_classifier"),
    "question_answering": ("ForQuestionAnswering", "question_answering"),
    "multiple_choice": ("ForMultipleChoice", "multiple_choice"),
}


def make_pair(task, tmp_path):
    """Returns the peer, our model with its weights, and the number of classes."""
    kind, head = TASKS[task]
    classes = {"regression": 1, "question_answering": 2}.get(task, 5)
    options = {} if head == "multiple_choice" else {"num_labels": classes}
    if head == "text_classifier":
        options["problem_type"] = task
    peer = make_peer(kind, **options)
    peer.save_pretrained(tmp_path)
    model = albert_tf.from_pretrained(tmp_path, preprocessor=None)
    assert model.untrained_weights == []
    return peer, model, classes


@pytest.mark.parametrize("task", TASKS)
def test_logits_loss_and_gradients(task, tmp_path):
    peer, model, classes = make_pair(task, tmp_path)
    head = TASKS[task][1]
    batch = make_rows(CHOICES if head == "multiple_choice" else None)
    assert_same_logits(peer, model, batch, head)
    ours, theirs = make_targets(task, batch, classes)
    out = run_peer(peer, batch, **theirs)
    out.loss.backward()
    problem = task if head == "text_classifier" else None
    # Theirs runs over the padding, as the original's does.
    is_span = task == "question_answering"
    objective = Span(mask_padding=False) if is_span else for_task(head, problem)
    loss, gradients = differentiate(objective, model, {**batch, **ours})
    assert loss == pytest.approx(out.loss.item(), abs=1e-5)
    expected = {k: p.grad for k, p in peer.named_parameters()}
    compared = []
    for row in name_table(model.config, head, is_bare=False):
        if row.ours not in gradients or expected.get(row.theirs) is None:
            continue
        found, wanted = gradients[row.ours], row.turn(expected[row.theirs].numpy())
        if row.ours.endswith("word_embeddings"):
            # Theirs gives the padding token no gradient.
            found, wanted = found[1:], wanted[1:]
        np.testing.assert_allclose(found, wanted, atol=1e-5, err_msg=row.ours)
        compared.append(row.ours)
    assert {"classifier/kernel", "classifier/bias"} <= set(compared)
    assert len(compared) >= 20


@pytest.mark.parametrize("head", ["text_classifier", "token_classifier"])
def test_label_smoothing_is_that_of_their_trainer(head, tmp_path):
    task = "single_label_classification" if head == "text_classifier" else head
    peer, model, classes = make_pair(task, tmp_path)
    batch = make_rows()
    ours, theirs = make_targets(task, batch, classes)
    out = run_peer(peer, batch)
    expected = LabelSmoother(epsilon=0.3)({"logits": out.logits}, theirs["labels"])
    objective = for_task(head, label_smoothing=0.3)
    loss, _ = differentiate(objective, model, {**batch, **ours})
    assert loss == pytest.approx(expected.item(), abs=1e-5)
    assert peer_logits(out)["logits"].shape[-1] == classes
