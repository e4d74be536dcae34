"""A teacher of pretraining: what it computes, what it never changes, and refusals."""

import json

import numpy as np
import pytest
import tensorflow as tf

from albert_tf import AlbertConfig
from albert_tf.converters.load import open_checkpoint, save_pretrained
from albert_tf.errors import UsageError
from albert_tf.layers.depth import limit_layers
from albert_tf.models.backbone import AlbertBackbone
from albert_tf.models.base import weight_names
from albert_tf.models.masked_lm import AlbertMaskedLM, AlbertPretrainer
from albert_tf.text.load import load_tokenizer
from albert_tf.training.pretrain_settings import PretrainSettings
from albert_tf.training.pretrain_teacher import Distillation
from tests.text.kinds import WORDPIECE
from tests.tiny import SPIECE
from tests.training import runs, steps

DRAWN = {"depth_range": ("1", "2")}
WIDE = {**runs.SIZES, "hidden_size": 16, "num_hidden_layers": 2}


@pytest.fixture
def teacher_of(tmp_path):
    """Saves a masked LM: `teacher_of(type_vocab_size=1)`."""

    def make(model=AlbertMaskedLM, seed=5, other=False, **changes):
        path = tmp_path / f"teacher_{len(list(tmp_path.iterdir()))}"
        own = WORDPIECE["wordpiece"] if other else load_tokenizer(str(SPIECE))
        config = AlbertConfig(**{**WIDE, **changes})
        save_pretrained(model(config, seed=seed), path, tokenizer=own)
        return str(path)

    return make


def test_outputs_and_no_gradient_to_the_teacher():
    student = AlbertPretrainer(steps.CONFIG, seed=1)
    config = steps.CONFIG.replace(hidden_size=24, inner_group_num=2)
    teacher = AlbertMaskedLM(config, seed=2)
    both = Distillation(student, teacher, ((1, 2), (2, 1)))
    batch = {k: tf.constant(v[:4]) for k, v in steps.make_rows().items()}
    assert teacher.variables == both.frozen
    with tf.GradientTape() as tape:
        for variable in both.frozen:
            tape.watch(variable.value)
        outputs = both(batch, training=True)
        own = [*student.trainable_variables, *both.extra_weights.values()]
        read = [outputs["mlm_logits"], outputs["teacher_logits"], outputs["states"]]
        total = sum(tf.reduce_sum(x) for x in tf.nest.flatten(read))
    gradients = tape.gradient(total, [v.value for v in [*own, *both.frozen]])
    assert gradients[len(own) :] == [None] * len(both.frozen)
    assert None not in gradients[len(own) - 2 : len(own)]
    names = ["projection_1_2/kernel", "projection_2_1/kernel"]
    assert list(both.extra_weights) == names
    states = teacher(batch, output_hidden_states=True)["hidden_states"]
    for (own, goal), layer in zip(outputs["states"], (2, 1), strict=True):
        assert own.shape == goal.shape == (4, steps.LENGTH, 24)
        np.testing.assert_array_equal(goal, states[2 * layer])
    np.testing.assert_array_equal(outputs["teacher_logits"], teacher(batch))
    with limit_layers(1):  # of the student
        outputs = Distillation(student, teacher)(batch)
    np.testing.assert_array_equal(outputs["teacher_logits"], teacher(batch))


@pytest.mark.slow
def test_a_run_with_a_teacher(teacher_of, tmp_path):
    given = {"teacher": teacher_of(), "teacher_layers": ("1:2",), "eval_steps": 3}
    given |= {"eval_file": runs.RECORDS, "keep_best": "teacher_loss"}
    given |= {"teacher_weight": 0.25, "save_checkpoints_steps": 3, "max_eval_steps": 1}
    model = runs.run_pretraining(tmp_path, **given)
    for line in runs.lines_of(tmp_path / "run"):
        loss = 0.75 * line["mlm_loss"] + line["sop_loss"]
        loss += 0.25 * (line["teacher_loss"] + line["states_loss"])
        assert line["loss"] == pytest.approx(loss, rel=1e-5)
        assert 0 <= line["teacher_accuracy"] <= 1
    # The matrix between the widths is in the checkpoints, and in no model.
    saved = tf.train.list_variables(str(tmp_path / "run/checkpoints/step-6"))
    (name,) = [n for n, _ in saved if n.startswith("extra/")]
    assert "projection_1_2" in name
    expected = weight_names(AlbertPretrainer(AlbertConfig(**runs.SIZES)))
    for folder in (model, tmp_path / "run/best"):
        with open_checkpoint(folder) as checkpoint:
            assert {*checkpoint.tensors} == {*expected}
    card = (tmp_path / "run/README.md").read_text()
    assert "weight 0.25, temperature 2, and from its layers (`1:2`, stud" in card
    record = json.loads((tmp_path / "run/run.json").read_text())
    assert len(record["content"]["teacher"]) == 64
    given["teacher"] = teacher_of(seed=6)
    with pytest.raises(UsageError, match="another run, with teacher="):
        runs.run_pretraining(tmp_path, **given)


@pytest.mark.parametrize(
    ("teacher", "changes", "message"),
    [
        ({"other": True}, {}, "--teacher=.* the run's vocabulary.* 30,000 tokens, rec"),
        ({"vocab_size": 30001}, {}, "must have vocab_size=30000, as the model"),
        ({"max_position_embeddings": 64}, {}, "max_seq_length must be at most 64"),
        ({"type_vocab_size": 1}, {}, r"must be in \[0, 1\), .* its teacher"),
        ({}, {"teacher_layers": ("1:3",)}, "layers 1 to 1, the teacher 1 to 2.*'1:3'"),
        ({}, {"teacher_layers": ("0:1",)}, "layers 1 to 1, the teacher 1 to 2.*'0:1'"),
        ({"model": AlbertBackbone}, {}, "has no trained mlm_head"),
    ],
)
def test_a_teacher_that_cannot_teach(teacher_of, tmp_path, teacher, changes, message):
    changes = {"teacher": teacher_of(**teacher), **changes}
    with pytest.raises(ValueError, match=message) as caught:
        runs.run_pretraining(tmp_path, **changes)
    assert "\n" not in str(caught.value) and not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"objective": "electra"}, "--teacher: ELECTRA's discriminator predicts no to"),
        ({"teacher_layers": ("2-4",)}, "must be pairs of layers.*'2-4'"),
        ({"teacher_layers": ("1:2", "01:2")}, "no pair of layers twice, .*'1:2,01:2'"),
        ({"teacher_layers": ("1:1",), "depth": "loop"}, "--depth=loop: cannot be comb"),
        ({"teacher_layers": ("1:1",), **DRAWN}, "--depth_range: cannot be combined"),
        (
            {**DRAWN, "depth_consistency": 0.1},
            "--depth_consistency: cannot be combined",
        ),
        ({"teacher": "", "teacher_layers": ("1:1",)}, "--teacher_layers: requires"),
        ({"teacher": "", "teacher_weight": 0.5}, "--teacher_weight: requires"),
    ],
)
def test_settings_that_do_not_fit_a_teacher(tmp_path, changes, message):
    with pytest.raises(UsageError, match=message):
        PretrainSettings(**runs.pretraining(tmp_path, **{"teacher": "t", **changes}))
