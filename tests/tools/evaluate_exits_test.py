"""`evaluate --exit` and `--exits_curve`, as a user runs them; then `export`."""

import json

import pytest

from albert_tf.converters.load import save_pretrained
from albert_tf.export import verify
from tests import exits

pytestmark = pytest.mark.slow


@pytest.fixture
def folder(tokenizer, tmp_path):
    model = exits.make_model(num_labels=2)
    model.labels, model.max_seq_length = ("no", "yes"), 16
    save_pretrained(model, tmp_path / "m", tokenizer=tokenizer)
    rows = [f"{'yes' if n % 3 else 'no'}\ttext {n} of many" for n in range(12)]
    (tmp_path / "t.tsv").write_text("\n".join(["label\ttext", *rows]) + "\n")
    return tmp_path


def test_the_commands(folder, run_python):
    def command(*arguments):
        result = run_python("-m", "tools.main", *arguments, cwd=str(folder))
        assert result.returncode == 0, result.stderr
        return result.stdout

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
    command("export", "--model=m", "--output_dir=s", "--exit=patience:1")
    content = verify.verify(folder / "s")
    assert content["exit"] == "patience:1" and content["exits"] == curve
    assert "assets.extra/exits.png" in content["files"]
