"""The notebooks of the documentation were executed as they are, from top to bottom."""

import json
import runpy

import pytest

from tests.documents import ROOT

NOTEBOOKS = sorted((ROOT / "docs/notebooks").glob("*.ipynb"))
digest_of = runpy.run_path(str(ROOT / "docs/keep_outputs.py"))["digest_of"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_outputs_are_those_of_the_code(path):
    notebook = json.loads(path.read_text(encoding="utf-8"))
    assert notebook["metadata"]["executed"]["code_sha256"] == digest_of(notebook), (
        f"{path.name} was changed after it was executed: make notebooks"
    )
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert [c["execution_count"] for c in cells] == [*range(1, len(cells) + 1)]
    outputs = [output for cell in cells for output in cell["outputs"]]
    assert outputs
    assert not [o for o in outputs if o["output_type"] == "error"]
    assert not [o for o in outputs if o.get("name") == "stderr"]
