// Time over cost: every budget's best design beside its equal split; a slider or a click chooses one and says what it trades.

const PARETO = { height: 300, left: 62, right: 16, top: 12, bottom: 42 };

class Pareto {
  constructor(section) {
    this.points = section.points;
    this.width = 760;
    this.root = svg("svg", { class: "pareto", role: "img", "aria-label": `${section.title}; the slider chooses a design` });
    this.slider = html("input", { type: "range", class: "design", min: 0, max: this.points.length - 1, value: section.chosen,
      "aria-label": "design, by cost" });
    this.slider.addEventListener("input", () => this.draw());
    this.words = html("p", { class: "traded", "aria-live": "polite" });
    this.shares = html("div", {});
    fitted(this.root, PARETO.height, (width) => { this.width = width; this.draw(); });
  }

  element() {
    const names = [["designed", "#0072B2"], ["equal split", "#D55E00"]].map(([name, color]) =>
      html("span", { class: "name" }, svg("svg", { width: 26, height: 12, "aria-hidden": "true" },
        svg("line", { class: "series tone", style: tone(color), x1: 1, y1: 6, x2: 25, y2: 6 })), name));
    return html("div", { class: "figure" }, html("div", { class: "controls" }, html("span", { class: "hint" }, "cheaper"),
      this.slider, html("span", { class: "hint" }, "faster")), this.root, html("div", { class: "legend" }, ...names),
      this.words, this.shares);
  }

  draw() {
    const { points, width } = this, at = Number(this.slider.value);
    const ends = (values) => [Math.min(...values), Math.max(...values)];
    const [cheap, dear] = ends(points.flatMap((one) => [one.cost, one.equal_cost]));
    const [, slow] = ends(points.flatMap((one) => [one.time_s, one.equal_time_s]));
    const inside = width - PARETO.left - PARETO.right - 12, bottom = PARETO.height - PARETO.bottom;
    const x = (cost) => PARETO.left + 12 + inside * (Math.log(cost / cheap) / Math.log(dear / cheap || 1) || 0);
    const y = (time) => bottom - (bottom - PARETO.top) * time / (1.05 * slow);
    const curve = (color, cost, time) => svg("polyline", { class: "series tone", style: tone(color),
      points: points.map((one) => `${x(one[cost])},${y(one[time])}`).join(" ") });
    const grid = roundTicks(0, 1.05 * slow, 5).flatMap((time) => [
      svg("line", { class: "grid", x1: PARETO.left, x2: width - PARETO.right, y1: y(time), y2: y(time) }),
      svg("text", { x: PARETO.left - 6, y: y(time) + 4, "text-anchor": "end" }, time ? timeLabel(time) : "0")]);
    const costs = [cheap, Math.sqrt(cheap * dear), dear].map((cost, place) =>
      svg("text", { x: x(cost), y: bottom + 16, "text-anchor": ["start", "middle", "end"][place] }, money(cost)));
    const dots = points.map((one, place) => {
      const dot = svg("circle", { class: `dot tone${one.dominated ? " dominated" : ""}${place === at ? " chosen" : ""}`,
        style: tone("#0072B2"), cx: x(one.cost), cy: y(one.time_s), r: place === at ? 7 : 4.5 },
        svg("title", {}, `${short(one.total_GBps)} GB/s: ${money(one.cost)}, ${timeLabel(one.time_s)}`));
      dot.addEventListener("click", () => { this.slider.value = place; this.draw(); });
      return dot;
    });
    this.root.replaceChildren(...grid, ...costs,
      svg("text", { x: width / 2, y: PARETO.height - 6, "text-anchor": "middle" }, "cost of the network, logarithmic"),
      curve("#D55E00", "equal_cost", "equal_time_s"), curve("#0072B2", "cost", "time_s"), ...dots);
    this.tell(at);
  }

  // What the chosen design costs and gains, beside its equal split and the next cheaper one.
  tell(at) {
    const one = this.points[at], before = this.points[at - 1];
    const percent = (ratio) => `${short(100 * Math.abs(ratio - 1))} % ${ratio < 1 ? "less" : "more"}`;
    const lines = [`${short(one.total_GBps)} GB/s per NPU for ${money(one.cost)}: ${timeLabel(one.time_s)}.`,
      `An equal split takes ${percent(one.equal_time_s / one.time_s)} time and costs ${percent(one.equal_cost / one.cost)}.`];
    if (before) lines.push(`The next cheaper one costs ${percent(before.cost / one.cost)} and takes ${percent(before.time_s / one.time_s)} time.`);
    if (one.dominated) lines.push("Another design is faster and costs no more.");
    this.words.textContent = lines.join(" ");
    this.slider.setAttribute("aria-valuetext", lines[0]);
    const parts = one.bandwidth_GBps.map((_, dim) => ({ name: `dimension ${dim + 1}`, color: Object.keys(page.on_dark)[dim % 8] }));
    this.shares.replaceChildren(barsElement({ parts, unit: "GB/s", rows: [{ name: "bandwidth", values: one.bandwidth_GBps }] }));
  }
}

const money = (cost) => (cost >= 1e6 ? `${short(cost / 1e6)} M$` : cost >= 1e3 ? `${short(cost / 1e3)} k$` : `${short(cost)} $`);
