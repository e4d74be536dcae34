import dataclasses

import pytest

from albert_tf.errors import DataError
from albert_tf.settings import load_experiment, setting


@dataclasses.dataclass
class _Settings:
    num_train_steps: int = setting("Steps.", 1)


def test_a_misspelled_setting_names_the_close_one(tmp_path):
    path = tmp_path / "c.py"
    path.write_text("def get_config():\n    return {'num_train_step': 3}\n")
    with pytest.raises(DataError, match=r"num_train_step; did you mean num_train_ste"):
        load_experiment(path, _Settings)
