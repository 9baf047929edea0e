// Curves over the size of the array: zoom with the wheel or by dragging, values under the pointer.

const HEIGHT = 380, MARGIN = { left: 66, right: 14, top: 12, bottom: 44 };

const METRICS = {
  "goodput (Gb/s)": { of: (point) => 8e-9 * point.size_bytes / point.time_s },
  "algbw (GB/s)": { of: (point) => 1e-9 * point.size_bytes / point.time_s },
  "busbw (GB/s)": { of: (point) => point.busbw_GBps },
  "time (us)": { of: (point) => 1e6 * point.time_s, log: true },
  "time over lower bound": { of: (point) => (point.lower_bound_s > 0 ? point.time_s / point.lower_bound_s : null) },
  "speed-up over the slowest": { of: (point, slowest) => slowest.get(point.size_bytes) / point.time_s },
};

class Chart {
  constructor(section) {
    this.series = section.series;
    this.hidden = new Set();
    this.slowest = new Map();
    for (const { points } of this.series) {
      for (const { size_bytes: size, time_s: time } of points) {
        this.slowest.set(size, Math.max(time, this.slowest.get(size) ?? 0));
      }
    }
    this.metric = Object.keys(METRICS)[0];
    this.width = 760;
    this.root = svg("svg", { class: "chart", role: "application", tabindex: 0, "aria-roledescription": "chart",
      "aria-label": `${section.title}. Arrow keys walk along the points, plus and minus zoom, 0 shows the whole range.` });
    this.listen();
    this.reset();
    fitted(this.root, HEIGHT, (width) => { this.width = width; this.draw(); });
  }

  element() {
    const usable = Object.keys(METRICS).filter((name) => this.values(name).length > 0);
    const select = html("select", { class: "metric", "aria-label": "what is drawn" },
      ...usable.map((name) => html("option", {}, name)));
    select.addEventListener("change", () => { this.metric = select.value; this.reset(); });
    const back = html("button", { type: "button", class: "reset" }, "whole range");
    back.addEventListener("click", () => this.reset());
    const names = legend(this.series, (hidden) => { this.hidden = hidden; this.draw(); });
    const hint = html("span", { class: "hint" }, "wheel, + and -: zoom, drag: move, arrow keys: walk along the points, click a name: hide");
    return html("div", { class: "figure" }, html("div", { class: "controls" }, select, back, hint), this.root, names);
  }

  value(point, metric = this.metric) {
    const found = METRICS[metric].of(point, this.slowest);
    return Number.isFinite(found) && found > 0 ? found : null;
  }

  values(metric) {
    return this.series.flatMap(({ points }) => points.map((point) => this.value(point, metric)))
      .filter((value) => value !== null);
  }

  reset() {
    const sizes = this.series.flatMap(({ points }) => points.map((point) => Math.log2(point.size_bytes)));
    const values = this.values(this.metric).map((value) => this.up(value));
    const [low, high] = [Math.min(...values), Math.max(...values)];
    const room = METRICS[this.metric].log ? 0.05 * (high - low) + 0.1 : 0.05 * high;
    this.x = [Math.min(...sizes) - 0.4, Math.max(...sizes) + 0.4];
    this.y = [METRICS[this.metric].log ? low - room : 0, high + room];
    this.draw();
  }

  up(value) { return METRICS[this.metric].log ? Math.log10(value) : value; }

  placeX(size) {
    const share = (Math.log2(size) - this.x[0]) / (this.x[1] - this.x[0]);
    return MARGIN.left + share * (this.width - MARGIN.left - MARGIN.right);
  }

  placeY(value) {
    const share = (this.up(value) - this.y[0]) / (this.y[1] - this.y[0]);
    return HEIGHT - MARGIN.bottom - share * (HEIGHT - MARGIN.top - MARGIN.bottom);
  }

  draw() {
    const inside = { x: MARGIN.left, y: MARGIN.top, width: this.width - MARGIN.left - MARGIN.right,
      height: HEIGHT - MARGIN.top - MARGIN.bottom };
    const clip = `clip-${Chart.next = (Chart.next ?? 0) + 1}`;
    this.root.replaceChildren(svg("clipPath", { id: clip }, svg("rect", inside)));
    this.root.setAttribute("data-x", this.x.map((end) => end.toFixed(3)).join(" "));
    this.axes();
    const curves = svg("g", { "clip-path": `url(#${clip})` });
    this.shown = [];
    for (const one of this.series) {
      if (this.hidden.has(one.name)) continue;
      const points = one.points.filter((point) => this.value(point) !== null);
      const places = points.map((point) => [this.placeX(point.size_bytes), this.placeY(this.value(point))]);
      curves.append(svg("polyline", { class: "series tone", "data-series": one.name, points: places.join(" "),
        style: tone(one.color), "stroke-dasharray": one.dashes }));
      places.forEach(([x, y], at) => {
        this.shown.push({ x, y, point: points[at], name: one.name });
        curves.append(svg("circle", { class: "dot tone", cx: x, cy: y, r: 3.2, style: tone(one.color) }));
      });
    }
    this.mark = svg("circle", { class: "mark", r: 6, visibility: "hidden" });
    curves.append(this.mark);
    this.root.append(curves);
  }

  axes() {
    const bottom = HEIGHT - MARGIN.bottom;
    const step = Math.max(1, Math.ceil((this.x[1] - this.x[0]) / (this.width / 85)));
    for (let power = Math.ceil(this.x[0]); power <= this.x[1]; power += step) {
      const x = this.placeX(2 ** power);
      this.root.append(svg("line", { class: "grid", x1: x, x2: x, y1: MARGIN.top, y2: bottom }),
        svg("text", { x, y: bottom + 16, "text-anchor": "middle" }, sizeLabel(2 ** power)));
    }
    for (const value of this.ticks()) {
      const y = this.placeY(value);
      this.root.append(svg("line", { class: "grid", x1: MARGIN.left, x2: this.width - MARGIN.right, y1: y, y2: y }),
        svg("text", { x: MARGIN.left - 8, y: y + 4, "text-anchor": "end" }, short(value)));
    }
    this.root.append(svg("text", { x: this.width / 2, y: HEIGHT - 6, "text-anchor": "middle" }, "size of the array"),
      svg("text", { class: "axis", transform: `translate(14 ${HEIGHT / 2 - 14}) rotate(-90)`, "text-anchor": "middle" },
        this.metric));
  }

  ticks() {
    const [low, high] = this.y;
    if (METRICS[this.metric].log) {
      const found = [];
      for (let power = Math.floor(low); power <= high; power += Math.max(1, Math.ceil((high - low) / 8))) {
        for (const factor of high - low > 3 ? [1] : [1, 2, 5]) {
          const value = factor * 10 ** power;
          if (Math.log10(value) >= low && Math.log10(value) <= high) found.push(value);
        }
      }
      return found;
    }
    return roundTicks(low, high, 6);
  }

  listen() {
    this.root.addEventListener("wheel", (event) => {
      event.preventDefault();
      const { x, y } = this.pointer(event);
      this.zoom(event.deltaY < 0 ? 0.8 : 1.25, (x - MARGIN.left) / (this.width - MARGIN.left - MARGIN.right),
        1 - (y - MARGIN.top) / (HEIGHT - MARGIN.top - MARGIN.bottom));
    }, { passive: false });
    this.root.addEventListener("pointerdown", (event) => { this.held = this.pointer(event); });
    window.addEventListener("pointerup", () => { this.held = null; });
    this.root.addEventListener("dblclick", () => this.reset());
    this.root.addEventListener("pointerleave", () => this.quiet());
    this.root.addEventListener("keydown", (event) => this.press(event));
    this.root.addEventListener("blur", () => this.quiet());
    this.root.addEventListener("pointermove", (event) => (this.held ? this.move(event) : this.hover(event)));
  }

  pointer(event) {
    const box = this.root.getBoundingClientRect();
    return { x: (event.clientX - box.left) * this.width / box.width, y: (event.clientY - box.top) * HEIGHT / box.height };
  }

  move(event) {
    const at = this.pointer(event);
    const right = (this.held.x - at.x) / (this.width - MARGIN.left - MARGIN.right) * (this.x[1] - this.x[0]);
    const up = (at.y - this.held.y) / (HEIGHT - MARGIN.top - MARGIN.bottom) * (this.y[1] - this.y[0]);
    this.x = this.x.map((end) => end + right);
    this.y = this.y.map((end) => end + up);
    this.held = at;
    this.draw();
  }

  hover(event) {
    const at = this.pointer(event);
    let best = null, least = 28 ** 2;
    for (const one of this.shown) {
      const distance = (one.x - at.x) ** 2 + (one.y - at.y) ** 2;
      if (distance < least) [best, least] = [one, distance];
    }
    if (best) this.say(best, event);
    else this.quiet();
  }

  // Left and right along a curve, up and down to the next one.
  walk(key) {
    const names = [...new Set(this.shown.map((one) => one.name))];
    if (!names.length) return;
    const now = this.shown.find((one) => one.name === this.at?.name && one.point === this.at.point);
    const turn = { ArrowUp: -1, ArrowDown: 1 }[key] ?? 0, step = { ArrowLeft: -1, ArrowRight: 1 }[key] ?? 0;
    const name = now ? names[(names.indexOf(now.name) + turn + names.length) % names.length] : names[0];
    const own = this.shown.filter((one) => one.name === name);
    const here = now ? Math.max(0, own.findIndex((one) => one.point.size_bytes >= now.point.size_bytes)) : 0;
    this.at = own[clamp(here + (now ? step : 0), 0, own.length - 1)];
    const box = this.root.getBoundingClientRect();
    this.say(this.at, { clientX: box.left + this.at.x * box.width / this.width,
      clientY: box.top + this.at.y * box.height / HEIGHT });
  }

  say(one, place) {
    this.mark.setAttribute("visibility", "visible");
    this.mark.setAttribute("cx", one.x);
    this.mark.setAttribute("cy", one.y);
    const form = one.point.form ? ` (${one.point.form} form)` : "";
    const lines = [`${one.name}${form}, ${sizeLabel(one.point.size_bytes)}`, timeLabel(one.point.time_s)];
    if (!this.metric.startsWith("time (")) lines.push(`${this.metric}: ${short(this.value(one.point))}`);
    showTooltip(place, lines);
  }

  quiet() {
    hideTooltip();
    this.mark.setAttribute("visibility", "hidden");
  }

  zoom(factor, shareX = 0.5, shareY = 0.5) {
    this.x = zoomed(this.x, shareX, factor);
    this.y = zoomed(this.y, shareY, factor);
    this.draw();
  }

  press(event) {
    if (event.key.startsWith("Arrow")) this.walk(event.key);
    else if (event.key === "+" || event.key === "-") this.zoom(event.key === "+" ? 0.8 : 1.25);
    else if (event.key === "0") this.reset();
    else if (event.key === "Escape") this.quiet();
    else return;
    event.preventDefault();
  }
}

function zoomed([low, high], share, factor) {
  const middle = low + clamp(share, 0, 1) * (high - low);
  return [middle - (middle - low) * factor, middle + (high - middle) * factor];
}
