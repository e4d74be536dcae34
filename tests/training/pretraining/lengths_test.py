"""Sequences that grow longer: phases, their batches, and a run across them."""

import json

import numpy as np
import pytest

import albert_tf
from albert_tf.data.batches.pretraining import PretrainingData
from albert_tf.data.corpus.corpus import Corpus
from albert_tf.data.masking.config import MaskingConfig
from albert_tf.data.prepare.config import RecordConfig
from albert_tf.data.prepare.create import create_pretraining_data
from albert_tf.data.prepare.pairs import PairConfig
from albert_tf.errors import UsageError
from albert_tf.objectives.pretraining import ALBERT
from albert_tf.training import pretrain
from albert_tf.training.pretrain_batches import RunBatches
from albert_tf.training.pretrain_settings import PretrainSettings, phases_of
from tests.training.pretraining.averages_test import stop_after
from tests.training.pretraining.pretrain_test import CONFIG, GOLDEN

SPIECE = GOLDEN / "tokenization/spiece.model"


def make_settings(**changes):
    values = {
        "input_file": "data/{length}/x",
        "output_dir": "run",
        "spm_model_file": "spiece.model",
        "preset": "albert_base",
        "sequence_length_schedule": "128:9,512:4",
        "num_train_steps": 13,
        "num_warmup_steps": 2,
        **changes,
    }
    return PretrainSettings(**values)


def test_phases_are_runs_of_their_length():
    short, long = phases_of(make_settings(train_batch_size=64))
    assert (short.first_step, short.last_step) == (0, 9)
    assert (long.first_step, long.last_step) == (9, 13)
    assert short.settings.input_file == "data/128/x"
    assert long.settings.input_file == "data/512/x"
    lengths = [phase.settings.max_seq_length for phase in (short, long)]
    predictions = [phase.settings.num_predictions for phase in (short, long)]
    assert (lengths, predictions) == ([128, 512], [19, 77])
    phases = phases_of(make_settings(max_predictions_per_seq=77))
    assert [phase.settings.num_predictions for phase in phases] == [20, 77]
    assert {phase.settings.train_batch_size for phase in (short, long)} == {64}
    schedule = "128:9:64,512:4:16"
    phases = phases_of(make_settings(sequence_length_schedule=schedule))
    assert [phase.settings.train_batch_size for phase in phases] == [64, 16]
    assert make_settings().input_files() == ["data/128/x", "data/512/x"]


def test_a_run_of_one_length_is_one_phase():
    settings = make_settings(sequence_length_schedule="")
    (phase,) = phases_of(settings)
    assert (phase.first_step, phase.last_step) == (0, 13)
    assert phase.intervals().log_steps == 1
    assert make_settings(log_steps=7).intervals().log_steps == 7
    assert phase.settings is settings
    assert PretrainSettings.defaults()["sequence_length_schedule"] == ""


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"sequence_length_schedule": "128"}, "schedule must be rising.*'128'"),
        ({"sequence_length_schedule": "512:9,128:4"}, "must be rising lengths"),
        ({"sequence_length_schedule": "128:9,128:4"}, "must be rising lengths"),
        ({"sequence_length_schedule": "128:9,512:0"}, "positive numbers of steps"),
        ({"sequence_length_schedule": "128:9:0,512:4"}, "positive numbers of steps"),
        ({"sequence_length_schedule": "128:9,,512:4"}, "must be rising lengths"),
        ({"num_train_steps": 14}, "--num_train_steps must be 13, .*received 14"),
        ({"max_seq_length": 256}, "--max_seq_length must be 512, .*received 256"),
        ({"input_file": "data/x"}, "--input_file must contain {length} .*data/x"),
        (
            {
                "sequence_length_schedule": "128:9:8,512:4:3",
                "gradient_accumulation_steps": 2,
                "train_batch_size": 8,
            },
            "received 3 and 2",
        ),
        (
            {
                "sequence_length_schedule": "128:9:8,512:4:2",
                "scale_learning_rate": True,
            },
            "--scale_learning_rate knows one --train_batch_size=4096, received",
        ),
    ],
)
def test_nonsense_is_refused(changes, message):
    with pytest.raises(UsageError, match=message):
        make_settings(**changes)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Records of 32 and of 64 tokens, and a config."""
    folder = tmp_path_factory.mktemp("lengths")
    for length in (32, 64):
        create_pretraining_data(
            Corpus(str(GOLDEN / "tf1_data/input.txt")),
            str(folder / f"of_{length}/x"),
            albert_tf.AlbertTokenizer(SPIECE),
            RecordConfig(pairs=PairConfig("none", length)),
            num_processes=1,
            progress=False,
        )
    (folder / "config.json").write_text(json.dumps(CONFIG))
    return folder


def settings_of(folder, output_dir, schedule="32:4:6,64:3:2"):
    return PretrainSettings(
        input_file=str(folder / "of_{length}"),
        eval_file=str(folder / "of_64"),
        spm_model_file=str(SPIECE),
        albert_config_file=str(folder / "config.json"),
        output_dir=str(output_dir),
        max_seq_length=64,
        max_predictions_per_seq=10,
        num_train_steps=7,
        num_warmup_steps=1,
        learning_rate=0.01,
        max_eval_steps=1,
        eval_batch_size=8,
        eval_steps=3,
        save_checkpoints_steps=2,
        sequence_length_schedule=schedule,
    )


def test_batches_of_a_phase_are_those_of_a_run_of_its_length(folder, tokenizer):
    settings = settings_of(folder, "unused")
    data = RunBatches(settings, ALBERT, tokenizer, replicas=1)
    expected_shapes = {0: (6, 32, 5), 3: (6, 32, 5), 4: (2, 64, 10), 6: (2, 64, 10)}
    for step, (rows, length, predictions) in expected_shapes.items():
        batch = next(data.train(step).as_numpy_iterator())
        assert batch["token_ids"].shape == (rows, length)
        assert batch["mask_ids"].shape == (rows, predictions)
        alone = PretrainingData(
            str(folder / f"of_{length}"),
            tokenizer=tokenizer,
            max_seq_length=length,
            max_predictions_per_seq=predictions,
            masking=MaskingConfig.from_preset("albert"),
            seed=settings.seed,
        )
        # A phase begins with the first batch of its records.
        first = 0 if length == 32 else 4
        batches = alone.batches(rows, start_step=step - first)
        expected = next(batches.as_numpy_iterator())
        for name, value in expected.items():
            np.testing.assert_array_equal(batch[name], value, name)
    # Static shapes in each phase, as a TPU needs them.
    assert data.train(0).element_spec["token_ids"].shape == (6, 32)
    assert data.train(4).element_spec["token_ids"].shape == (2, 64)
    assert list(data.more_records) == [32]
    assert data.summary.startswith("32 tokens until step 4: ")
    assert "; 64 tokens until step 7: " in data.summary


def evaluations(run):
    lines = (run / "metrics.jsonl").read_text().splitlines()
    return [x for x in map(json.loads, lines) if x["split"] == "eval"]


@pytest.mark.slow
def test_a_run_is_resumed_in_each_phase_with_the_same_bits(
    folder, tmp_path, monkeypatch
):
    pretrain.pretrain(settings_of(folder, tmp_path / "whole"))
    whole = tmp_path / "whole"
    # Phases end with an evaluation, which is not repeated when the next one begins.
    assert [line["step"] for line in evaluations(whole)] == [3, 4, 6, 7]
    assert "`32:4:6,64:3:2`" in (whole / "README.md").read_text()
    content = json.loads((whole / "run.json").read_text())["content"]["data"]
    assert {"records", "records of 32 tokens"} <= set(content)
    cut = settings_of(folder, tmp_path / "cut")
    # In the first phase, at the boundary (before its evaluation), and in the second.
    for step in (2, 4, 6):
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            stop_after(patch, step)
            pretrain.pretrain(cut)
    pretrain.pretrain(cut)
    name = "model/model.safetensors"
    assert (tmp_path / "cut" / name).read_bytes() == (whole / name).read_bytes()
    assert evaluations(tmp_path / "cut") == evaluations(whole)
    with pytest.raises(UsageError, match="--sequence_length_schedule='32:4:6,64:3:2'"):
        pretrain.pretrain(settings_of(folder, whole, schedule="32:4:6,64:3:1"))
