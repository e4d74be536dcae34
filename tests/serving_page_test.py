"""docs/serving.md: its requests are answered, and its table names every signature."""

import json
import re
import shutil
import subprocess
import sys

import pytest

from albert_tf.export import manifest
from albert_tf.export.saved_model import export_saved_model
from tests import documents
from tests.export import heads
from tests.export.serving import Server

PAGE = documents.ROOT / "docs/serving.md"
ASKED = [item for item in documents.shown(PAGE) if item.text.startswith("curl ")]
# What the answer to each request has, in the order of the page.
ANSWERS = ["predictions", "outputs", "outputs", "predictions"]
ANSWERS += ["model_version_status", "metadata"]


@pytest.fixture(scope="module")
def folder(tokenizer, tmp_path_factory):
    base = tmp_path_factory.mktemp("served") / "films"
    model = heads.make_model("text_classifier")
    return export_saved_model(
        model, base, tokenizer=tokenizer, version=1, warmup_batch_sizes=()
    )


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
def test_the_table_has_the_signatures_of_a_classifier(folder):
    shown = table()["text classifier"]
    for line in manifest.describe(folder):
        name, _, rest = line.partition("(")
        assert name in shown
        inputs, outputs = (
            set(re.findall(r"(\w+): ", part)) for part in rest.split(" -> ")
        )
        assert inputs <= shown[name][0]
        assert outputs <= (shown[name][1] or shown["serving_default"][1])


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="names of Linux's libraries")
@pytest.mark.skipif(not shutil.which("curl"), reason="needs curl")
def test_the_requests_are_answered(folder):
    with Server(folder.rpartition("/")[0], "films") as server:
        for item, key in zip(ASKED, ANSWERS, strict=True):
            command = item.text.replace("localhost:8501", f"localhost:{server.port}")
            done = subprocess.run(
                ["sh", "-c", f"{command} --silent --noproxy '*'"],
                capture_output=True,
                check=True,
            )
            assert key in json.loads(done.stdout), (item, done.stdout)
