"""A page is one file that shows what it is given, and does nothing else."""

import base64
import hashlib
import re
import tomllib

import numpy as np
import pytest

from albert_tf.figure import PAGE_DPI, new_plot, to_png
from albert_tf.reports import page
from albert_tf.reports.page import Figure, Table
from albert_tf.reports.run_files import read_runs
from albert_tf.reports.run_page import render_runs
from albert_tf.reports.task_report import render_evaluation
from tests.imports import ROOT
from tests.reports.parsed_page import ParsedPage
from tests.reports.runs import hostile_run


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\0b\x1b[31m", r"a\x00b\x1b[31m"),
        ("a\rb\x85", r"a\x0db\x85"),
        ("a\r\nb\tc", "a\nb\tc"),
        ("\ud800 \udfff", r"\ud800 \udfff"),
        ("\ufffe\uffff", r"\ufffe\uffff"),
        ("\u202eevil\u2066", r"\u202eevil\u2066"),
        ("עברית 中文 🎈 é", "עברית 中文 🎈 é"),
    ],
)
def test_unprintable_characters(text, shown):
    assert page.clean(text) == shown
    results = {text: {text: 1}}
    made = render_evaluation({"task": text, "results": results, "metric": text})
    assert ParsedPage(made).text.count(shown) == 5
    assert not re.search(rb"[\0-\x08\x0b-\x1f\x7f]", made)


@pytest.mark.usefixtures("quick")
def test_accessible_and_offline(tmp_path):
    content = render_runs(read_runs([hostile_run(tmp_path, "word")]))
    parsed = ParsedPage(content)
    assert parsed.all("html") == [{"lang": "en"}]
    assert len(parsed.all("img")) == 2 and all(one["alt"] for one in parsed.all("img"))
    assert all(cell["scope"] in ("row", "col") for cell in parsed.all("th"))
    assert [tag for tag, _ in parsed.tags].count("h1") == 1
    anchors = {heading["id"] for heading in parsed.all("h2")}
    assert {link[1:] for link in parsed.links() if link.startswith("#")} == anchors
    labels = {section["aria-labelledby"] for section in parsed.all("section")}
    assert labels == anchors
    (viewport,) = [m for m in parsed.all("meta") if m.get("name") == "viewport"]
    assert "width=device-width" in viewport["content"]
    for link in parsed.links():
        assert link.startswith(("data:", "#")), link
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", content.decode())
    script = parsed.scripts[1]
    assert "innerHTML" not in script and "eval(" not in script
    (policy,) = [m["content"] for m in parsed.all("meta") if "http-equiv" in m]
    rules = dict(part.strip().split(" ", 1) for part in policy.split(";"))
    style = content.decode().split("<style>")[1].split("</style>")[0]
    for text, rule in ((script, "script-src"), (style, "style-src")):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert rules[rule] == f"'sha256-{digest}'"
    assert rules["default-src"] == rules["base-uri"] == rules["form-action"] == "'none'"
    assert rules["img-src"] == "data:"


def test_a_picture_keeps_its_size():
    figure = new_plot("x", "y", 3, 2)[0]
    assert Figure(to_png(figure, PAGE_DPI), "a").size == (288, 192)


def test_only_what_is_long_or_empty_is_hidden():
    report = {"results": {"short": "s" * 200, "long": "l" * 201}}
    parsed = ParsedPage(render_evaluation(report))
    assert len(parsed.all("details")) == 1 and not parsed.all("nav")
    assert "l" * 200 + "…" in parsed.text and "l" * 201 in parsed.text
    parsed = ParsedPage(render_evaluation({}))
    assert parsed.titles == [] and parsed.scripts == []


def test_columns_of_numbers():
    table = Table("c", ["a", "b", "c"], [["1", 1, True], ["2", None, 2]])
    assert table.numeric == [False, True, False]


@pytest.mark.parametrize(
    ("value", "text", "setting"),
    [
        (None, "–", "–"),
        (True, "yes", "yes"),
        (np.bool_(False), "no", "no"),
        (1234567, "1,234,567", "1234567"),
        (np.int64(3), "3", "3"),
        (-0.5, "-0.5000", "-0.5"),
        (np.float32(0.25), "0.2500", "0.25"),
        (1e-05, "1e-05", "1e-05"),
        (12345678.9, "1.235e+07", "12345678.9"),
        (float("nan"), "nan", "nan"),
        (["a", 1, None], "a, 1, –", "a,1,–"),
        ({"a": "é"}, '{"a": "é"}', '{"a": "é"}'),
        (np.array([1, 2]), "[1 2]", "[1 2]"),
    ],
)
def test_values_as_text(value, text, setting):
    assert page.as_text(value) == text
    assert page.as_setting(value) == setting


def test_flatten():
    nested = {"a": {"b": {"c": 1}, "d": 2}, "e": 3}
    assert page.flatten(nested) == {"a b c": 1, "a d": 2, "e": 3}


def test_files_of_the_page_are_installed():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    patterns = project["tool"]["setuptools"]["package-data"]["albert_tf.reports"]
    folder = ROOT / "albert_tf/reports"
    found = {path.name for pattern in patterns for path in folder.glob(pattern)}
    needed = {f"{name}.js" for name in page._SCRIPTS}
    assert found == needed | {"page.css", *(f.name for f in folder.glob("*.j2"))}
    build = (ROOT / "BUILD").read_text()
    for pattern in patterns:
        assert f'"albert_tf/reports/{pattern}"' in build
