"""The page in a real browser: drawn, zoomed, read by mouse and keys, and offline."""

import math

import pytest

from albert_tf.reports.run_files import read_runs
from albert_tf.reports.run_page import render_runs
from tests import browser as browsers
from tests.browser import CTRL, SHIFT, Browser
from tests.reports.runs import hostile_run, lines, rollback, write_run

# What the tests ask of the page, whose own script has no global names.
HELPERS = """
var all = (selector, parent) => [...(parent || document).querySelectorAll(selector)];
var plot = all('.plot')[0];
var paths = (selector) => all(selector, plot).map((one) => one.getAttribute('d'));
var ticks = () => all('text[text-anchor=middle]', plot).map((one) => +one.textContent);
var style = (selector) => getComputedStyle(all(selector)[0]);
var tip = () => all('.tip', plot)[0].hidden ? '' : all('.tip', plot)[0].innerText;
var press = (label) => all(`button[aria-label="${label}"]`)[0].click();
var box = () => {
  const { x, y, width, height } = plot.getBoundingClientRect();
  return [x, y, width, height];
};
var change = (one, values) => {
  Object.assign(one, values);
  for (const kind of ['input', 'change']) one.dispatchEvent(new Event(kind));
};
plot.scrollIntoView({ block: 'center' });
"""


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
    """Runs of one and of several evaluations, with rollbacks, and a hostile one."""
    folder = tmp_path_factory.mktemp("page")
    found = [*lines(40), rollback(21, 20, 20), rollback(45, 40, 44)]
    found[6] |= {"loss": math.nan, "grad_norm": math.inf}
    paths = [
        write_run(folder / "a", lines(10)),
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
    browser.evaluate(HELPERS)
    yield browser
    assert browser.evaluate("document.documentElement.dataset.error || ''") == ""
    assert browser.errors == []
    loaded = {url for url in browser.requests if not url.startswith("data:image/png")}
    assert loaded == {page.as_uri()}


def ticks(browser):
    """Returns the numbers on the horizontal axis of the first chart."""
    return browser.evaluate("ticks()")


def span(browser):
    return max(ticks(browser)) - min(ticks(browser))


def place(browser, across=0.5):
    left, top, width, height = browser.evaluate("box()")
    return left + across * width, top + height / 2


def tip(browser):
    return browser.evaluate("tip()")


def count(browser, selector):
    return browser.evaluate(f"all('{selector}', plot).length")


@pytest.mark.slow
def test_every_chart_is_drawn(opened):
    charts = opened.evaluate("all('.chart').length")
    assert opened.evaluate("+document.documentElement.dataset.ready") == charts > 8
    empty = "all('.chart').filter((one) => !all('.series[d^=M], .dot', one).length)"
    assert opened.evaluate(f"{empty}.length") <= 1  # the hostile run has a chart
    # Neither NaN nor infinity reaches a path, which would end there.
    drawn = opened.evaluate("all('path').map((one) => one.getAttribute('d'))")
    assert not any("NaN" in path or "Inf" in path for path in drawn)
    foreign = "all('main img:not([src^=\"data:image/png\"])').length"
    assert opened.evaluate(foreign) == 0
    assert opened.evaluate("style('.without-script').display") == "none"
    # The baseline of a single evaluation is a line, its value a dot.
    assert any("H" in path for path in drawn)
    dots = "all('path.baseline.c0')[0].closest('.plot').querySelectorAll('circle.c0')"
    assert opened.evaluate(f"{dots}.length") == 1


def test_hover_shows_values(opened):
    assert tip(opened) == ""
    opened.mouse("Moved", *place(opened, 0.2))
    text = tip(opened)
    assert text.startswith("step ") and "a train" in text and "b train" in text
    opened.mouse("Moved", 2, 2)
    assert tip(opened) == ""


def test_zoom_by_dragging_and_back(opened):
    whole = ticks(opened)
    assert max(whole) >= 30
    opened.drag(place(opened, 0.3), place(opened, 0.5)[0])
    before = min(ticks(opened))
    assert span(opened) < 10
    opened.drag(place(opened, 0.9), place(opened, 0.1)[0], modifiers=SHIFT)
    assert min(ticks(opened)) > before
    x, y = place(opened)
    button = {"button": "left", "buttons": 1}
    for clicks in (1, 2):
        opened.mouse("Pressed", x, y, clickCount=clicks, **button)
        opened.mouse("Released", x, y, clickCount=clicks, **button)
    assert ticks(opened) == whole


def test_zoom_by_wheel_buttons_and_keys(opened):
    whole, first = ticks(opened), "paths('.series')[0]"
    drawn = opened.evaluate(first)
    wheel = {"deltaX": 0, "deltaY": -100, "modifiers": CTRL}
    opened.mouse("Wheel", *place(opened), **wheel)
    opened.wait(f"{first} !== '{drawn}'")
    opened.evaluate("press('Show everything')")
    assert ticks(opened) == whole
    opened.evaluate("for (const i of [1, 2, 3, 4]) press('Zoom in')")
    narrow, left = span(opened), min(ticks(opened))
    assert narrow < max(whole) - min(whole)
    opened.evaluate("press('Move left')")
    assert min(ticks(opened)) < left
    opened.evaluate("plot.focus()")
    opened.key("0")
    assert ticks(opened) == whole
    for _ in range(4):
        opened.key("+")
    assert span(opened) == narrow
    opened.key("-")
    opened.key("0")
    assert ticks(opened) == whole


def test_fingers_zoom_and_move(opened):
    opened.call("Emulation.setTouchEmulationEnabled", enabled=True, maxTouchPoints=2)
    whole = span(opened)
    (x1, y), (x2, _) = place(opened, 0.45), place(opened, 0.65)
    opened.touch("Start", (x1, y))
    opened.touch("Start", (x1, y), (x2, y))
    for share in (0.3, 0.6, 1.0):
        opened.touch("Move", (x1 - 60 * share, y), (x2 + 60 * share, y))
    opened.touch("End")
    assert span(opened) < whole
    before = opened.evaluate("paths('.series')")
    opened.touch("Start", (x1, y))
    for shift in (20, 60, 90):
        opened.touch("Move", (x1 + shift, y))
    opened.touch("End")
    assert opened.evaluate("paths('.series')") != before
    opened.touch("Start", (x1, y))
    opened.touch("End")
    assert tip(opened).startswith("step ")
    opened.call("Emulation.setTouchEmulationEnabled", enabled=False)


def test_keys_read_the_points_and_a_gap_by_name(opened):
    opened.evaluate("plot.focus()")
    steps = []
    for key in ("ArrowRight", "ArrowRight", "ArrowRight", "ArrowLeft"):
        opened.key(key)
        steps.append(tip(opened).splitlines()[0])
    assert steps == ["step 2", "step 4", "step 6", "step 4"]
    spoken = opened.evaluate("all('.quiet', plot)[0].textContent")
    assert spoken.startswith("step 4; a train 4")
    for _ in range(4):
        opened.key("ArrowRight")
    head, *rows = tip(opened).splitlines()
    assert head == "step 12" and "NaN" in rows
    assert opened.evaluate("paths('.c1.series')[0]").count("M") == 2  # two parts
    opened.key("Escape")
    assert tip(opened) == ""


def test_legend_logarithm_smoothing_and_axis(opened):
    boxes = "all('.toolbar [type=checkbox]')"
    for box, look in (("[0]", "all('.c0', plot).length"), (".at(-1)", "paths('.c0')")):
        before = opened.evaluate(look)
        opened.evaluate(f"{boxes}{box}.click()")
        assert before != opened.evaluate(look)
        opened.evaluate(f"{boxes}{box}.click()")
        assert before == opened.evaluate(look)
    opened.evaluate("change(all('[type=range]')[0], { value: 0.9 })")
    assert any(opened.evaluate("paths('.faint')"))
    opened.evaluate("change(all('.toolbar select')[0], { value: 'tokens' })")
    texts = opened.evaluate("all('text', plot).map((one) => one.textContent)")
    assert any("k" in text for text in texts)
    # One weight of the trust ratios.
    series = "all('.series', all('.chart:has(figcaption select)')[0]).length"
    many = opened.evaluate(series)
    opened.evaluate("change(all('.chart select')[0], { selectedIndex: 1 })")
    assert 0 < opened.evaluate(series) < many


def test_rollbacks_are_marked(opened):
    assert count(opened, ".mark.c1") == 2 == count(opened, ".mark")
    # Both are inside the chart, the second one beyond the last line of the log.
    marks = "all('.mark line', plot).map((one) => +one.getAttribute('x1'))"
    left, top, width, height = opened.evaluate("box()")
    first, second = opened.evaluate(marks)
    assert 0 < first < second <= width
    opened.mouse("Moved", left + first, top + height / 2)
    assert "b diverged at step 21: loss 57.25" in tip(opened)
    assert "step 45" not in tip(opened)
    # With the run, its marks go; the axis may be time.
    for shown in (0, 2):
        opened.evaluate("all('#toolbar [type=checkbox]')[1].click()")
        assert count(opened, ".mark") == shown
    opened.evaluate("change(all('#toolbar select')[0], { value: 'hours' })")
    assert count(opened, ".mark") == 2


def test_themes(browser, page):
    back = "style('body').backgroundColor"
    light, dark = "rgb(255, 255, 255)", "rgb(18, 22, 28)"
    for scheme, first in (("light", light), ("dark", dark)):
        browser.open(page, 800, 600, prefers_color_scheme=scheme)
        browser.evaluate(HELPERS)
        found = [browser.evaluate(back)]
        for _ in range(3):
            browser.evaluate("all('.toolbar button').at(-1).click()")
            found.append(browser.evaluate(back))
        assert found == [first, dark, light, first]


def test_no_width_scrolls_sideways(browser, page):
    for width in (360, 390, 768, 1600):
        browser.open(page, width, 800)
        browser.evaluate(HELPERS)
        for shown in ("false", "true"):
            browser.evaluate(f"all('details').forEach((one) => one.open = {shown})")
            assert browser.evaluate("document.documentElement.scrollWidth") <= width
        assert (
            browser.evaluate("Math.min(...all('.plot').map((p) => p.clientWidth))")
            > 250
        )


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
