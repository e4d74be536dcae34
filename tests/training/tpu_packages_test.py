"""Pretraining on records needs no package that requirements-tpu.txt leaves out."""

import json
import re

import numpy as np
import pytest

from tests.data.synthetic_records import make_example, write
from tests.imports import DISTRIBUTIONS, ROOT
from tests.training import runs

# Packages without a release for the TensorFlow of a TPU, and those that only drawing,
# scoring, converting or preparing data needs.
ABSENT = [
    "PIL",
    "keras_hub",
    "keras_nlp",
    "matplotlib",
    "pandas",
    "scipy",
    "seqeval",
    "sentencex",
    "sklearn",
    "tensorflow_datasets",
    "tensorflow_text",
    "torch",
    "transformers",
]

PROGRAM = r"""
import importlib.abc, json, runpy, sys
root, absent, listed, sys.argv = json.loads(sys.argv[1])

def caller():
    frame = sys._getframe(2)
    while "importlib" in frame.f_code.co_filename:
        frame = frame.f_back
    return frame.f_code.co_filename

class Absent(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        known = top in sys.stdlib_module_names or top in listed
        ours = caller().startswith(root) and "site-packages" not in caller()
        if top in absent or ours and not known:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
sys.path.insert(0, root)
try:
    runpy.run_path(sys.argv[0], run_name="__main__")
finally:
    print("loaded:", sorted(set(absent) & {m.partition(".")[0] for m in sys.modules}))
"""


def listed_packages():
    lines = (ROOT / "requirements-tpu.txt").read_text(encoding="utf-8").splitlines()
    return [line.partition("==")[0] for line in lines if not line.startswith("#")]


def importable():
    """The top-level modules that code of ours may import, ours included."""
    modules = {d: m.partition(".")[0] for m, d in DISTRIBUTIONS.items()}
    names = [name.replace("-", "_") for name in listed_packages()]
    found = [modules.get(n, n).replace("tensorflow_tpu", "tensorflow") for n in names]
    return [*found, "albert_tf", "configs", "tools"]


def test_the_list_leaves_out_what_needs_a_later_tensorflow():
    names = {name.replace("-", "_").lower() for name in listed_packages()}
    absent = {name.replace("sklearn", "scikit_learn").lower() for name in ABSENT}
    assert {"tensorflow_tpu", "libtpu", "keras"} <= names
    assert not names & {*absent, "tensorflow", "tensorflow_cpu"}


@pytest.mark.slow
def test_a_model_is_pretrained_and_saved_without_them(tmp_path, run_python):
    rng = np.random.default_rng(2)
    lengths = rng.integers(7, 29, 37)
    records = write(tmp_path, [make_example(rng, length) for length in lengths])
    given = {"input_file": records, "eval_file": records, "max_predictions_per_seq": 5}
    given |= {"max_seq_length": 29, "num_train_steps": 2, "eval_steps": 2}
    command = runs.command_line("pretrain", runs.pretraining(tmp_path, **given))
    command = command[command.index(str(ROOT / "tools/pretrain.py")) :]
    given = json.dumps([str(ROOT), ABSENT, importable(), command])
    done = run_python("-c", PROGRAM, given)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "loaded: []" in done.stdout
    # What people look at is missed, in one line each.
    assert re.search(r"curves\.png: not written: .*matplotlib", done.stderr)
    assert (tmp_path / "run/model/model.safetensors").stat().st_size > 0
    for page in ("README.md", "report.html"):
        assert (tmp_path / "run" / page).stat().st_size > 0
    (line,) = (tmp_path / "run/samples.jsonl").read_text().splitlines()
    assert json.loads(line)["answers"]
