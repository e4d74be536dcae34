// What is shown of which run: the state of the page, which all charts share.
const UNITS = { step: "step", hours: "hours of training", tokens: "tokens" };

const data = JSON.parse(document.getElementById("data").textContent);
const state = { view: null, smooth: 0, log: false, axis: "step", hidden: new Set() };
const charts = [];

// Steps of a run in units of the axis.
function onAxis(run, taken) {
  if (state.axis === "step") return taken;
  const clock = run.clock;
  if (!clock) return [];
  const steps = [0].concat(clock.step), values = [0].concat(clock[state.axis]);
  return taken.map((step) => {
    const i = Math.min(Math.max(placeOf(steps, step), 1), steps.length - 1);
    const span = steps[i] - steps[i - 1];
    const share = span > 0 ? Math.min((step - steps[i - 1]) / span, 1) : 1;
    return values[i - 1] + share * (values[i] - values[i - 1]);
  });
}

function smoothed(values) {
  // An exponential mean whose start is not pulled towards zero.
  let mean = 0, weight = 0;
  return values.map((value) => {
    if (typeof value === "string") return value;
    mean = state.smooth * mean + (1 - state.smooth) * value;
    weight = state.smooth * weight + 1 - state.smooth;
    return mean / weight;
  });
}

function prepare() {
  let low = Infinity, high = -Infinity;
  for (const run of data.runs) run.marks = onAxis(run, run.rollbacks.map((one) => one.step));
  for (const chart of charts) {
    for (const series of chart.data.series) {
      const run = data.runs[series.run];
      series.at = onAxis(run, series.x);
      series.smooth = series.kind === "line" && state.smooth > 0 ? smoothed(series.y) : series.y;
      if (state.hidden.has(series.run) || !series.at.length) continue;
      low = Math.min(low, series.at[0], ...run.marks);
      high = Math.max(high, series.at[series.at.length - 1], ...run.marks);
    }
  }
  state.full = low < high ? [low, high] : low === high ? [low - 1, high + 1] : [0, 1];
}

function viewed() {
  return state.view || state.full;
}

function setView(low, high) {
  const [first, last] = state.full;
  const least = (last - first) * 1e-5;
  let width = Math.min(Math.max(high - low, least), last - first);
  low = Math.min(Math.max(low, first), last - width);
  state.view = width >= (last - first) * 0.9999 ? null : [low, low + width];
  drawAll();
}

function zoom(factor, center) {
  const [low, high] = viewed();
  const middle = center === undefined ? (low + high) / 2 : center;
  setView(middle - (middle - low) * factor, middle + (high - middle) * factor);
}

function pan(share) {
  const [low, high] = viewed();
  const shift = (high - low) * share;
  setView(low + shift, high + shift);
}

function reset() {
  state.view = null;
  drawAll();
}

function drawAll() {
  for (const chart of charts) chart.draw();
}

function refresh() {
  prepare();
  drawAll();
}
