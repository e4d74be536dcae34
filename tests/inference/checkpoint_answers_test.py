"""What the checkpoints of a run answer, with one of them gone."""

import json
import shutil

import pytest
import tensorflow as tf

from albert_tf.converters import load
from albert_tf.errors import UsageError
from albert_tf.inference import checkpoint_answers
from albert_tf.inference.checkpoint_answers import answer_all
from albert_tf.inference.fill_mask import FillMask
from albert_tf.models.base import weight_names
from albert_tf.models.masked_lm import AlbertPretrainer
from tests import tiny

PROMPTS = ["a [MASK] b", "the [MASK] [MASK]"]


@pytest.fixture(scope="module")
def run(tmp_path_factory, tokenizer):
    """A run with two checkpoints and its model."""
    folder = tmp_path_factory.mktemp("run")
    settings = {"num_train_steps": 30}
    shutil.copy(tiny.SPIECE, folder / "spiece.model")
    content = {"config": tiny.CONFIG.to_dict(), "tokenizer": tokenizer.get_config()}
    record = {"settings": settings, "content": content}
    (folder / "run.json").write_text(json.dumps(record))
    for step in (9, 10):
        model = AlbertPretrainer(tiny.CONFIG, seed=step)
        values = {name: v.value for name, v in weight_names(model).items()}
        saved = tf.train.Checkpoint(weights=values)
        saved.write(str(folder / f"checkpoints/step-{step}"))
    load.save_pretrained(model, folder / "model", tokenizer=tokenizer)
    return folder


def test_checkpoints_answer_in_their_order(run, caplog):
    (run / "checkpoints/step-8.index").write_bytes(b"torn")
    found = list(answer_all(str(run), PROMPTS, 2))
    (run / "checkpoints/step-8.index").unlink()
    assert [one["name"] for one in found] == ["step 9", "step 10", "model"]
    assert "step-8: left out" in caplog.text
    first, second, model = (one["answers"] for one in found)
    assert [[len(mask) for mask in text] for text in first] == [[2], [2, 2]]
    assert first != second == model
    for step, answers in ((9, first), (10, second)):
        expected = FillMask.from_pretrained(run / f"checkpoints/step-{step}")
        for (token, score), one in zip(
            answers[0][0], expected(PROMPTS[0], 2), strict=True
        ):
            # The texts of a batch are padded to one length.
            assert (token, score) == (
                one["token_str"],
                pytest.approx(one["score"], 1e-4),
            )


def test_what_answers_says_which_weights_it_has(run, tmp_path):
    copy = tmp_path / "run"
    shutil.copytree(run, copy)
    (copy / "checkpoints/step-10.index").rename(copy / "checkpoints/step-0.index")
    record = json.loads((run / "run.json").read_text())
    record["settings"] |= {"ema_decay": 0.9, "export_weights": "average"}
    (copy / "run.json").write_text(json.dumps(record))
    best = {"metric": "loss", "step": 4}
    shutil.copytree(run / "model", copy / "best")
    (copy / "best/best.json").write_text(json.dumps(best))
    assert [name for name, _ in checkpoint_answers._sources(str(copy))] == [
        "step 0, last weights",
        "step 9, averaged weights",
        "best, step 4, last weights",
        "model, averaged weights",
    ]
    record["settings"]["export_weights"] = "last"
    (copy / "run.json").write_text(json.dumps(record))
    best["metric"] = "ema_loss"
    (copy / "best/best.json").write_text(json.dumps(best))
    assert [name for name, _ in checkpoint_answers._sources(str(copy))][1:] == [
        "step 9, last weights",
        "best, step 4, averaged weights",
        "model, last weights",
    ]


def test_a_text_that_is_too_long_is_refused(run):
    with pytest.raises(UsageError, match="expected at most 24 tokens"):
        next(answer_all(str(run), ["a [MASK]" + " b" * 30]))


def test_a_run_without_checkpoints_answers_nothing(tmp_path):
    assert list(answer_all(str(tmp_path), PROMPTS)) == []
