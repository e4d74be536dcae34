"""The whole main job with every path in a bucket, or on the route that one takes."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import time
import uuid

import pytest
import tensorflow as tf

from albert_tf.converters.convert import convert_checkpoint
from albert_tf.converters.load import from_pretrained, load_tokenizer
from albert_tf.data.corpus.corpus import open_corpus
from albert_tf.data.prepare.create import create_from_settings
from albert_tf.data.prepare.settings import CreateSettings
from albert_tf.export.saved_model import export_saved_model
from albert_tf.storage import files, folders
from albert_tf.text.train import train_tokenizer
from albert_tf.training.finetune_settings import FinetuneSettings
from albert_tf.training.pretrain import pretrain
from albert_tf.training.pretrain_settings import PretrainSettings
from albert_tf.training.seeds import finetune
from albert_tf.training.tensorflow.checkpoints import TrainingCheckpoints
from tests.storage import flaky

ROOT = pathlib.Path(__file__).parents[2]
INPUT = ROOT / "tests/golden/tf1_data/input.txt"
CONFIG = {
    "vocab_size": 300,
    "embedding_size": 6,
    "hidden_size": 12,
    "num_hidden_layers": 1,
    "num_attention_heads": 3,
    "intermediate_size": 20,
    "max_position_embeddings": 32,
}


class Job:
    """The flags of every command of the job.

    Args:
        folder: str. The remote folder that holds all inputs and outputs.
    """

    def __init__(self, folder: str):
        self.folder = folder
        files.make_folder(folder)
        files.write_bytes(self.path("text.txt"), INPUT.read_bytes())
        files.write_text(self.path("albert_config.json"), json.dumps(CONFIG))
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

    def pretrain(self, name: str, **changes) -> dict:
        return {
            "input_file": self.path("data/t"),
            "eval_file": self.path("data/t-eval"),
            "spm_model_file": self.path("spiece.model"),
            "albert_config_file": self.path("albert_config.json"),
            "output_dir": self.path(name),
            "max_seq_length": 32,
            "max_predictions_per_seq": 5,
            "train_batch_size": 4,
            "eval_batch_size": 4,
            "max_eval_steps": 2,
            "num_train_steps": 8,
            "num_warmup_steps": 2,
            "log_steps": 2,
            "eval_steps": 4,
            "save_checkpoints_steps": 2,
            "seed": 7,
            **changes,
        }

    def finetune(self) -> dict:
        return {
            "init_checkpoint": self.path("resumed/model"),
            "train_file": self.path("train.csv"),
            "dev_file": self.path("train.csv"),
            "text_column": "sentence",
            "label_column": "label",
            "output_dir": self.path("classifier"),
            "num_train_steps": 3,
            "train_batch_size": 8,
            "max_seq_length": 16,
        }

    def check(self) -> None:
        """Checks what all commands have left behind."""
        for name in ("spiece.model", "data/dataset.json", "data/dataset.md"):
            assert files.exists(self.path(name)), name
        assert not files.exists(self.path("data/t.partial"))
        for name in ("whole/model", "resumed/model", "classifier"):
            folders.verify(self.path(name))
        weights = "model/model.safetensors"
        whole = files.read_bytes(self.path("whole", weights))
        assert files.read_bytes(self.path("resumed", weights)) == whole
        assert files.exists(self.path("resumed/README.md"))
        metrics = files.read_text(self.path("resumed/metrics.jsonl")).splitlines()
        steps = [
            line["step"] for line in map(json.loads, metrics) if line["split"] == "eval"
        ]
        assert steps == [4, 8]
        for name in ("whole", "resumed", "classifier", "served/1", "converted"):
            left = files.list_folder(self.path(name))
            assert not [n for n in left if n.startswith(".") or "INCOMPLETE" in n]
        assert files.exists(self.path("served/1/saved_model.pb"))
        converted = from_pretrained(self.path("converted"), "auto")
        assert converted.num_labels == 2
        assert load_tokenizer(self.path("converted")).vocab_size == 300


@pytest.fixture(scope="module")
def in_process():
    """The job done in one process, because `ram://` belongs to a process."""
    job = Job(f"ram://{uuid.uuid4().hex}")
    sentences = (s for document in open_corpus(job.path("*.txt")) for s in document)
    train_tokenizer(sentences, job.path("spiece.model"), vocab_size=300, progress=False)
    create_from_settings(CreateSettings(**job.create()))
    return job


class Killed(BaseException):
    """What ends a run in the middle."""


def test_the_main_job_in_one_process(in_process, monkeypatch):
    """Of the calls that begin and end each command, one in twenty fails."""
    job = in_process
    flaky.make_flaky(monkeypatch, flaky.now_and_then(0.05))
    pretrain(PretrainSettings(**job.pretrain("whole")))
    save = TrainingCheckpoints.save

    def save_and_die(checkpoints, wait=False):
        if checkpoints.step == 6:
            raise Killed
        save(checkpoints, wait)

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(TrainingCheckpoints, "save", save_and_die)
        pretrain(PretrainSettings(**job.pretrain("resumed")))
    assert not files.exists(job.path("resumed/model"))
    pretrain(PretrainSettings(**job.pretrain("resumed")))
    finetune(FinetuneSettings(**job.finetune()))
    export_saved_model(
        from_pretrained(job.path("classifier"), "auto"),
        job.path("served"),
        tokenizer=load_tokenizer(job.path("classifier")),
        version=1,
        warmup_batch_sizes=(1,),
    )
    convert_checkpoint(job.path("classifier"), job.path("converted"), "huggingface")
    job.check()
    served = tf.saved_model.load(job.path("served/1"))
    assert "serving_default" in served.signatures


def test_packed_rows_from_a_bucket(in_process):
    job = in_process
    settings = job.pretrain("packed", packing=True, num_train_steps=2)
    model = pretrain(PretrainSettings(**settings))
    folders.verify(model)


def command(verb: str, **flags) -> list[str]:
    arguments = [f"--{name}={value}" for name, value in flags.items()]
    return [sys.executable, str(ROOT / "tools" / f"{verb}.py"), *arguments]


def run(verb: str, **flags) -> str:
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(
        command(verb, **flags), capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def kill_after_checkpoint(arguments: list[str], folder: str) -> None:
    """Starts a run and kills it -9 soon after it wrote its first checkpoint."""
    process = subprocess.Popen(arguments, stderr=subprocess.DEVNULL)
    deadline = time.time() + 300
    while process.poll() is None and time.time() < deadline:
        if files.exists(files.join(folder, "checkpoints/checkpoint")):
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
            return
        time.sleep(0.01)
    raise AssertionError("never wrote a checkpoint")


@pytest.mark.slow
def test_the_main_job_through_the_commands(tmp_path):
    job = Job(f"file://{tmp_path / 'bucket'}")
    run(
        "train_tokenizer",
        input_file=job.path("*.txt"),
        output_model=job.path("spiece.model"),
        vocab_size=300,
    )
    run("create_pretraining_data", **job.create())
    run("pretrain", **job.pretrain("whole"))
    kill_after_checkpoint(
        command("pretrain", **job.pretrain("resumed")), job.path("resumed")
    )
    assert not files.exists(job.path("resumed/model"))
    assert "continuing from step" in run("pretrain", **job.pretrain("resumed"))
    run("finetune", **job.finetune())
    model = job.path("classifier")
    table = {"text_column": "sentence", "model": model}
    run("evaluate", dev_file=job.path("train.csv"), label_column="label", **table)
    output = job.path("out.tsv")
    run("predict", input_file=job.path("train.csv"), output_file=output, **table)
    assert len(files.read_text(output).splitlines()) in (20, 21)
    run(
        "fill_mask",
        model=job.path("resumed/model"),
        text="the [MASK] ship",
    )
    run("export", model=model, output_dir=job.path("served"), version=1)
    run(
        "convert_checkpoint",
        input=model,
        output=job.path("converted"),
        format="huggingface",
    )
    job.check()
    # A second time: complete, and nothing is written again.
    before = files.read_text(job.path("whole/metrics.jsonl"))
    run("pretrain", **job.pretrain("whole"))
    assert files.read_text(job.path("whole/metrics.jsonl")) == before
