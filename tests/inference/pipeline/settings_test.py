"""Settings that cannot be are refused."""

import pytest

from albert_tf.errors import UsageError
from albert_tf.inference.pipeline.settings import PipelineSettings


def _settings(**changed):
    return PipelineSettings("m", "in.txt", **({"output_file": "out"} | changed))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"block_size": 0}, "block_size: must be positive, received 0"),
        ({"num_shards": -1}, "num_shards: must be positive, received -1"),
        ({"output_file": "a.jsonl", "num_shards": 2}, "num_shards: 2, but output_file"),
    ],
)
def test_bad_settings(changed, message):
    with pytest.raises(UsageError, match=message):
        _settings(**changed)


def test_columns():
    assert _settings(columns=("text=a=b",)).chosen_columns() == {"text": "a=b"}
    for wrong in ("text", "text=", "=a"):
        with pytest.raises(UsageError, match="expected input=column, received"):
            _settings(columns=(wrong,)).chosen_columns()
