"""A page is one file that shows what it is given, and does nothing else."""

import re
import subprocess
import sys

import numpy as np
import pytest

from albert_tf.figure import PAGE_DPI, new_plot, to_png
from albert_tf.reports import page
from albert_tf.reports.page import (
    Facts,
    Figure,
    Figures,
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
)


@pytest.fixture(scope="module")
def png():
    figure, axes = new_plot("x", "y", 3, 2)
    axes.plot([1, 2])
    return to_png(figure, PAGE_DPI)


def full_page(text: str, png: bytes) -> Page:
    """A page with the text in every place that takes one."""
    blocks = [
        Heading(text),
        Text(text),
        Notices([text, text]),
        Facts(text, {text: text, "long": text * 50}),
        Table(text, [text, "n"], [[text, 1], [text * 50, 2.5]], marked=1),
        Table(text, [text], [[text]], stacked=True),
        Figures([Figure(png, text, text)]),
    ]
    return Page(text, text, [Section(text, blocks)] * 3)


@pytest.mark.parametrize("text", HOSTILE)
def test_text_is_shown_not_run(text, png):
    parsed = ParsedPage(render(full_page(text, png)))
    assert parsed.text.count(text) > 3 * 100  # two long texts a section
    assert text in parsed.titles
    assert text in [image["alt"] for image in parsed.all("img")]
    # Long texts get a preview; nothing else may add an element or an attribute.
    shapes = [
        [(tag, sorted(attributes)) for tag, attributes in one.tags]
        for one in (parsed, ParsedPage(render(full_page("w" * len(text), png))))
    ]
    assert shapes[0] == shapes[1]
    assert not parsed.all("script")


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
def test_unprintable_characters(text, shown, png):
    result = render(full_page(text, png))
    parsed = ParsedPage(result)
    assert parsed.titles == [shown] * 3
    assert not re.search(rb"[\0-\x08\x0b-\x1f\x7f]", result)


def test_accessible(png):
    parsed = ParsedPage(render(full_page("word", png)))
    assert parsed.all("html") == [{"lang": "en"}]
    assert all(image["alt"] for image in parsed.all("img"))
    assert all(cell["scope"] in ("row", "col") for cell in parsed.all("th"))
    assert [tag for tag, _ in parsed.tags].count("h1") == 1
    anchors = {heading["id"] for heading in parsed.all("h2")}
    assert {link[1:] for link in parsed.links() if link.startswith("#")} == anchors
    labels = {section["aria-labelledby"] for section in parsed.all("section")}
    assert labels == anchors
    (viewport,) = [m for m in parsed.all("meta") if m.get("name") == "viewport"]
    assert "width=device-width" in viewport["content"]


def test_figure_keeps_its_size_in_inches(png):
    (image,) = ParsedPage(
        render(Page("t", "", [Section("s", [Figures([Figure(png, "a")])])]))
    ).all("img")
    assert (image["width"], image["height"]) == ("288", "192")  # 3 and 2 inches


def test_long_texts_open_at_a_click():
    short, long = "s" * 200, "l" * 201
    table = Table("c", ["text"], [[short], [long]])
    parsed = ParsedPage(render(Page("t", "", [Section("s", [table])])))
    assert len(parsed.all("details")) == 1
    assert "l" * 200 + "…" in parsed.text and long in parsed.text


def test_what_is_empty_is_left_out():
    sections = [Section("gone", []), Section("kept", [Text("x")])]
    parsed = ParsedPage(render(Page("t", "", sections)))
    assert parsed.titles == ["kept"]
    assert not parsed.all("nav")


def test_columns_of_numbers():
    table = Table("c", ["a", "b", "c"], [["1", 1, True], ["2", None, 2]])
    assert [column.numeric for column in table.columns] == [False, True, False]
    assert [c.name for c in Table("c", ["a", "b"], []).columns] == ["a", "b"]
    with pytest.raises(ValueError, match="zip"):
        render(Page("t", "", [Section("s", [Table("c", ["a"], [[1, 2]])])]))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (True, "yes"),
        (np.bool_(False), "no"),
        (1234567, "1,234,567"),
        (np.int64(3), "3"),
        (0.0, "0.0000"),
        (-0.5, "-0.5000"),
        (np.float32(0.25), "0.2500"),
        (1e-05, "1e-05"),
        (12345678.9, "1.235e+07"),
        (float("nan"), "nan"),
        (["a", 1, None], "a, 1, –"),
        ({"a": "é"}, '{"a": "é"}'),
        (np.array([1, 2]), "[1 2]"),
    ],
)
def test_values_as_text(value, text):
    assert page.as_text(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1e-05, "1e-05"),
        (np.float64(0.1), "0.1"),
        (30000, "30000"),
        (None, "–"),
        (False, "no"),
        (("a", 2), "a,2"),
    ],
)
def test_settings_can_be_given_again(value, text):
    assert page.as_setting(value) == text


def test_flatten():
    nested = {"a": {"b": {"c": 1}, "d": 2}, "e": 3}
    assert page.flatten(nested) == {"a b c": 1, "a d": 2, "e": 3}


def test_jinja_is_imported_with_the_first_page():
    code = "import sys, albert_tf.reports.page; assert 'jinja2' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)
