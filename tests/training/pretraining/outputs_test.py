"""What a run leaves beside its model, when it is finished and when it is stopped."""

import json
import pathlib

import pytest

from albert_tf.errors import DataError
from albert_tf.reports.run_files import read_runs
from albert_tf.reports.run_page import RunPage, render_runs
from albert_tf.training import loop, outputs
from albert_tf.training.pretrain import pretrain
from albert_tf.training.pretrain_settings import PretrainSettings
from tests.reports.parsed_page import ParsedPage
from tests.training.pretraining.pretrain_test import CONFIG, GOLDEN, RECORDS

LINE = {"loss": 3.0, "mlm_loss": 2.5, "mlm_accuracy": 0.5, "tokens_per_second": 9.0}


@pytest.fixture
def train(tmp_path, monkeypatch):
    """Runs `pretrain` with a loop that records one line and then does `end`."""
    config = tmp_path / "albert_config.json"
    config.write_text(json.dumps(CONFIG))
    out = tmp_path / "out"

    def run(end, step):
        def fake_loop(_, batches, intervals, checkpoints, progress, *args, **options):
            progress.record("train", step, LINE)
            end()

        monkeypatch.setattr(loop, "train", fake_loop)
        pretrain(
            PretrainSettings(
                input_file=str(RECORDS),
                spm_model_file=str(GOLDEN / "tokenization/spiece.model"),
                albert_config_file=str(config),
                output_dir=str(out),
                max_seq_length=128,
                max_predictions_per_seq=20,
                train_batch_size=4,
                num_train_steps=30,
                num_warmup_steps=2,
            )
        )

    run.out = out
    return run


def stop():
    raise KeyboardInterrupt


def diverge():
    raise DataError("the loss is nan")


@pytest.mark.parametrize("end", [stop, diverge])
def test_a_stopped_run_leaves_a_page_and_its_error(train, end):
    with pytest.raises((KeyboardInterrupt, DataError)):
        train(end, step=12)
    page = ParsedPage((train.out / "report.html").read_bytes())
    assert "40% done" in page.text and "The same command continues" in page.text
    assert {"Overview", "Curves", "Values"} <= set(page.titles)
    assert not (train.out / "model").exists()


def test_a_finished_run_has_the_page_of_the_command(train):
    train(lambda: None, step=30)
    page = ParsedPage((train.out / "report.html").read_bytes())
    assert "same command" not in page.text and "30 of 30" in page.text
    assert "0.5000" in page.text and "parameters" in page.text
    assert "versions keras" in page.text and "train_batch_size" in page.text
    again = render_runs(RunPage(runs=read_runs([str(train.out)])))
    assert again == (train.out / "report.html").read_bytes()
    for name in ("curves.png", "README.md", "model/model.safetensors"):
        assert (train.out / name).stat().st_size > 0


def test_a_picture_that_cannot_be_drawn_costs_no_model(train, monkeypatch, caplog):
    def fail(*args, **kwargs):
        raise ValueError("no\nfonts")

    monkeypatch.setattr(outputs, "render_run", fail)
    monkeypatch.setattr(outputs, "draw_curves", fail)
    with caplog.at_level("WARNING"):
        train(lambda: None, step=30)
    assert "report.html: not written: ValueError: no fonts" in caplog.text
    assert "curves.png: not written: ValueError: no fonts" in caplog.text
    names = {path.name for path in pathlib.Path(train.out).iterdir()}
    assert {"model", "README.md"} <= names
    assert not names & {"report.html", "curves.png"}
