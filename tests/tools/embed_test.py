"""`predict` and `embed` as a person runs them, in one process and in several."""

import gzip
import pathlib
import random

import numpy as np
import pytest

from albert_tf.converters.load import save_pretrained
from albert_tf.models.classifiers import AlbertTextClassifier
from tests.tiny import CONFIG

ROOT = pathlib.Path(__file__).parents[2]


@pytest.mark.broad
@pytest.mark.parametrize(
    ("verb", "ending"), [("predict", "jsonl"), ("predict", "parquet"), ("embed", "npy")]
)
def test_workers_do_not_change_a_byte(tmp_path, tokenizer, run_forked, verb, ending):
    model = AlbertTextClassifier(CONFIG, num_labels=2, seed=1)
    save_pretrained(model, tmp_path / "model", tokenizer=tokenizer)
    rng = random.Random(5)
    rows = [" ".join("abcdefgh"[: rng.randint(1, 8)]) for _ in range(50)]
    content = "\n".join(["words", *rows, ""]).encode()
    (tmp_path / "in.csv.gz").write_bytes(gzip.compress(content))
    outputs = []
    for num_workers in (1, 3):
        output = tmp_path / f"{num_workers}.{ending}"
        done = run_forked(
            str(ROOT / f"tools/{verb}.py"),
            f"--model={tmp_path}/model",
            f"--input_file={tmp_path}/in.csv.gz",
            "--text_column=words",
            f"--output_file={output}",
            "--rows_per_part=9",
            f"--num_workers={num_workers}",
        )
        assert done.returncode == 0, done.stderr
        assert "50 texts in " in done.stderr and " per core (" in done.stderr
        outputs.append(output.read_bytes())
    assert outputs[0] == outputs[1]
    if ending == "npy":
        assert np.load(tmp_path / "1.npy").shape == (50, 12)
    names = {path.name for path in tmp_path.iterdir()}
    records = {"1.npy.json", "3.npy.json"} if ending == "npy" else set()
    assert names == {"model", "in.csv.gz", f"1.{ending}", f"3.{ending}"} | records
