// The data of the page, elements, numbers as text, and the one tooltip.

const page = JSON.parse(document.getElementById("data").textContent);

const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

const html = (name, attributes = {}, ...children) => fill(document.createElement(name), attributes, children);
const svg = (name, attributes = {}, ...children) => fill(document.createElementNS(SVG, name), attributes, children);

const clamp = (value, low, high) => Math.min(Math.max(value, low), high);

function short(value) {
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e5 || size < 1e-3) return value.toExponential(2);
  return String(Number(value.toPrecision(4)));
}

function sizeLabel(bytes) {
  for (const [unit, power] of [["GiB", 30], ["MiB", 20], ["KiB", 10]]) {
    if (bytes >= 2 ** power) return `${Number((bytes / 2 ** power).toPrecision(3))} ${unit}`;
  }
  return `${Math.round(bytes)} B`;
}

function timeLabel(seconds) {
  for (const [unit, scale] of [["s", 1], ["ms", 1e-3], ["us", 1e-6], ["ns", 1e-9]]) {
    if (seconds >= scale) return `${Number((seconds / scale).toPrecision(4))} ${unit}`;
  }
  return `${Number((seconds / 1e-12).toPrecision(4))} ps`;
}

// Multiples of 1, 2 or 5 times a power of ten, at most about so many.
function roundTicks(low, high, most) {
  const rough = (high - low) / most, power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((factor) => factor * power >= rough);
  const found = [];
  for (let at = Math.ceil(low / step); at * step <= high; at += 1) found.push(Number((at * step).toPrecision(12)));
  return found;
}

// A color on light and on dark paper, for elements of the class `tone`.
const tone = (color, dark = page.on_dark[color] ?? color) => `--light:${color};--dark:${dark}`;

// Draws at one unit per pixel, now and whenever the width changes, so that text keeps its size on a phone.
function fitted(root, height, draw) {
  let before = 0;
  const fit = (width) => {
    if (Math.abs(width - before) < 1) return;
    before = width;
    root.setAttribute("viewBox", `0 0 ${width} ${height}`);
    draw(width);
  };
  fit(760);
  new ResizeObserver(() => fit(clamp(Math.round(root.clientWidth), 240, 960))).observe(root);
}

const tooltip = html("div", { class: "tooltip", role: "status", "aria-live": "polite", hidden: "" });

function showTooltip(event, lines) {
  tooltip.replaceChildren(...lines.map((line) => html("div", {}, line)));
  tooltip.hidden = false;
  const wide = tooltip.offsetWidth;
  const left = event.clientX + 14 + wide > window.innerWidth ? event.clientX - 14 - wide : event.clientX + 14;
  tooltip.style.left = `${Math.max(4, left) + window.scrollX}px`;
  tooltip.style.top = `${event.clientY + 14 + window.scrollY}px`;
}

const hideTooltip = () => { tooltip.hidden = true; };

// A row of buttons that hide and show the parts of a figure; `changed` hears of every click.
function legend(entries, changed) {
  const hidden = new Set();
  const box = html("div", { class: "legend" });
  for (const { name, color, dashes } of entries) {
    const line = svg("line", { x1: 1, y1: 6, x2: 25, y2: 6, class: "series tone", style: tone(color), "stroke-width": 3, "stroke-dasharray": dashes });
    const button = html("button", { type: "button", "aria-pressed": "true", "data-series": name, title: `hide or show ${name}` },
      svg("svg", { width: 26, height: 12, "aria-hidden": "true" }, line), name);
    button.addEventListener("click", () => {
      if (!hidden.delete(name)) hidden.add(name);
      button.setAttribute("aria-pressed", String(!hidden.has(name)));
      changed(hidden);
    });
    box.append(button);
  }
  return box;
}
