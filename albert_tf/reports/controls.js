// Mouse, fingers, keys and the toolbar.
function listen(chart) {
  const plot = chart.plot, pointers = new Map();
  let start = null;
  const placeIn = (event) => {
    const box = plot.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top };
  };
  plot.addEventListener("pointerdown", (event) => {
    if (event.pointerType === "mouse" && event.button !== 0) return;
    pointers.set(event.pointerId, placeIn(event));
    start = { ...placeIn(event), view: viewed(), pans: event.shiftKey || event.pointerType !== "mouse" };
    if (pointers.size === 2) start.apart = [...pointers.values()].map((one) => chart.fromX(one.x));
    try {
      plot.setPointerCapture(event.pointerId);
    } catch (error) {
      // The pointer may be gone already.
    }
  });
  plot.addEventListener("pointermove", (event) => {
    const here = placeIn(event);
    if (!start || !chart.y) return chart.show(chart.fromX(here.x), here.y);
    if (pointers.has(event.pointerId)) pointers.set(event.pointerId, here);
    if (pointers.size === 2 && start.apart) return pinch(chart, [...pointers.values()], start.apart);
    if (start.pans) {
      const width = chart.width - MARGIN.left - MARGIN.right;
      const shift = ((start.x - here.x) / width) * (start.view[1] - start.view[0]);
      if (Math.abs(here.x - start.x) > 3) setView(start.view[0] + shift, start.view[1] + shift);
    } else if (Math.abs(here.x - start.x) > 3) {
      chart.hideTip();
      const inside = (x) => Math.min(Math.max(x, MARGIN.left), chart.width - MARGIN.right);
      const [a, b] = [inside(start.x), inside(here.x)].sort((p, q) => p - q);
      chart.overlay.replaceChildren();
      add(chart.overlay, "rect", { class: "brush", x: a, y: MARGIN.top, width: b - a, height: chart.height - MARGIN.top - MARGIN.bottom });
    }
  });
  const end = (event) => {
    const here = placeIn(event), from = start;
    pointers.delete(event.pointerId);
    if (pointers.size) return;
    start = null;
    if (!from || event.type === "pointercancel") return;
    if (!from.pans && Math.abs(here.x - from.x) > 8) {
      const [a, b] = [chart.fromX(from.x), chart.fromX(here.x)].sort((p, q) => p - q);
      setView(Math.max(a, viewed()[0]), Math.min(b, viewed()[1]));
    } else if (Math.abs(here.x - from.x) <= 8) chart.show(chart.fromX(here.x), here.y);
  };
  plot.addEventListener("pointerup", end);
  plot.addEventListener("pointercancel", end);
  plot.addEventListener("pointerleave", (event) => {
    if (event.pointerType === "mouse" && !start) chart.hideTip();
  });
  plot.addEventListener("dblclick", reset);
  plot.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    zoom(Math.exp(Math.sign(event.deltaY) * 0.25), chart.fromX(placeIn(event).x));
  }, { passive: false });
  plot.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.altKey || event.metaKey) return;
    const direction = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (direction && event.shiftKey) pan(direction * 0.2);
    else if (direction) chart.read(direction);
    else if (event.key === "+" || event.key === "=") zoom(0.6);
    else if (event.key === "-" || event.key === "_") zoom(1 / 0.6);
    else if (event.key === "0" || event.key === "Home") reset();
    else if (event.key === "Escape") chart.hideTip();
    else return;
    event.preventDefault();
  });
  plot.addEventListener("blur", () => chart.hideTip());
}

// Keeps the two places of the axis that the fingers took under them.
function pinch(chart, [one, other], [first, second]) {
  if (Math.abs(one.x - other.x) < 8 || first === second) return;
  const perPixel = (second - first) / (other.x - one.x);
  if (!(perPixel > 0)) return;
  const low = first - (one.x - MARGIN.left) * perPixel;
  setView(low, low + (chart.width - MARGIN.left - MARGIN.right) * perPixel);
}

function addLegend(bar) {
  const group = add(bar, "div", { class: "group", role: "group", "aria-label": "Runs" });
  data.runs.forEach((run, number) => {
    const label = add(group, "label", {});
    const box = add(label, "input", { type: "checkbox" });
    box.checked = true;
    add(label, "span", { class: "swatch c" + (number % COLORS) });
    add(label, "span", {}, run.name);
    box.addEventListener("change", () => {
      if (box.checked) state.hidden.delete(number);
      else state.hidden.add(number);
      refresh();
    });
  });
}

function addZoom(bar) {
  const group = add(bar, "div", { class: "group", role: "group", "aria-label": "Zoom" });
  const buttons = [["←", "Move left", () => pan(-0.25)], ["→", "Move right", () => pan(0.25)], ["+", "Zoom in", () => zoom(0.6)], ["−", "Zoom out", () => zoom(1 / 0.6)], ["Reset", "Show everything", reset]];
  for (const [text, title, action] of buttons) add(group, "button", { type: "button", title, "aria-label": title }, text).addEventListener("click", action);
}

function addChoices(bar) {
  const group = add(bar, "div", { class: "group" });
  const smooth = add(group, "label", {}, "Smoothing ");
  const slider = add(smooth, "input", { type: "range", min: "0", max: "0.98", step: "0.02", value: "0" });
  slider.addEventListener("input", () => {
    state.smooth = +slider.value;
    refresh();
  });
  const log = add(group, "label", {});
  const box = add(log, "input", { type: "checkbox" });
  add(log, "span", {}, "Logarithmic");
  box.addEventListener("change", () => {
    state.log = box.checked;
    drawAll();
  });
  if (data.runs.every((run) => run.clock)) {
    const axis = add(add(group, "label", {}, "Over "), "select", {});
    for (const [value, text] of [["step", "steps"], ["hours", "hours"], ["tokens", "tokens"]]) add(axis, "option", { value }, text);
    axis.addEventListener("change", () => {
      Object.assign(state, { axis: axis.value, view: null });
      charts.forEach((chart) => chart.hideTip());
      refresh();
    });
  }
  const names = { "": "Theme: system", dark: "Theme: dark", light: "Theme: light" };
  const theme = add(group, "button", { type: "button" }, names[""]);
  theme.addEventListener("click", () => {
    const order = Object.keys(names);
    const next = order[(order.indexOf(root.getAttribute("data-theme") || "") + 1) % order.length];
    if (next) root.setAttribute("data-theme", next);
    else root.removeAttribute("data-theme");
    theme.textContent = names[next];
  });
  const marks = data.runs.some((run) => run.rollbacks.length) ? " · ▼: diverged, batch left out" : "";
  add(group, "span", { class: "key" }, "line: training · dots: evaluation · dotted: trivial baseline" + marks);
}

const place = document.getElementById("charts");
if (place) {
  root.classList.add("js");
  const bar = document.getElementById("toolbar");
  addLegend(bar);
  addZoom(bar);
  addChoices(bar);
  for (const chart of data.charts) charts.push(new Chart(place, chart));
  refresh();
  new ResizeObserver(drawAll).observe(place);
  root.setAttribute("data-ready", String(charts.length));
}
