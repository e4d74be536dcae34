import dataclasses

import pytest

from albert_tf.data.corpus.corpus import CorpusSettings
from albert_tf.data.prepare.create_settings import CreateSettings
from albert_tf.errors import DataError, UsageError
from albert_tf.export.export_settings import ExportSettings
from albert_tf.inference.settings import BulkSettings
from albert_tf.settings import check_fields, describe, load_experiment, setting
from albert_tf.tasks.opening import DataSettings
from albert_tf.training.finetune_settings import FinetuneSettings
from albert_tf.training.pretrain_settings import PretrainSettings


@dataclasses.dataclass
class _Settings:
    """Settings of a test.

    Attributes:
        num_train_steps: Steps.
        learning_rate: The rate, with a text
            of two lines: it goes on.
        packing: Packing.
    """

    num_train_steps: int = setting(1, minimum=1, identity=False)
    learning_rate: float = setting(0.1, above=0, below=1)
    num_devices: int | None = None
    packing: bool = False
    labels: tuple[str, ...] = ()
    kind: str = setting("", choices=("", "a", "b"))


@dataclasses.dataclass
class _Other(_Settings):
    """Settings that differ.

    Attributes:
        packing: Other packing.
    """

    num_train_steps: int = 5
    learning_rate: float = setting(0.2, identity="follows")


def test_a_subclass_changes_only_what_it_says():
    found = describe(_Other)
    rate = "The rate, with a text of two lines: it goes on."
    assert found["learning_rate"].text == rate
    assert found["packing"].text == "Other packing."
    assert found["learning_rate"].below == 1
    assert found["learning_rate"].identity == "follows"
    assert found["num_train_steps"].minimum == 1
    assert found["num_train_steps"].identity is False
    assert describe(_Settings)["packing"].text == "Packing."
    assert _Other().num_train_steps == 5


@pytest.mark.parametrize(
    "values, message",
    [
        ({"num_train_steps": 0}, "^--num_train_steps must be positive, received 0$"),
        ({"learning_rate": 1.0}, r"_rate must be in \(0, 1\), received 1.0$"),
        ({"learning_rate": float("nan")}, "received nan"),
        ({"kind": "c"}, "^--kind must be one of a, b, received 'c'$"),
    ],
)
def test_values_out_of_range(values, message):
    check_fields(_Settings(num_devices=None))
    with pytest.raises(UsageError, match=message):
        check_fields(_Other(**values))


@pytest.mark.parametrize(
    "settings",
    [
        *(PretrainSettings, FinetuneSettings, CreateSettings, CorpusSettings),
        *(DataSettings, ExportSettings, BulkSettings),
    ],
)
def test_every_setting_is_described(settings):
    """The text in the class docstring is the help of the flag."""
    assert [name for name, about in describe(settings).items() if not about.text] == []


def write(folder, values):
    path = folder / "c.py"
    path.write_text(f"def get_config():\n    return {values!r}\n")
    return path


def test_every_misspelled_setting_is_named(tmp_path):
    path = write(tmp_path, {"num_train_step": 3, "paking": True})
    expected = (
        r"c.py: unknown settings num_train_step, paking; "
        r"did you mean num_train_steps, packing\?$"
    )
    with pytest.raises(DataError, match=expected):
        load_experiment(path, _Settings)


def test_values_of_the_right_type(tmp_path):
    values = {
        "num_train_steps": 3,
        "learning_rate": 1,
        "num_devices": None,
        "packing": True,
        "labels": ["a", "b"],
    }
    loaded = load_experiment(write(tmp_path, values), _Settings)
    assert loaded == {**values, "labels": ("a", "b")}


@pytest.mark.parametrize(
    "name, value, rule",
    [
        ("num_train_steps", "4", "a whole number, received '4'"),
        ("num_train_steps", 2.5, "a whole number, received 2.5"),
        ("num_train_steps", True, "a whole number, received True"),
        ("learning_rate", None, "a number, received None"),
        ("num_devices", "2", "a whole number or None, received '2'"),
        ("packing", 1, "True or False, received 1"),
        ("labels", "a,b", "a list of strings, received 'a,b'"),
        ("labels", ["a", 1], "a list of strings, received"),
    ],
)
def test_values_of_another_type(tmp_path, name, value, rule):
    with pytest.raises(DataError, match=f"c.py: {name} must be {rule}"):
        load_experiment(write(tmp_path, {name: value}), _Settings)
