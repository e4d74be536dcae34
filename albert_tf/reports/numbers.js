// Numbers as text, ticks of axes, search; and how elements are made.
const root = document.documentElement;
window.addEventListener("error", (event) => root.setAttribute("data-error", event.message));

const SVG = "http://www.w3.org/2000/svg";

function add(parent, tag, attributes, text) {
  const inSvg = parent.namespaceURI === SVG || tag === "svg";
  const element = inSvg ? document.createElementNS(SVG, tag) : document.createElement(tag);
  for (const name in attributes) element.setAttribute(name, attributes[name]);
  if (text !== undefined) element.textContent = text;
  parent.appendChild(element);
  return element;
}

function format(value) {
  if (typeof value === "string") return value; // NaN and infinities
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e9)) return value.toExponential(3);
  if (Number.isInteger(value)) return value.toLocaleString("en-US");
  const digits = size >= 1000 ? 0 : size >= 10 ? 2 : 4;
  return value.toLocaleString("en-US", { maximumFractionDigits: digits });
}

// Names differ at their ends.
function shorten(text, length) {
  return text.length > length ? "…" + text.slice(1 - length) : text;
}

function tickText(value) {
  const size = Math.abs(value);
  for (const [unit, sign] of [[1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
    if (size >= unit && size < 1e12) return +(value / unit).toPrecision(6) + sign;
  }
  return size !== 0 && (size < 1e-4 || size >= 1e12) ? value.toExponential() : String(+value.toPrecision(6));
}

function ticksOf(low, high, count) {
  const raw = (high - low) / Math.max(count, 1);
  const power = Math.pow(10, Math.floor(Math.log10(raw)));
  const unit = [1, 2, 5, 10].find((n) => n * power >= raw) * power;
  const ticks = [];
  if (!(unit > 0)) return ticks;
  for (let i = Math.ceil(low / unit); i * unit <= high + unit * 1e-9; i++) ticks.push(+(i * unit).toPrecision(12));
  return ticks;
}

function logTicks(low, high) {
  // low and high are powers of ten; within few decades, 2 and 5 help to read.
  const ticks = [], factors = high - low < 2.5 ? [1, 2, 5] : [1];
  const stride = Math.max(1, Math.ceil((high - low) / 6));
  for (let p = Math.floor(low); p <= high; p += stride) {
    for (const f of factors) {
      const at = p + Math.log10(f);
      if (at >= low && at <= high) ticks.push(+(f * Math.pow(10, p)).toPrecision(3));
    }
  }
  return ticks.length > 1 ? ticks : [Math.pow(10, low), Math.pow(10, high)].map((v) => +v.toPrecision(3));
}

// Where a value would be inserted into ascending numbers.
function placeOf(numbers, value) {
  let low = 0, high = numbers.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (numbers[middle] < value) low = middle + 1;
    else high = middle;
  }
  return low;
}
