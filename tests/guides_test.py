"""The guides name what exists, and have what a guide has."""

import re

import pytest

import albert_tf
from tests.documents import ROOT, pages

PAGES = {page.stem: page.read_text() for page in ROOT.glob("docs/guides/*.md")}
OTHERS = {"index", "which_export", "coming_from", "my_language", "domain"}
TASKS = sorted(set(PAGES) - OTHERS)
CELL = re.compile(
    r"^```\{code-cell\}[^\n]*\n((?:---\n.*?^---\n)?)(.*?)^```", re.M | re.S
)


def test_the_pages_about_no_task_are_there():
    assert set(PAGES) >= OTHERS


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.stem)
def test_names_of_the_package_exist(page):
    named = set(re.findall(r"\balbert_tf\.(\w+)", page.read_text()))
    assert named - {"data", "errors", "export"} <= set(albert_tf.__all__)


@pytest.mark.parametrize("name", TASKS)
def test_a_guide_begins_with_a_command_and_ends_with_a_picture(name):
    cells = CELL.findall(PAGES[name])
    shown = [code for options, code in cells if "remove-cell" not in options]
    assert shown[0].startswith("%%sh\n") and "albert-tf " in shown[0]
    assert not shown[1].startswith("%%sh") and len(shown[1].splitlines()) <= 10
    pictures = [options for options, code in cells if "plt." in code]
    assert "plt." in shown[-1] and all("alt: " in options for options in pictures)
    after = PAGES[name].split(shown[-1])[-1]
    assert re.findall("^#+ (.*)", after, re.M) == ["Read on"]


def test_the_tables_of_other_libraries_lead_here():
    page = PAGES["coming_from"]
    theirs = set(re.findall(r"`(TFAlbertFor\w+)", page))
    assert len(theirs) == 6
    models = {name for name in albert_tf.__all__ if name.startswith("AlbertM")}
    assert models <= set(re.findall(r"`albert_tf\.(\w+)", page))
