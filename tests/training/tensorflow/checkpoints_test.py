"""Helpers of a run on several machines leave no files behind."""

import pytest

from albert_tf.config import AlbertConfig
from albert_tf.models.pretrainer import AlbertPretrainer
from albert_tf.optimizers import create_optimizer
from albert_tf.training.tensorflow.checkpoints import TrainingCheckpoints, latest_step

CONFIG = AlbertConfig(
    vocab_size=11,
    embedding_size=2,
    hidden_size=4,
    num_hidden_layers=1,
    num_attention_heads=2,
    intermediate_size=3,
    max_position_embeddings=5,
)


@pytest.fixture
def run():
    model = AlbertPretrainer(CONFIG, seed=1)
    optimizer = create_optimizer("lamb", learning_rate=0.1, num_train_steps=5)
    optimizer.build(model.trainable_variables)
    return {"model": model, "optimizer": optimizer, "seed": 3}


def test_a_helper_leaves_nothing(run, tmp_path):
    TrainingCheckpoints(tmp_path, **run).save()
    left = tmp_path / "worker-1"
    left.mkdir()
    (left / "step-9.index").touch()  # of a run that was killed
    helper = TrainingCheckpoints(tmp_path, **run, helper="worker-1")
    assert not left.exists()
    assert helper.restore(tmp_path) == 0  # the chief's checkpoint
    helper.save()
    assert (left / "step-0.index").exists()
    helper.finish()
    assert not left.exists()
    assert (tmp_path / "step-0.index").exists()


def test_helpers_on_several_machines_have_their_own_folders(run, tmp_path):
    one, two = (
        TrainingCheckpoints(tmp_path, **run, helper=name) for name in ("w-1", "w-2")
    )
    one.save()
    two.save()
    one.finish()
    assert (tmp_path / "w-2/step-0.index").exists()


def test_the_latest_step_is_in_the_name(run, tmp_path):
    assert latest_step(tmp_path) is None
    for step in (4, 12):
        run["optimizer"].iterations.assign(step)
        TrainingCheckpoints(tmp_path, **run).save()
    assert latest_step(tmp_path) == 12
