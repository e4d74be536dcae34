"""Steps of other objectives are timed in turns with ALBERT's."""

import pytest

from albert_tf.errors import UsageError
from albert_tf.objectives.pretraining import OBJECTIVES
from benchmarks import step_speed
from tests.tiny import CONFIG

OTHERS = tuple(name for name in OBJECTIVES if name != "albert")


# Those whose batches or nets are not a masked LM's.
@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize(
    "name", ["electra", pytest.param("spanbert", marks=pytest.mark.broad)]
)
def test_objectives_beside_albert(monkeypatch, name):
    config = CONFIG.replace(num_hidden_layers=1, vocab_size=64)
    monkeypatch.setattr(step_speed.AlbertConfig, "from_preset", lambda name: config)
    settings = step_speed.Settings(
        shapes=((2, 12),), steps=2, precision="float32", objectives=(name,)
    )
    report = step_speed.run(settings)
    rows = {row.name: row for row in report.rows}
    one, albert = (rows[f"2 x 12: {x}"] for x in (name, "albert"))
    assert len(one.details["seconds"]) == len(albert.details["seconds"]) == 2
    ratio = rows[f"2 x 12: {name} / albert"].value
    assert ratio == pytest.approx(one.value / albert.value)


@pytest.mark.parametrize("names", [("albert",), ("gpt",), (OTHERS[0], OTHERS[0])])
def test_objectives_that_cannot_be_compared(names):
    with pytest.raises(UsageError, match="--objective must be some of bert, "):
        step_speed.run(step_speed.Settings(objectives=names))
