"""Twenty kills at random moments, and the run ends as if nothing had happened."""

import json
import os
import random
import signal
import subprocess
import time

import pytest

from albert_tf.data.corpus.corpus import Corpus
from albert_tf.data.prepare.config import RecordConfig
from albert_tf.data.prepare.create import create_pretraining_data
from albert_tf.data.prepare.pairs import PairConfig
from albert_tf.text.sentencepiece import AlbertTokenizer
from tests.training.pretraining.pretrain_test import (
    CONFIG,
    GOLDEN,
    RECORDS,
    command,
    metrics,
    run,
)

KILLS = 20


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    """Records that can be packed."""
    folder = tmp_path_factory.mktemp("records")
    create_pretraining_data(
        Corpus(str(GOLDEN / "tf1_data/input.txt")),
        str(folder / "x"),
        AlbertTokenizer(GOLDEN / "tokenization/spiece.model"),
        RecordConfig(pairs=PairConfig("clean", 128)),
        num_processes=1,
        progress=False,
    )
    return folder


@pytest.mark.broad
@pytest.mark.parametrize(
    ("precision", "packing"),
    [("float32", False), ("bfloat16", False), ("float32", True), ("bfloat16", True)],
)
def test_twenty_random_kills(records, tmp_path, precision, packing):
    config = tmp_path / "config.json"
    config.write_text(json.dumps(CONFIG))
    data = records if packing else RECORDS
    changes = {"precision": precision, "packing": packing, "input_file": data}
    changes |= {"eval_file": data, "num_train_steps": 400, "eval_steps": 40}
    changes |= {"save_checkpoints_steps": 10, "log_steps": 5}
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    begun = time.time()
    result = run(config, whole, **changes)
    assert result.returncode == 0, result.stderr
    duration = time.time() - begun
    rng, reached = random.Random(5), set()
    for number in range(KILLS):
        process = subprocess.Popen(
            command(config, killed, **changes), stderr=subprocess.DEVNULL
        )
        # From before the first compilation, which every attempt repeats, to the middle
        # of what is left.
        time.sleep(rng.uniform(0, 0.8) * duration * (0.5 + number / KILLS / 2))
        if process.poll() is not None:
            assert process.returncode == 0
            break
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        if (killed / "metrics.jsonl").exists():
            reached |= {line["step"] for line in metrics(killed)[-1:]}
    result = run(config, killed, **changes)
    assert result.returncode == 0, result.stderr
    model = "model/model.safetensors"
    assert (whole / model).read_bytes() == (killed / model).read_bytes()
    evaluations = [m for m in metrics(whole) if m["split"] == "eval"]
    assert evaluations == [m for m in metrics(killed) if m["split"] == "eval"]
    samples = (whole / "samples.jsonl").read_bytes()
    assert samples and samples == (killed / "samples.jsonl").read_bytes()
    left = sorted(path.name for path in (killed / "checkpoints").iterdir())
    assert left == sorted(path.name for path in (whole / "checkpoints").iterdir())
    print(f"kills: {number + 1}, last lines at steps {sorted(reached)}")
