"""A run that is killed at any moment ends as one that is not."""

import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import time

import pytest

from albert_tf.converters.load import from_pretrained, save_pretrained
from albert_tf.errors import DataError, Stopped, UsageError
from albert_tf.models.pretrainer import AlbertPretrainer
from albert_tf.text.sentencepiece import AlbertTokenizer
from albert_tf.training.finetune_settings import FinetuneSettings
from albert_tf.training.seeds import finetune
from albert_tf.training.tensorflow.step import TrainStep
from tests.training.finetuning.runs import CONFIG, GOLDEN, SPM_MODEL, run, write_table

SCRIPT = pathlib.Path(__file__).with_name("killed.py")
ENVIRONMENT = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
# "spans" and "questions" have the two heads of SQuAD.
_FAMILIES = ["texts", "words", "choices", "spans", "questions"]
RESULTS = ("metrics.json", "model.safetensors", "config.json")


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    path = tmp_path_factory.mktemp("start") / "model"
    config = CONFIG.replace(max_position_embeddings=64)
    model = AlbertPretrainer(config, seed=3)
    save_pretrained(model, path, tokenizer=AlbertTokenizer(SPM_MODEL))
    return str(path)


def write_sentences(path, count, seed):
    rng = random.Random(seed)
    lines = []
    for _ in range(count):
        for _ in range(rng.randrange(2, 9)):
            is_name = rng.random() < 0.3
            word = rng.choice(["Anna", "Berlin"] if is_name else ["the", "goes", "to"])
            lines.append(f"{word}\t{'B-NAME' if is_name else 'O'}\n")
        lines.append("\n")
    path.write_text("".join(lines))
    return str(path)


def write_choices(path, count, seed):
    rng = random.Random(seed)
    rows = []
    for i in range(count):
        choices = [f"a {w} day" for w in rng.sample(["good", "bad", "long", "hot"], 3)]
        choices = choices[: rng.randrange(2, 4)]
        label = rng.randrange(len(choices))
        row = {"context": f"text {i}", "choices": choices, "label": label}
        rows.append(json.dumps(row) + "\n")
    path.write_text("".join(rows))
    return str(path)


def settings_of(family, folder, start):
    values = {
        "init_checkpoint": start,
        "num_train_steps": 12,
        "num_warmup_steps": 2,
        "train_batch_size": 4,
        "eval_steps": 4,
        "save_checkpoints_steps": 3,
        "log_steps": 2,
        "learning_rate": 2e-3,
        "early_stopping_patience": 3,
        "dropout": 0.1,
        "seed": 7,
    }
    names = {"train_file": ("train", 40, 1), "dev_file": ("dev", 13, 2)}
    if family == "texts":
        files = {
            k: write_table(folder / f"{n}.tsv", c, s) for k, (n, c, s) in names.items()
        }
    elif family == "words":
        files = {
            k: write_sentences(folder / f"{n}.conll", c, s)
            for k, (n, c, s) in names.items()
        }
    elif family == "choices":
        files = {
            k: write_choices(folder / f"{n}.jsonl", c, s)
            for k, (n, c, s) in names.items()
        }
    elif family == "spans":
        squad = str(GOLDEN / "squad" / "train-v1.1.json")
        files = {
            "task": "squad1",
            "train_file": squad,
            "dev_file": squad,
            "on_bad_input": "skip",
            "max_seq_length": 64,
            "max_query_length": 16,
            "doc_stride": 20,
            "train_batch_size": 2,
        }
    else:
        squad = GOLDEN / "squad"
        files = {
            "task": "squad2",
            "train_file": str(squad / "dev-v2.0.json"),
            "dev_file": str(squad / "dev-v2.0.json"),
            "on_bad_input": "skip",
            "max_seq_length": 64,
            "max_query_length": 16,
            "doc_stride": 20,
            "train_batch_size": 2,
        }
    return {**values, **files}


def execute(settings, moment="never", count=1):
    command = [sys.executable, str(SCRIPT), json.dumps(settings), moment, str(count)]
    done = subprocess.run(
        command, env=ENVIRONMENT, capture_output=True, text=True, timeout=900
    )
    if moment == "never":
        assert done.returncode == 0, done.stderr[-2000:]
    else:
        assert done.returncode == -signal.SIGKILL, done.stderr[-2000:]


def same(one: pathlib.Path, other: pathlib.Path) -> None:
    for name in RESULTS:
        assert (one / name).read_bytes() == (other / name).read_bytes(), name
    for path in one.glob("*predictions*"):
        assert path.read_bytes() == (other / path.name).read_bytes(), path.name
    lines = [
        [json.loads(line) for line in (folder / "metrics.jsonl").open()]
        for folder in (one, other)
    ]
    for found in lines:
        for line in found:
            line.pop("tokens_per_second", None)
    assert lines[0] == lines[1]


def test_a_run_killed_in_an_evaluation_is_continued(start, tmp_path):
    settings = settings_of("texts", tmp_path, start)
    whole = {**settings, "output_dir": str(tmp_path / "whole")}
    killed = {**settings, "output_dir": str(tmp_path / "killed")}
    run(**whole)
    execute(killed, "evaluation", 2)
    # What is there is no model, and another run does not take its place unasked.
    with pytest.raises(DataError, match="fine-tuning run that has not finished"):
        from_pretrained(tmp_path / "killed")
    with pytest.raises(UsageError, match="holds another run, with --seed=7"):
        run(**{**killed, "seed": 8})
    run(**killed)
    same(tmp_path / "whole", tmp_path / "killed")
    assert not (tmp_path / "killed" / "checkpoints").exists()


@pytest.mark.broad
def test_a_run_stopped_between_two_lines_measures_the_same(
    start, tmp_path, monkeypatch
):
    settings = settings_of("texts", tmp_path, start) | {"num_train_steps": 4}
    train, calls = TrainStep.train, []

    def train_and_signal(self, iterator, count, totals=None):
        result = train(self, iterator, count, totals)
        calls.append(count)
        if len(calls) == 1:  # after a single step, and lines are due at even ones
            os.kill(os.getpid(), signal.SIGTERM)
        return result

    finetune(FinetuneSettings(**settings, output_dir=str(tmp_path / "whole")))
    stopped = FinetuneSettings(**settings, output_dir=str(tmp_path / "stopped"))
    with monkeypatch.context() as patch, pytest.raises(Stopped, match="at step 1 of 4"):
        patch.setattr(TrainStep, "train", train_and_signal)
        finetune(stopped)
    finetune(stopped)
    same(tmp_path / "whole", tmp_path / "stopped")


@pytest.mark.broad
@pytest.mark.parametrize("family", _FAMILIES)
def test_moments_that_matter(start, tmp_path, family):
    settings = settings_of(family, tmp_path, start)
    whole = {**settings, "output_dir": str(tmp_path / "whole")}
    killed = {**settings, "output_dir": str(tmp_path / "killed")}
    execute(whole)
    for moment, count in (
        ("step", 1),
        ("checkpoint", 1),
        ("best weights", 1),
        ("evaluation", 2),
        ("checkpoint", 2),
        ("model", 1),
    ):
        execute(killed, moment, count)
    execute(killed)
    same(tmp_path / "whole", tmp_path / "killed")


@pytest.mark.broad
@pytest.mark.parametrize("family", _FAMILIES)
def test_ten_random_kills(start, tmp_path, family):
    settings = settings_of(family, tmp_path, start)
    whole = {**settings, "output_dir": str(tmp_path / "whole")}
    killed = {**settings, "output_dir": str(tmp_path / "killed")}
    # The time from the first sign of a run to its end is that of an uninterrupted one.
    process = begin_run(whole)
    began = time.monotonic()
    assert process.wait(900) == 0
    seconds = time.monotonic() - began
    rng = random.Random(family)
    kills = 0
    for _ in range(40):
        process = begin_run(killed)
        try:
            process.wait(rng.uniform(0.0, 0.8) * seconds)
        except subprocess.TimeoutExpired:
            process.kill()
        code = process.wait()
        assert code in (0, -signal.SIGKILL)
        kills += code == -signal.SIGKILL
        if code == 0:
            # It came to its end first, because the machine has become faster; the next
            # kill needs a run to interrupt.
            seconds *= 0.7
            same(tmp_path / "whole", tmp_path / "killed")
            shutil.rmtree(tmp_path / "killed")
        if kills == 10:
            break
    assert kills == 10
    execute(killed)
    same(tmp_path / "whole", tmp_path / "killed")


def begin_run(settings):
    """Starts a run in a process, and returns it as soon as it works in its folder.

    That is when it is done with imports and input files: it takes the folder's lock.
    """
    command = [sys.executable, str(SCRIPT), json.dumps(settings), "never", "0"]
    lock = pathlib.Path(settings["output_dir"]) / ".lock"
    process = subprocess.Popen(
        command,
        env=ENVIRONMENT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 300
    while process.poll() is None and owner_of(lock) != process.pid:
        assert time.monotonic() < deadline, "the run does not begin"
        time.sleep(0.01)
    return process


def owner_of(lock):
    """Returns the process that wrote a lock; a killed one leaves its lock behind."""
    try:
        return json.loads(lock.read_text())["process"]
    except FileNotFoundError:
        return None
