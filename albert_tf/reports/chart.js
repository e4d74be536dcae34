// One chart: axes, lines, and the values at a place.
const MARGIN = { left: 58, right: 12, top: 10, bottom: 24 };
const COLORS = 10;
const SHOWN = 10; // lines of a tooltip

class Chart {
  constructor(parent, chartData) {
    this.data = chartData;
    this.only = "";
    this.figure = add(parent, "figure", { class: "chart" });
    const caption = add(this.figure, "figcaption", {});
    add(caption, "span", {}, chartData.title);
    if (chartData.byWeight) this.addChoice(caption);
    this.plot = add(this.figure, "div", { class: "plot", tabindex: "0", role: "group", "aria-label": chartData.title + ": curve; arrow keys read it" });
    this.svg = add(this.plot, "svg", { "aria-hidden": "true" });
    this.tip = add(this.plot, "div", { class: "tip" });
    this.tip.hidden = true;
    this.spoken = add(this.plot, "div", { class: "quiet", role: "status" });
    this.cursor = null; // x in units of the axis
    listen(this);
  }

  addChoice(caption) {
    const weights = [...new Set(this.data.series.map((series) => series.label))];
    const choice = add(caption, "select", { "aria-label": this.data.title + ": weight" });
    add(choice, "option", { value: "" }, "all " + weights.length + " weights");
    weights.forEach((weight, i) => add(choice, "option", { value: String(i) }, weight));
    choice.addEventListener("change", () => {
      this.only = choice.value === "" ? "" : weights[+choice.value];
      this.draw();
    });
  }

  visible() {
    return this.data.series.filter((series) => !state.hidden.has(series.run) && series.at.length && (!this.only || series.label === this.only));
  }

  // Lines of one run's weights have a color each; otherwise a color is a run.
  colorOf(series) {
    if (!this.data.byWeight || this.only || this.manyRuns) return "c" + (series.run % COLORS);
    return "c" + (this.data.series.filter((other) => other.run === series.run).indexOf(series) % COLORS);
  }

  scale(shown) {
    const [low, high] = viewed();
    let bottom = Infinity, top = -Infinity;
    // Weights differ by orders of magnitude.
    this.isLog = state.log || this.data.byWeight;
    for (const series of shown) {
      const start = Math.max(placeOf(series.at, low) - 1, 0);
      const end = Math.min(placeOf(series.at, high) + 1, series.at.length);
      for (let i = start; i < end; i++) {
        const value = series.smooth[i];
        if (typeof value === "string" || (this.isLog && value <= 0)) continue;
        bottom = Math.min(bottom, value);
        top = Math.max(top, value);
      }
    }
    if (bottom > top) return null;
    if (this.isLog) [bottom, top] = [Math.log10(bottom), Math.log10(top)];
    const room = top > bottom ? (top - bottom) * 0.06 : Math.abs(top) * 0.1 || 1;
    this.y = [bottom - room, top + room];
    return this.y;
  }

  toX(value) {
    const [low, high] = viewed();
    return MARGIN.left + ((value - low) / (high - low)) * (this.width - MARGIN.left - MARGIN.right);
  }

  fromX(pixel) {
    const [low, high] = viewed();
    return low + ((pixel - MARGIN.left) / (this.width - MARGIN.left - MARGIN.right)) * (high - low);
  }

  toY(value) {
    const at = this.isLog ? (value > 0 ? Math.log10(value) : NaN) : value;
    return this.height - MARGIN.bottom - ((at - this.y[0]) / (this.y[1] - this.y[0])) * (this.height - MARGIN.top - MARGIN.bottom);
  }

  draw() {
    this.width = this.plot.clientWidth;
    this.height = this.svg.clientHeight || 240;
    this.svg.replaceChildren();
    this.svg.setAttribute("viewBox", "0 0 " + this.width + " " + this.height);
    const shown = this.visible();
    this.manyRuns = new Set(shown.map((series) => series.run)).size > 1;
    if (this.width < 80) return;
    if (!this.scale(shown)) {
      this.y = null;
      add(this.svg, "text", { class: "empty", x: MARGIN.left, y: this.height / 2 }, shown.length ? "no number to show here" : "no run is shown");
      this.hideTip();
      return;
    }
    this.drawAxes();
    // Dots at both ends are whole.
    const clip = "clip" + charts.indexOf(this);
    add(add(this.svg, "clipPath", { id: clip }), "rect", { x: MARGIN.left - 5, y: 0, width: this.width - MARGIN.left - MARGIN.right + 10, height: this.height - MARGIN.bottom + 2 });
    const lines = add(this.svg, "g", { "clip-path": "url(#" + clip + ")" });
    for (const series of shown) {
      const color = this.colorOf(series);
      const thin = this.data.byWeight && shown.length > 3 ? " thin" : "";
      if (series.smooth !== series.y) add(lines, "path", { class: "series faint " + color, d: this.path(series, series.y) });
      const kind = series.kind === "line" ? "" : " " + series.kind;
      add(lines, "path", { class: "series " + color + kind + thin, d: this.path(series, series.smooth) });
      this.drawDots(lines, series, color);
    }
    this.drawMarks(lines, shown);
    this.overlay = add(this.svg, "g", {});
    if (this.cursor !== null) this.show(this.cursor);
  }

  drawAxes() {
    const [low, high] = viewed();
    const bottom = this.height - MARGIN.bottom, right = this.width - MARGIN.right;
    const yTicks = this.isLog ? logTicks(this.y[0], this.y[1]) : ticksOf(this.y[0], this.y[1], 5);
    for (const tick of yTicks) {
      const y = this.toY(tick);
      add(this.svg, "line", { class: "grid", x1: MARGIN.left, x2: right, y1: y, y2: y });
      add(this.svg, "text", { x: MARGIN.left - 6, y: y + 4, "text-anchor": "end" }, tickText(tick));
    }
    const ticks = ticksOf(low, high, Math.max(2, Math.floor((right - MARGIN.left) / 75)));
    for (const tick of ticks) {
      const x = this.toX(tick);
      add(this.svg, "line", { class: "grid", x1: x, x2: x, y1: MARGIN.top, y2: bottom });
      if (x < right - 16) add(this.svg, "text", { x: x, y: bottom + 15, "text-anchor": "middle" }, tickText(tick));
    }
    add(this.svg, "line", { class: "axis", x1: MARGIN.left, x2: right, y1: bottom, y2: bottom });
  }

  path(series, values) {
    const [low, high] = viewed();
    const start = Math.max(placeOf(series.at, low) - 1, 0);
    const end = Math.min(placeOf(series.at, high) + 1, values.length);
    let path = "", open = false;
    for (let i = start; i < end; i++) {
      const y = typeof values[i] === "string" ? NaN : this.toY(values[i]);
      if (!isFinite(y)) {
        open = false;
        continue;
      }
      // The baseline of one evaluation is a line, too, as its dot would be taken for a value.
      const wide = series.kind === "baseline" && values.length === 1;
      if (wide) return "M" + MARGIN.left + " " + y.toFixed(1) + "H" + (this.width - MARGIN.right);
      path += (open ? "L" : "M") + this.toX(series.at[i]).toFixed(1) + " " + y.toFixed(1);
      open = true;
    }
    return path;
  }

  drawDots(parent, series, color) {
    // A single point has no line; evaluations are points with a line between them.
    if (series.kind === "baseline" || (series.kind !== "points" && series.at.length > 1)) return;
    const [low, high] = viewed();
    const start = placeOf(series.at, low), end = placeOf(series.at, high) + 1;
    if (end - start > 200) return;
    for (let i = start; i < Math.min(end, series.at.length); i++) {
      const y = typeof series.y[i] === "string" ? NaN : this.toY(series.y[i]);
      if (isFinite(y)) add(parent, "circle", { class: "dot " + color, cx: this.toX(series.at[i]), cy: y, r: 3 });
    }
  }

  // Where a run diverged and went back to a checkpoint.
  drawMarks(parent, shown) {
    for (const number of new Set(shown.map((series) => series.run))) {
      for (const at of data.runs[number].marks) {
        const x = this.toX(at), top = MARGIN.top;
        const mark = add(parent, "g", { class: "mark c" + (number % COLORS) });
        add(mark, "line", { x1: x, x2: x, y1: top, y2: this.height - MARGIN.bottom });
        add(mark, "path", { d: "M" + (x - 4) + " " + top + "h8l-4 7z" });
      }
    }
  }

  // What the marks near a place say.
  marksAt(at) {
    const texts = [];
    for (const number of new Set(this.visible().map((series) => series.run))) {
      const run = data.runs[number], name = data.runs.length > 1 ? run.name + " " : "";
      run.marks.forEach((mark, i) => {
        if (Math.abs(this.toX(mark) - this.toX(at)) <= 12) texts.push(shorten(name, 16) + run.rollbacks[i].text);
      });
    }
    return texts;
  }

  // The points nearest to a place, one per series.
  nearest(at) {
    const found = [];
    for (const series of this.visible()) {
      let i = placeOf(series.at, at);
      if (i === series.at.length || (i > 0 && at - series.at[i - 1] < series.at[i] - at)) i -= 1;
      const x = this.toX(series.at[i]);
      if (i >= 0 && x >= MARGIN.left - 1 && x <= this.width - MARGIN.right + 1) found.push({ series, i, x, distance: Math.abs(series.at[i] - at) });
    }
    return found;
  }

  show(at, pointerY) {
    if (!this.y) return;
    let found = this.nearest(at);
    if (!found.length) return this.hideTip();
    this.cursor = at;
    const x = found.reduce((best, one) => (one.distance < best.distance ? one : best)).x;
    // Rare points, such as evaluations, are named only where they are.
    found = found.filter((one) => Math.abs(one.x - x) <= 12 || one.series.kind === "baseline");
    const y = (one) => (typeof one.series.y[one.i] === "string" ? 1e9 : this.toY(one.series.smooth[one.i]));
    if (pointerY !== undefined && found.length > SHOWN) found.sort((a, b) => Math.abs(y(a) - pointerY) - Math.abs(y(b) - pointerY));
    const rest = found.length - SHOWN;
    found = found.slice(0, SHOWN);
    if (rest > 0) found.sort((a, b) => y(a) - y(b)); // as the lines lie
    this.overlay.replaceChildren();
    add(this.overlay, "line", { class: "cursor", x1: x, x2: x, y1: MARGIN.top, y2: this.height - MARGIN.bottom });
    for (const one of found) if (isFinite(y(one)) && y(one) < 1e9) add(this.overlay, "circle", { class: "dot " + this.colorOf(one.series), cx: one.x, cy: y(one), r: 4 });
    this.fillTip(found, rest, x, this.marksAt(at));
  }

  fillTip(found, rest, x, marks) {
    this.tip.replaceChildren();
    const nearest = found.reduce((best, one) => (one.distance < best.distance ? one : best));
    const step = nearest.series.x[nearest.i];
    let head = "step " + step.toLocaleString("en-US");
    if (state.axis !== "step") head += ", " + format(nearest.series.at[nearest.i]) + " " + UNITS[state.axis];
    add(this.tip, "div", {}, head);
    const spoken = [head];
    for (const one of found) {
      const row = add(this.tip, "div", { class: "row" });
      add(row, "span", { class: "swatch " + this.colorOf(one.series) });
      const named = this.data.byWeight ? this.manyRuns : data.runs.length > 1;
      const run = named ? data.runs[one.series.run].name + " " : "";
      const value = format(one.series.y[one.i]);
      const mean = one.series.smooth === one.series.y ? "" : " (" + format(one.series.smooth[one.i]) + ")";
      add(row, "span", { class: "name" }, shorten(run, 16) + shorten(one.series.label, 34));
      add(row, "b", {}, value + mean);
      spoken.push(run + one.series.label + " " + value);
    }
    if (rest > 0) add(this.tip, "div", { class: "key" }, "and " + rest + " more");
    for (const text of marks) {
      add(this.tip, "div", { class: "key" }, text);
      spoken.push(text);
    }
    this.tip.hidden = false;
    const left = x > this.width / 2 ? Math.max(x - this.tip.offsetWidth - 14, 2) : Math.min(x + 14, Math.max(this.width - this.tip.offsetWidth - 2, 2));
    this.tip.style.left = left + "px";
    this.spoken.textContent = document.activeElement === this.plot ? spoken.join("; ") : "";
  }

  hideTip() {
    this.cursor = null;
    this.tip.hidden = true;
    if (this.overlay) this.overlay.replaceChildren();
  }

  // Moves the reading cursor from point to point of the longest line.
  read(direction) {
    const shown = this.visible();
    if (!shown.length || !this.y) return;
    const [low, high] = viewed();
    const at = shown.reduce((best, one) => (one.at.length > best.at.length ? one : best)).at;
    let i = direction > 0 ? placeOf(at, low) : placeOf(at, high) - 1;
    if (this.cursor !== null) {
      i = placeOf(at, this.cursor);
      if (direction < 0) i -= 1;
      else if (at[i] === this.cursor) i += 1;
    }
    i = Math.min(Math.max(i, 0), at.length - 1);
    if (at[i] < low || at[i] > high) pan(direction * 0.25);
    this.show(at[i]);
  }
}
