import dataclasses

import pytest

from albert_tf.errors import DataError
from albert_tf.settings import load_experiment, setting


@dataclasses.dataclass
class _Settings:
    num_train_steps: int = setting("Steps.", 1)
    learning_rate: float = setting("Rate.", 0.1)
    num_devices: int | None = setting("Devices.", None)
    packing: bool = setting("Packing.", False)
    labels: tuple[str, ...] = setting("Labels.", ())


def write(folder, values):
    path = folder / "c.py"
    path.write_text(f"def get_config():\n    return {values!r}\n")
    return path


def test_a_misspelled_setting_names_the_close_one(tmp_path):
    path = tmp_path / "c.py"
    path.write_text("def get_config():\n    return {'num_train_step': 3}\n")
    with pytest.raises(DataError, match=r"num_train_step; did you mean num_train_ste"):
        load_experiment(path, _Settings)


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
