"""The page in a real browser: drawn, zoomed, read by mouse and keys, and offline."""

import math

import pytest

from albert_tf.reports.run_files import read_runs
from albert_tf.reports.run_page import render_runs
from tests import browser as browsers
from tests.browser import CTRL, SHIFT, Browser
from tests.reports.runs import hostile_run, lines, rollback, write_run

NOTHING = "document.documentElement.dataset.error || ''"
PLOT = "document.querySelectorAll('.plot')[0]"


@pytest.fixture(scope="module")
def browser():
    path = browsers.find()
    if path is None:
        pytest.skip(f"none of {', '.join(browsers.NAMES)} is installed")
    try:
        opened = Browser(path)
    except (OSError, RuntimeError, TimeoutError) as e:
        pytest.skip(f"{path} does not start: {e}")
    with opened:
        yield opened


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    folder = tmp_path_factory.mktemp("page")
    found = lines(40)
    found[6] |= {"loss": math.nan, "grad_norm": math.inf}
    paths = [
        write_run(folder / "a"),
        write_run(folder / "b", found, learning_rate=0.5),
        hostile_run(folder, "</script><img src=x onerror=alert(1)>"),
    ]
    page = folder / "page.html"
    page.write_bytes(render_runs(read_runs(paths), 1.0))
    return page


@pytest.fixture
def opened(browser, page):
    """The page, freshly opened in a window of 1000 x 800."""
    browser.requests.clear()
    browser.errors.clear()
    browser.open(page, 1000, 800)
    browser.evaluate(f"{PLOT}.scrollIntoView({{block: 'center'}})")
    yield browser
    assert browser.evaluate(NOTHING) == ""
    assert browser.errors == []
    loaded = {url for url in browser.requests if not url.startswith("data:image/png")}
    assert loaded == {page.as_uri()}


def ticks(browser):
    """Returns the numbers on the horizontal axis of the first chart."""
    query = f"[...{PLOT}.querySelectorAll('text')].filter(t => "
    query += "t.getAttribute('text-anchor') === 'middle').map(t => +t.textContent)"
    return browser.evaluate(query)


def box(browser):
    query = f"(() => {{ const r = {PLOT}.getBoundingClientRect(); "
    query += "return [r.left, r.top, r.width, r.height]; })()"
    return browser.evaluate(query)


def place(browser, across=0.5):
    left, top, width, height = box(browser)
    return left + across * width, top + height / 2


def tip(browser):
    shown = browser.evaluate(f"!{PLOT}.querySelector('.tip').hidden")
    text = f"{PLOT}.querySelector('.tip').innerText"
    return browser.evaluate(text) if shown else ""


def count(browser, selector):
    return browser.evaluate(f"{PLOT}.querySelectorAll('{selector}').length")


def press(browser, label):
    query = f"document.querySelector('button[aria-label=\"{label}\"]').click()"
    browser.evaluate(query)


def test_every_chart_is_drawn(opened):
    charts = opened.evaluate("document.querySelectorAll('.chart').length")
    assert opened.evaluate("+document.documentElement.dataset.ready") == charts > 8
    empty = "[...document.querySelectorAll('.chart')].filter(c => "
    empty += "!c.querySelector('.series[d^=M], .dot')).length"
    assert opened.evaluate(empty) <= 1  # the hostile run has a chart of its own
    # Neither NaN nor infinity reaches a path, which would end there.
    paths = "[...document.querySelectorAll('path')].map(p => p.getAttribute('d'))"
    assert not any("NaN" in path or "Inf" in path for path in opened.evaluate(paths))
    foreign = (
        "document.querySelectorAll('main img:not([src^=\"data:image/png\"])').length"
    )
    assert opened.evaluate(foreign) == 0
    hidden = "getComputedStyle(document.querySelector('.without-script')).display"
    assert opened.evaluate(hidden) == "none"


def test_hover_shows_values(opened):
    assert tip(opened) == ""
    opened.mouse("Moved", *place(opened, 0.5))
    text = tip(opened)
    assert text.startswith("step ") and "a train" in text and "b train" in text
    opened.mouse("Moved", 2, 2)
    assert tip(opened) == ""


def test_zoom_by_dragging_and_back(opened):
    whole = ticks(opened)
    assert (whole[0], whole[-1]) == (5, 35) or max(whole) >= 30
    opened.drag(place(opened, 0.3), place(opened, 0.5)[0])
    inside = ticks(opened)
    assert max(inside) - min(inside) < 10
    before = ticks(opened)
    opened.drag(place(opened, 0.5), place(opened, 0.2)[0], modifiers=SHIFT)
    assert min(ticks(opened)) > min(before)
    x, y = place(opened)
    button = {"button": "left", "buttons": 1}
    for clicks in (1, 2):
        opened.mouse("Pressed", x, y, clickCount=clicks, **button)
        opened.mouse("Released", x, y, clickCount=clicks, **button)
    assert ticks(opened) == whole


def test_zoom_by_wheel_buttons_and_keys(opened):
    whole = ticks(opened)

    def span():
        found = ticks(opened)
        return max(found) - min(found)

    path = f"{PLOT}.querySelector('.series').getAttribute('d')"
    drawn = opened.evaluate(path)
    wheel = {"deltaX": 0, "deltaY": -100, "modifiers": CTRL}
    opened.mouse("Wheel", *place(opened), **wheel)
    opened.wait(f"{path} !== '{drawn}'")
    press(opened, "Show everything")
    assert ticks(opened) == whole
    for _ in range(4):
        press(opened, "Zoom in")
    narrow = span()
    assert narrow < max(whole) - min(whole)
    left = min(ticks(opened))
    press(opened, "Move left")
    assert min(ticks(opened)) < left
    opened.evaluate(f"{PLOT}.focus()")
    opened.key("0")
    assert ticks(opened) == whole
    for _ in range(4):
        opened.key("+")
    assert span() == narrow
    opened.key("-")
    opened.key("0")
    assert ticks(opened) == whole


def test_fingers_zoom_and_move(opened):
    opened.call("Emulation.setTouchEmulationEnabled", enabled=True, maxTouchPoints=2)
    whole = ticks(opened)
    (x1, y), (x2, _) = place(opened, 0.45), place(opened, 0.65)
    opened.touch("Start", (x1, y))
    opened.touch("Start", (x1, y), (x2, y))
    for share in (0.3, 0.6, 1.0):
        opened.touch("Move", (x1 - 60 * share, y), (x2 + 60 * share, y))
    opened.touch("End")
    zoomed = ticks(opened)
    assert max(zoomed) - min(zoomed) < max(whole) - min(whole)
    path = f"{PLOT}.querySelector('.series').getAttribute('d')"
    before = opened.evaluate(path)
    opened.touch("Start", (x1, y))
    for shift in (20, 60, 90):
        opened.touch("Move", (x1 + shift, y))
    opened.touch("End")
    assert opened.evaluate(path) != before
    opened.touch("Start", (x1, y))
    opened.touch("End")
    assert tip(opened).startswith("step ")
    opened.call("Emulation.setTouchEmulationEnabled", enabled=False)


def test_keys_read_the_points(opened):
    opened.evaluate(f"{PLOT}.focus()")
    steps = []
    for key in ("ArrowRight", "ArrowRight", "ArrowRight", "ArrowLeft"):
        opened.key(key)
        steps.append(tip(opened).splitlines()[0])
    assert steps == ["step 2", "step 4", "step 6", "step 4"]
    spoken = opened.evaluate(f"{PLOT}.querySelector('.quiet').textContent")
    assert spoken.startswith("step 4; a train 4")
    opened.key("Escape")
    assert tip(opened) == ""


def test_a_value_that_is_no_number_is_a_gap_and_is_named(opened):
    paths = f"[...{PLOT}.querySelectorAll('.c1.series')].map(p => p.getAttribute('d'))"
    line = opened.evaluate(paths)[0]
    assert line.count("M") == 2  # the curve has two parts
    opened.evaluate(f"{PLOT}.focus()")
    for _ in range(6):
        opened.key("ArrowRight")
    head, *rows = tip(opened).splitlines()
    assert head == "step 12" and "NaN" in rows


def test_legend_logarithm_smoothing_and_axis(opened):
    before = count(opened, ".c0")
    boxes = "document.querySelectorAll('.toolbar [type=checkbox]')"
    opened.evaluate(f"{boxes}[0].click()")
    assert before > 0 and count(opened, ".c0") == 0
    opened.evaluate(f"{boxes}[0].click()")
    assert count(opened, ".c0") == before
    path = f"{PLOT}.querySelector('.c0.series').getAttribute('d')"
    linear = opened.evaluate(path)
    opened.evaluate(f"[...{boxes}].at(-1).click()")
    assert opened.evaluate(path) != linear
    opened.evaluate(f"[...{boxes}].at(-1).click()")
    assert opened.evaluate(path) == linear
    slider = "document.querySelector('[type=range]')"
    change = f"{slider}.value = 0.9; {slider}.dispatchEvent(new Event('input'))"
    opened.evaluate(change)
    assert count(opened, ".faint") > 0
    assert opened.evaluate(f"{PLOT}.querySelector('.faint').getAttribute('d')")
    axis = "document.querySelector('.toolbar select')"
    opened.evaluate(
        f"{axis}.value = 'tokens'; {axis}.dispatchEvent(new Event('change'))"
    )
    texts = f"[...{PLOT}.querySelectorAll('text')].map(t => t.textContent)"
    assert any("k" in text for text in opened.evaluate(texts))


def test_one_weight_of_the_trust_ratios(opened):
    chart = "document.querySelector('.chart:has(figcaption select)')"
    lines_of = f"{chart}.querySelectorAll('.series').length"
    many = opened.evaluate(lines_of)
    choice = f"{chart}.querySelector('select')"
    opened.evaluate(
        f"{choice}.selectedIndex = 1; {choice}.dispatchEvent(new Event('change'))"
    )
    assert 0 < opened.evaluate(lines_of) < many


def test_themes(browser, page):
    back = "getComputedStyle(document.body).backgroundColor"
    light, dark = "rgb(255, 255, 255)", "rgb(18, 22, 28)"
    for scheme, first in (("light", light), ("dark", dark)):
        browser.open(page, 800, 600, prefers_color_scheme=scheme)
        found = [browser.evaluate(back)]
        theme = "[...document.querySelectorAll('.toolbar button')].at(-1)"
        for _ in range(3):
            browser.evaluate(f"{theme}.click()")
            found.append(browser.evaluate(back))
        assert found == [first, dark, light, first]


@pytest.mark.parametrize("width", [360, 390, 768, 1600])
def test_no_width_scrolls_sideways(browser, page, width):
    browser.open(page, width, 800)
    root = "document.documentElement"
    for shown in ("false", "true"):
        opening = "document.querySelectorAll('details').forEach(d => d.open = "
        browser.evaluate(f"{opening}{shown})")
        assert browser.evaluate(f"{root}.scrollWidth") <= width
    plots = (
        "Math.min(...[...document.querySelectorAll('.plot')].map(p => p.clientWidth))"
    )
    assert browser.evaluate(plots) > 250


def test_without_a_script_there_are_tables(browser, page):
    browser.call("Emulation.setScriptExecutionDisabled", value=True)
    try:
        browser.open(page, 800, 600)
        shown = "getComputedStyle(document.querySelector('{}')).display"
        assert browser.evaluate(shown.format(".without-script")) != "none"
        assert browser.evaluate(shown.format("#toolbar")) == "none"
        assert browser.evaluate("document.querySelectorAll('table').length") > 3
    finally:
        browser.call("Emulation.setScriptExecutionDisabled", value=False)


def test_rollbacks_are_marked(browser, tmp_path):
    found = [*lines(40), rollback(21, 20, 20), rollback(45, 40, 44)]
    paths = [write_run(tmp_path / "a", found), write_run(tmp_path / "b", lines(40))]
    page = tmp_path / "page.html"
    page.write_bytes(render_runs(read_runs(paths)))
    browser.errors.clear()
    browser.open(page, 1000, 800)
    browser.evaluate(f"{PLOT}.scrollIntoView({{block: 'center'}})")
    assert count(browser, ".mark.c0") == 2 and count(browser, ".mark") == 2
    # Both are inside the chart, the second one beyond the last line of the log.
    marks = f"[...{PLOT}.querySelectorAll('.mark line')]"
    left, top, width, height = box(browser)
    first, second = browser.evaluate(f"{marks}.map(l => +l.getAttribute('x1'))")
    assert 0 < first < second <= width
    browser.mouse("Moved", left + first, top + height / 2)
    assert "a diverged at step 21: loss 57.25" in tip(browser)
    assert "step 45" not in tip(browser)
    # With the run, its marks go; the axis may be time.
    boxes = "document.querySelectorAll('#toolbar input[type=checkbox]')"
    browser.evaluate(f"{boxes}[0].click()")
    assert count(browser, ".mark") == 0
    browser.evaluate(f"{boxes}[0].click()")
    axis = "document.querySelector('#toolbar select')"
    change = f"{axis}.value = 'hours'; {axis}.dispatchEvent(new Event('change'))"
    browser.evaluate(change)
    assert count(browser, ".mark") == 2
    assert browser.evaluate(NOTHING) == "" and browser.errors == []


def test_the_baseline_of_one_evaluation_is_a_line(browser, tmp_path):
    page = tmp_path / "page.html"
    runs = read_runs([write_run(tmp_path / "a", lines(10))])
    page.write_bytes(render_runs(runs))
    browser.open(page, 1000, 800)
    baseline = "document.querySelector('path.baseline')"
    assert "H" in browser.evaluate(f"{baseline}.getAttribute('d')")
    dots = f"{baseline}.closest('.plot').querySelectorAll('circle.dot').length"
    assert browser.evaluate(dots) == 1
