"""The site that `make docs` built is whole, and a browser shows it without a network.

`make docs` names the site in DOCS_HTML; without it, these tests are skipped.
"""

import collections
import functools
import html
import html.parser
import json
import os
import pathlib
import re
import urllib.parse

import pytest

from tests import browser

if "DOCS_HTML" not in os.environ:
    pytest.skip("make docs runs these tests", allow_module_level=True)

SITE = pathlib.Path(os.environ["DOCS_HTML"]).resolve()
# Sphinx's own pages are not about anything.
PAGES = sorted(set(SITE.rglob("*.html")) - set(SITE.glob("_static/**/*.html")))
LOOKED_AT = ("index", "guides/classify", "api/names/albert_tf.Classifier")
COLORS = {"light": "rgb(255, 255, 255)", "dark": "rgb(20, 24, 30)"}
# What reaches beyond the window and cannot be scrolled by itself.
TOO_WIDE = """[...document.querySelectorAll('.bd-article *')]
.filter(e => e.getBoundingClientRect().right > innerWidth + 1)
.filter(e => {
  while (e.parentElement && getComputedStyle(e).overflowX === 'visible') {
    e = e.parentElement
  }
  return e.tagName === 'HTML' || e.tagName === 'BODY' || e.matches('[class^=bd-]')
})
.map(e => e.outerHTML.slice(0, 100))"""


class Page(html.parser.HTMLParser):
    """The places of a page, what it links to, and what it loads."""

    def __init__(self, path):
        super().__init__()
        self.places, self.links, self.loads = {""}, set(), set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        self.places.update(found[name] for name in ("id", "name") if name in found)
        if "href" in found:
            (self.links if tag == "a" else self.loads).add(found["href"])
        if "src" in found:
            self.loads.add(found["src"])


@functools.cache
def parsed(path):
    return Page(path)


def name_of(path):
    return path.relative_to(SITE).as_posix()


def target_of(page, link):
    """Returns the file and the place in it that a link of the site leads to."""
    parts = urllib.parse.urlsplit(link)
    path = (page.parent / urllib.parse.unquote(parts.path)).resolve()
    return (path if parts.path else page), urllib.parse.unquote(parts.fragment)


def is_elsewhere(link):
    return bool(urllib.parse.urlsplit(link).scheme)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page):
    for link in filter(lambda link: not is_elsewhere(link), parsed(page).links):
        path, place = target_of(page, link)
        assert path.is_relative_to(SITE) and path.is_file(), link
        assert path.suffix != ".html" or place in parsed(path).places, link


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_a_page_loads_only_what_the_site_has(page):
    for link in parsed(page).loads:
        if not link.startswith("data:"):
            assert not is_elsewhere(link) and target_of(page, link)[0].is_file(), link


def test_styles_load_only_what_the_site_has():
    sheets = list(SITE.rglob("*.css"))
    assert len(sheets) > 5
    for sheet in sheets:
        text = sheet.read_text(encoding="utf-8")
        for link in re.findall(r"url\([\"']?([^\"')]+)|@import *[\"']([^\"']+)", text):
            link = "".join(link)
            if not link.startswith(("data:", "#")):
                assert target_of(sheet, link)[0].is_file(), f"{sheet.name}: {link}"


def test_every_page_is_two_clicks_from_the_first():
    clicks, queue = {SITE / "index.html": 0}, collections.deque([SITE / "index.html"])
    while queue:
        page = queue.popleft()
        for link in parsed(page).links:
            path, _ = target_of(page, link)
            if not is_elsewhere(link) and path.suffix == ".html" and path not in clicks:
                clicks[path] = clicks[page] + 1
                queue.append(path)
    far = {name_of(page) for page in PAGES if clicks.get(page, 9) > 2}
    assert far <= {"genindex.html", "search.html", "py-modindex.html"}


def test_what_a_command_prints_keeps_its_lines():
    text = (SITE / "guides/classify.html").read_text(encoding="utf-8")
    printed = json.loads(html.unescape(re.findall(r">(\{\n.*?\n\})\n<", text, re.S)[0]))
    assert printed["task"] == "table"


@pytest.fixture(scope="module")
def chromium():
    if (path := browser.find()) is None:
        pytest.skip("needs Chromium")
    with browser.Browser(path) as started:
        yield started


@pytest.mark.parametrize("scheme", COLORS)
@pytest.mark.parametrize("width", (390, 1280))
@pytest.mark.parametrize("name", LOOKED_AT)
def test_a_browser_shows_it(chromium, name, width, scheme):
    chromium.requests.clear()
    chromium.open(SITE / f"{name}.html", width, 900, prefers_color_scheme=scheme)
    chromium.wait("document.documentElement.dataset.theme !== undefined")
    assert not chromium.errors
    assert chromium.requests
    assert all(url.startswith(("file:", "data:")) for url in chromium.requests)
    text = chromium.evaluate("document.querySelector('.bd-article').innerText")
    assert len(text) > 300
    assert chromium.evaluate("document.documentElement.scrollWidth") <= width
    assert chromium.evaluate(TOO_WIDE) == []
    color = "getComputedStyle(document.body).backgroundColor"
    assert chromium.evaluate(color) == COLORS[scheme]


def test_the_search_finds_a_page(chromium):
    page = SITE / "search.html"
    chromium.open(page, 1280, 900)
    chromium.call("Page.navigate", url=f"{page.as_uri()}?q=sentence+order")
    chromium.wait("document.querySelectorAll('#search-results li a').length > 3")
    assert not chromium.errors
