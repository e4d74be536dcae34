"""docs/serving.md: its requests are answered, and its table names every signature."""

import json
import re

import pytest
import tensorflow as tf

from albert_tf.export import manifest
from tests import documents

PAGE = documents.ROOT / "docs/serving.md"
ASKED = [x.text for x in documents.shown(PAGE) if x.text.startswith("curl ")]


def table():
    """The signatures in the page's table, by model: inputs and outputs."""
    text = PAGE.read_text(encoding="utf-8").split("## 3. Signatures")[1].split("##")[0]
    found, model = {}, None
    for row in re.findall(r"^\|(.*)\|$", text, re.M)[2:]:
        first, names, inputs, outputs = (cell.strip() for cell in row.split("|"))
        model = first or model
        for name in re.findall(r"`(\w+)`", names):
            found.setdefault(model, {})[name] = (
                set(re.findall(r"`([a-z_]+)`", inputs)),
                set(re.findall(r"`([a-z_]+)`", outputs)),
            )
    return found


@pytest.mark.slow
def test_the_table_has_the_signatures_of_a_classifier(exported):
    shown = table()["text classifier"]
    for line in manifest.describe(exported("text_classifier")):
        name, _, rest = line.partition("(")
        assert name in shown
        inputs, outputs = (
            set(re.findall(r"(\w+): ", part)) for part in rest.split(" -> ")
        )
        assert inputs <= shown[name][0]
        assert outputs <= (shown[name][1] or shown["serving_default"][1])


@pytest.mark.slow
def test_the_requests_are_answered(exported):
    loaded = tf.saved_model.load(exported("text_classifier"))
    bodies = [re.search(r"-d '(.*?)'", text)[1] for text in ASKED if " -d " in text]
    assert len(bodies) == 4
    for request in map(json.loads, bodies):
        columns, rows = request.get("inputs"), request.get("instances")
        if rows:
            rows = [row if isinstance(row, dict) else {"text": row} for row in rows]
            columns = {name: [row[name] for row in rows] for name in rows[0]}
        signature = loaded.signatures[request.get("signature_name", "serving_default")]
        answer = signature(**{k: tf.constant(v) for k, v in columns.items()})
        assert all(len(value) == len(columns["text"]) for value in answer.values())
