"""A page is one file that shows what it is given, and does nothing else."""

import base64
import hashlib
import json
import re
import subprocess
import sys
import tomllib

import numpy as np
import pytest

from albert_tf.figure import PAGE_DPI, new_plot, to_png
from albert_tf.reports import page
from albert_tf.reports.page import (
    Charts,
    Facts,
    Figure,
    Figures,
    Folded,
    Heading,
    Notices,
    Page,
    Section,
    Table,
    Text,
    render,
)
from tests.imports import ROOT
from tests.reports.parsed_page import ParsedPage

HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)",
    "{{ 7 * 7 }}{% raw %}",
    "]]></style><!-- ",
    "&lt;b&gt; &amp;",
    "</td></tr></table>",
    "</script><script>alert(1)</script>",
)


@pytest.fixture(scope="module")
def png():
    figure, axes = new_plot("x", "y", 3, 2)
    axes.plot([1, 2])
    return to_png(figure, PAGE_DPI)


def full_page(text: str, png: bytes) -> bytes:
    """A page with the text in every place that takes one."""
    blocks = [
        Heading(text),
        Text(text),
        Notices([text, text]),
        Facts(text, {text: text, "long": text * 50}),
        Table(text, [text, "n"], [[text, 1], [text * 50, 2.5]], marked=1),
        Table(text, [text], [[text]], stacked=True),
        Figures([Figure(png, text, text)]),
        Folded(text, [Text(text)]),
        Charts({text: text}),
    ]
    return render(Page(text, text, [Section(text, blocks)] * 3))


@pytest.mark.parametrize("text", HOSTILE)
def test_text_is_shown_not_run(text, png):
    parsed = ParsedPage(full_page(text, png))
    assert parsed.text.count(text) > 3 * 100  # two long texts a section
    assert text in parsed.titles
    assert text in [image["alt"] for image in parsed.all("img")]
    assert json.loads(parsed.scripts[0]) == {text: text}
    # Long texts get a preview; nothing else may add an element or an attribute.
    shapes = [
        [(tag, sorted(attributes)) for tag, attributes in one.tags]
        for one in (parsed, ParsedPage(full_page("w" * len(text), png)))
    ]
    assert shapes[0] == shapes[1]
    assert len(parsed.scripts) == 2


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
    blocks = [Text(text), Facts(text, {text: text}), Table(text, [text], [[text]])]
    result = render(Page(text, text, [Section(text, blocks)] * 3))
    assert ParsedPage(result).titles == [shown] * 3
    assert not re.search(rb"[\0-\x08\x0b-\x1f\x7f]", result)


def test_accessible_and_offline(png):
    content = full_page("word", png)
    parsed = ParsedPage(content)
    assert parsed.all("html") == [{"lang": "en"}]
    # The figure keeps its size, 3 and 2 inches.
    sizes = [(image["width"], image["height"]) for image in parsed.all("img")]
    assert sizes == [("288", "192")] * 3
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


def test_only_what_is_long_or_empty_is_hidden():
    table = Table("c", ["text"], [["s" * 200], ["l" * 201]])
    parsed = ParsedPage(render(Page("t", "", [Section("kept", [table])])))
    assert len(parsed.all("details")) == 1 and not parsed.all("nav")
    assert "l" * 200 + "…" in parsed.text and "l" * 201 in parsed.text
    parsed = ParsedPage(render(Page("t", "", [Section("gone", [])])))
    assert parsed.titles == [] and parsed.scripts == []


def test_columns_of_numbers():
    table = Table("c", ["a", "b", "c"], [["1", 1, True], ["2", None, 2]])
    assert table.numeric == [False, True, False]
    assert len(Table("c", ["a", "b"], []).numeric) == 2
    with pytest.raises(ValueError, match="zip"):
        render(Page("t", "", [Section("s", [Table("c", ["a"], [[1, 2], [3]])])]))


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


def test_jinja_is_imported_with_the_first_page():
    code = "import sys, albert_tf.reports.page; assert 'jinja2' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)
