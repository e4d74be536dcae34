"""The whole main job with every path in a bucket, or on the route that one takes."""

import csv
import json

import pytest

from albert_tf.converters.load import from_pretrained, load_tokenizer
from albert_tf.export import manifest
from albert_tf.storage import files, folders
from albert_tf.training.checkpoints import TrainingCheckpoints
from tests.commands import run_command
from tests.storage import flaky
from tests.tiny import TEXT, tiny_config

CONFIG = tiny_config(vocab_size=300, num_hidden_layers=1, max_position_embeddings=32)


class Job:
    """The flags of every command of the job.

    Args:
        folder: str. The remote folder that holds all inputs and outputs.
    """

    def __init__(self, folder: str):
        self.folder = folder
        files.write_bytes(self.path("text.txt"), TEXT.read_bytes())
        CONFIG.to_json(self.path("albert_config.json"))
        rows = [f"a {label} film,{label}" for label in ("bad", "good") * 10]
        table = "\n".join(["sentence,label", *rows, ""])
        files.write_text(self.path("train.csv"), table)

    def path(self, *names: str) -> str:
        return files.join(self.folder, *names)

    def create(self) -> dict:
        return {
            "input_file": self.path("*.txt"),
            "output_file": self.path("data/t"),
            "spm_model_file": self.path("spiece.model"),
            "max_seq_length": 32,
            "max_predictions_per_seq": 5,
            "eval_fraction": 0.2,
            "num_shards": 2,
            "num_processes": 1,
        }

    def pretrain(self) -> dict:
        return {
            "input_file": self.path("data/t"),
            "eval_file": self.path("data/t-eval"),
            "spm_model_file": self.path("spiece.model"),
            "albert_config_file": self.path("albert_config.json"),
            "output_dir": self.path("run"),
            "max_seq_length": 32,
            "max_predictions_per_seq": 5,
            "train_batch_size": 4,
            "eval_batch_size": 4,
            "max_eval_steps": 1,
            "num_train_steps": 4,
            "num_warmup_steps": 1,
            # LAMB, answers and compiled parts take longer to trace.
            "optimizer": "adamw",
            "sample_texts": "",
            "fuse_elementwise": False,
            "eval_steps": 2,
            "save_checkpoints_steps": 1,
            "seed": 7,
        }

    def finetune(self) -> dict:
        return {
            "init_checkpoint": self.path("run/model"),
            "train_file": self.path("train.csv"),
            "dev_file": self.path("train.csv"),
            "text_column": "sentence",
            "label_column": "label",
            "output_dir": self.path("classifier"),
            "train_step": 2,  # the original's name
            "train_batch_size": 8,
            "max_seq_length": 16,
        }

    def check(self) -> None:
        """Checks what all commands have left behind."""
        for name in ("spiece.model", "data/dataset.json", "data/dataset.md"):
            assert files.exists(self.path(name)), name
        assert not files.exists(self.path("data/t.partial"))
        for name in ("run/model", "classifier"):
            folders.verify(self.path(name))
        assert files.exists(self.path("run/README.md"))
        metrics = files.read_text(self.path("run/metrics.jsonl")).splitlines()
        steps = [
            line["step"] for line in map(json.loads, metrics) if line["split"] == "eval"
        ]
        assert steps == [2, 4]
        for name in ("run", "classifier", "served/1", "converted"):
            left = files.list_folder(self.path(name))
            assert not [n for n in left if n.startswith(".") or "INCOMPLETE" in n]
        assert files.exists(self.path("served/1/saved_model.pb"))
        converted = from_pretrained(self.path("converted"), "auto")
        assert converted.num_labels == 2
        assert load_tokenizer(self.path("converted")).vocab_size == 300


class Killed(BaseException):
    """What ends a run in the middle."""


def run(verb: str, **flags) -> str:
    done = run_command(verb, **flags)
    assert done.code == 0, done.err
    return done.out + done.err


@pytest.mark.slow
def test_the_main_job_through_the_commands(bucket, monkeypatch, eager):
    """Of the calls that begin and end each command, one in twenty fails."""
    job = Job(bucket)
    text, output = job.path("*.txt"), job.path("spiece.model")
    run("train_tokenizer", input_file=text, output_model=output, vocab_size=300)
    run("create_pretraining_data", **job.create())
    flaky.make_flaky(monkeypatch, flaky.now_and_then(0.05))
    save = TrainingCheckpoints.save

    def save_and_die(checkpoints, wait=False):
        if checkpoints.step == 3:
            raise Killed
        save(checkpoints, wait)

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(TrainingCheckpoints, "save", save_and_die)
        run("pretrain", **job.pretrain())
    assert not files.exists(job.path("run/model"))
    assert "continuing from step" in run("pretrain", **job.pretrain())
    run("finetune", **job.finetune())
    model, output = job.path("classifier"), job.path("out.jsonl")
    table = {"text_column": "sentence", "model": model}
    examples = job.path("train.csv")
    run("predict", input_file=examples, output_file=output, **table)
    answers = map(json.loads, files.read_text(output).splitlines())
    rows = csv.DictReader(
        files.read_text(job.path("classifier/predictions.tsv")).splitlines(),
        delimiter="\t",
    )
    for row, answer in zip(rows, answers, strict=True):
        assert row["prediction"] == answer["prediction"]
        for label, score in answer["probabilities"].items():
            assert float(row[f"probability_{label}"]) == pytest.approx(score, abs=1e-5)
    eager(False)
    served = {"output_dir": job.path("served"), "warmup_batch_sizes": ""}
    run("export", model=model, version=1, **served)
    content = manifest.verify(job.path("served/1"))
    assert (content["labels"], content["max_seq_length"]) == (["bad", "good"], 16)
    converted = {"output": job.path("converted"), "format": "huggingface"}
    run("convert_checkpoint", input=model, **converted)
    job.check()
    # A second time: complete, and nothing is written again.
    before = files.read_text(job.path("run/metrics.jsonl"))
    run("pretrain", **job.pretrain())
    assert files.read_text(job.path("run/metrics.jsonl")) == before
