"""Steps of other objectives are timed in turns with ALBERT's."""

import pytest

from albert_tf.errors import UsageError
from albert_tf.objectives.pretraining import OBJECTIVES
from benchmarks import step_speed
from tests.tiny import CONFIG

OTHERS = tuple(name for name in OBJECTIVES if name != "albert")
# Those whose batches or nets are not a masked LM's.
DIFFERENT = ("spanbert", "electra")


@pytest.mark.slow
def test_objectives_beside_albert(monkeypatch):
    monkeypatch.setattr(
        step_speed.AlbertConfig, "from_preset", lambda name: CONFIG.replace()
    )
    settings = step_speed.Settings(
        shapes=((2, 12),), steps=2, precision="float32", objectives=DIFFERENT
    )
    report = step_speed.run(settings)
    rows = {row.name: row for row in report.rows}
    for name in ("albert", *DIFFERENT):
        assert len(rows[f"2 x 12: {name}"].details["seconds"]) == 2
    for name in DIFFERENT:
        ratio = rows[f"2 x 12: {name} / albert"]
        times = (rows[f"2 x 12: {one}"].value for one in (name, "albert"))
        assert ratio.value == pytest.approx(next(times) / next(times))


@pytest.mark.parametrize("names", [("albert",), ("gpt",), (OTHERS[0], OTHERS[0])])
def test_objectives_that_cannot_be_compared(names):
    with pytest.raises(UsageError, match="--objective must be some of bert, "):
        step_speed.run(step_speed.Settings(objectives=names))
