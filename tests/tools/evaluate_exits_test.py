"""`--exit` of `evaluate`, `predict` and `export`, and `--exits_curve`."""

import json

import numpy as np
import pytest

from albert_tf.converters.load import save_pretrained
from albert_tf.export import manifest
from albert_tf.inference.classifier import Classifier
from tests import exits
from tests.commands import run_command

pytestmark = pytest.mark.broad  # three commands


@pytest.fixture
def folder(tokenizer, tmp_path):
    model = exits.make_model(num_labels=2)
    model.labels, model.max_seq_length = ("no", "yes"), 16
    save_pretrained(model, tmp_path / "m", tokenizer=tokenizer)
    rows = [f"{'yes' if n % 3 else 'no'}\ttext {n} of many" for n in range(12)]
    (tmp_path / "t.tsv").write_text("\n".join(["label\ttext", *rows]) + "\n")
    return tmp_path


def test_the_commands(folder, monkeypatch):
    monkeypatch.chdir(folder)

    def command(*arguments):
        done = run_command(*arguments)
        assert done.code == 0, done.err
        return done.out

    given = ("evaluate", "--model=m", "--eval_file=t.tsv")
    found = json.loads(command(*given, "--exit=layers:2"))
    assert found["mean_layers"] == 2
    assert "mean_layers" not in json.loads(
        command(*given, "--exits_curve=m/exits.json")
    )
    assert (folder / "m/exits.png").exists()
    curve = json.loads((folder / "m/exits.json").read_text())
    points = {point["exit"]: point for point in curve["points"]}
    assert points["layers:2"][curve["metric"]] == found[curve["metric"]]
    rows = ("predict", "--model=m", "--input_file=t.tsv", "--output_file=p.jsonl")
    command(*rows, "--exit=layers:2")
    got = [json.loads(line) for line in (folder / "p.jsonl").read_text().splitlines()]
    texts = [f"text {n} of many" for n in range(12)]
    early, full = (
        Classifier.from_pretrained(folder / "m", exit=rule)
        for rule in ("layers:2", None)
    )
    probabilities = [[row["probabilities"][n] for n in ("no", "yes")] for row in got]
    np.testing.assert_allclose(probabilities, early.scores(texts), atol=1e-5)
    assert np.abs(full.scores(texts) - early.scores(texts)).max() > 1e-3
    for rule, message in (
        ("layers:99", "layers must be from 1 to"),
        ("depth:2", "exit: expected entropy:H"),
    ):
        refused = run_command(*rows, "--overwrite", f"--exit={rule}")
        assert refused.code == 2 and message in refused.error
    command("export", "--model=m", "--output_dir=s", "--exit=patience:1")
    content = manifest.verify(folder / "s")
    assert content["exit"] == "patience:1" and content["exits"] == curve
    assert "assets.extra/exits.png" in content["files"]
