"""The files of a benchmark."""

import json

from benchmarks.report import Report, Row, write

ABOUT = {
    "cores": 2,
    "cpu": {"model": "x", "flags": []},
    "memory_gigabytes": 1.5,
    "system": "Linux",
    "load_at_start": 0.5,
    "versions": {"python": "3.11"},
}


def test_series_are_in_lines_of_their_own(tmp_path):
    series = {"lamb": {"loss": [1.5, 2e-7, -3], "empty": []}}
    rows = [Row("speed", 2.5, "m/s", details={"seconds": [1, 2]})]
    write(str(tmp_path / "new/x"), Report("A title", rows, series, b"png"), ABOUT)
    text = (tmp_path / "new/x.json").read_text()
    assert '"loss": [1.5, 2e-07, -3]' in text
    content = json.loads(text)
    assert content["series"] == series and content["machine"] == ABOUT
    assert content["rows"][0]["details"] == {"seconds": [1, 2]}
    assert (tmp_path / "new/x.png").read_bytes() == b"png"
    table = (tmp_path / "new/x.md").read_text()
    assert table.startswith("# A title\n") and "| speed | 2.5 m/s |  |" in table


def test_notes_without_series_and_picture(tmp_path):
    report = Report("A title", [Row("speed", 2.5, "")], notes=("x is missing.",))
    write(str(tmp_path / "x"), report, ABOUT)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x.json", "x.md"]
    found = json.loads((tmp_path / "x.json").read_text())
    assert found["notes"] == ["x is missing."] and "series" not in found
    table = (tmp_path / "x.md").read_text()
    assert "| speed | 2.5 |  |\n\nx is missing.\n\n2 cores" in table
