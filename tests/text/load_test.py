import json
import pathlib
import shutil

import pytest

from albert_tf.errors import DataError, UsageError
from albert_tf.text.load import load_tokenizer
from albert_tf.text.train import train_tokenizer

MODEL = pathlib.Path(__file__).parents[1] / "golden/tokenization/spiece.model"
OURS = {"format": "albert_tf", "tokenizer": {"do_lower_case": False}}


def _folder(path, file, values):
    path.mkdir()
    shutil.copy(MODEL, path)
    (path / file).write_text(json.dumps(values))
    return path


def test_a_plain_file_is_lower_cased_without_accents():
    options = load_tokenizer(MODEL).get_config()
    assert options["do_lower_case"] and not options["keep_accents"]


@pytest.mark.parametrize(
    "file, values",
    [
        ("config.json", OURS),
        ("tokenizer_config.json", {"do_lower_case": False, "other": 1}),
    ],
)
def test_a_model_folder_knows_its_options(tmp_path, file, values):
    folder = _folder(tmp_path / "m", file, values)
    for path in (folder, folder / "spiece.model"):
        tokenizer = load_tokenizer(path, keep_accents=True)
        assert not tokenizer.do_lower_case
        assert tokenizer.keep_accents  # the folder does not say


def test_options_that_contradict_the_folder_are_refused(tmp_path):
    folder = _folder(tmp_path / "m", "config.json", OURS)
    with pytest.raises(UsageError, match="do_lower_case=false.* received true"):
        load_tokenizer(folder, do_lower_case=True)


def test_a_damaged_option_file_is_named(tmp_path):
    folder = _folder(tmp_path / "m", "config.json", [1])
    with pytest.raises(DataError, match=r"config\.json"):
        load_tokenizer(folder)


def test_a_cased_vocabulary_that_is_lower_cased_by_default_is_said(tmp_path, caplog):
    caplog.set_level("WARNING", logger="absl")
    lines = [f"Anna Berta Carl word{i} Dora" for i in range(200)]
    path = tmp_path / "cased.model"
    train_tokenizer(lines, path, vocab_size=45, do_lower_case=False, progress=False)
    load_tokenizer(path, do_lower_case=False)
    load_tokenizer(path, do_lower_case=True)
    load_tokenizer(MODEL)
    assert not caplog.records
    load_tokenizer(path)
    (record,) = caplog.records
    assert "--nodo_lower_case keeps case" in record.getMessage()
