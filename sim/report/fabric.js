// The fabric, its links colored by how busy they are; a slider plays the run.

const HEAT = page.heat.map((stops) => stops.map((hex) =>
  [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16))));
const FRAME_MS = 80;

// The color of a load on light and on dark paper.
function heat(share) {
  return tone(...HEAT.map((stops) => {
    const at = clamp(share, 0, 1) * (stops.length - 1), low = Math.min(Math.floor(at), stops.length - 2);
    const mixed = stops[low].map((from, channel) => Math.round(from + (at - low) * (stops[low + 1][channel] - from)));
    return `rgb(${mixed.join(",")})`;
  }));
}

class Fabric {
  constructor(section) {
    this.section = section;
    this.chosen = null;
    this.lines = section.links.map((link, index) => this.line(link, index));
    const [left, top, width, height] = section.box;
    this.root = svg("svg", { class: "fabric", viewBox: `${left} ${top} ${width} ${height}`, role: "img",
      "aria-label": section.title }, ...this.lines, ...section.nodes.map((node) => this.node(node)));
    this.slider = html("input", { type: "range", class: "time", min: 0, value: 0, "aria-label": "time" });
    this.slider.addEventListener("input", () => this.show());
    this.clock = html("output", { class: "clock" });
    this.button = html("button", { type: "button", class: "play" }, "play");
    this.button.addEventListener("click", () => (this.timer ? this.stop() : this.start()));
    this.select = html("select", { class: "run", "aria-label": "which run" },
      ...section.plays.map((play) => html("option", {}, play.title)));
    this.select.addEventListener("change", () => this.load());
    this.link = html("select", { class: "which-link", "aria-label": "which link's load over time" },
      html("option", {}, "all links"), ...section.links.map((link) => html("option", {}, link.name)));
    this.link.addEventListener("change", () => { this.chosen = this.link.selectedIndex ? this.link.selectedIndex - 1 : null; this.show(); });
    this.width = 760;
    this.curve = svg("svg", { class: "curve", role: "img", "aria-label": "load over time" });
    this.load();
    fitted(this.curve, 100, (width) => { this.width = width; this.drawCurve(this.frame()); });
  }

  element() {
    const scale = html("span", { class: "scale" }, "idle ", html("i", { class: "tone", style: tone(...page.heat.map((stops) => `linear-gradient(90deg, ${stops.join()})`)) }), " busy");
    return html("div", { class: "figure" },
      html("div", { class: "controls" }, this.select, this.button, this.slider, this.clock, scale), this.root, html("div", { class: "controls" }, this.link), this.curve);
  }

  line(link, index) {
    const line = svg("polyline", { class: "link tone", points: link.line.join(" "), "data-link": link.name });
    line.addEventListener("pointermove", (event) => {
      const mean = this.loads(index).reduce((sum, one) => sum + one, 0) / this.play.frames;
      showTooltip(event, [link.name, `busy ${Math.round(100 * this.at(index, this.frame()))} % now, ${Math.round(100 * mean)} % over the run`,
        link.rate]);
    });
    line.addEventListener("pointerleave", hideTooltip);
    line.addEventListener("click", () => { this.chosen = this.chosen === index ? null : index; this.link.selectedIndex = this.chosen === null ? 0 : index + 1; this.show(); });
    return line;
  }

  node([x, y, name, isSwitch]) {
    const shape = isSwitch ? svg("rect", { class: "switch", x: x - 0.13, y: y - 0.13, width: 0.26, height: 0.26 })
      : svg("circle", { class: "npu", cx: x, cy: y, r: 0.1 });
    shape.append(svg("title", {}, name));
    return shape;
  }

  load() {
    this.play = this.section.plays[this.select.selectedIndex];
    const packed = atob(this.play.loads);
    this.bytes = Uint8Array.from(packed, (letter) => letter.charCodeAt(0));
    this.slider.max = this.play.frames - 1;
    this.slider.value = 0;
    this.show();
  }

  frame() { return Number(this.slider.value); }

  at(link, frame) { return this.bytes[frame * this.lines.length + link] / 255; }

  loads(link) { return Array.from({ length: this.play.frames }, (_, frame) => this.at(link, frame)); }

  show() {
    const frame = this.frame();
    this.lines.forEach((line, link) => {
      line.setAttribute("style", heat(this.at(link, frame)));
      line.classList.toggle("chosen", link === this.chosen);
    });
    const step = this.play.time_s / this.play.frames;
    this.clock.textContent = `${timeLabel(step * (frame + 1))} of ${timeLabel(this.play.time_s)}`;
    this.drawCurve(frame);
  }

  // Mean and greatest load over time, or that of the chosen link.
  drawCurve(frame) {
    const frames = this.play.frames, x = (at) => 40 + (this.width - 50) * (at + 0.5) / frames, y = (share) => 92 - 70 * share;
    const path = (loads) => loads.map((load, at) => `${x(at)},${y(load)}`).join(" ");
    const all = Array.from({ length: frames }, (_, at) => this.bytes.subarray(at * this.lines.length, (at + 1) * this.lines.length));
    const curves = this.chosen === null
      ? [["greatest", all.map((loads) => Math.max(...loads) / 255)],
         ["mean", all.map((loads) => loads.reduce((sum, one) => sum + one, 0) / loads.length / 255)]]
      : [["chosen", this.loads(this.chosen)]];
    const title = this.chosen === null ? "mean and (thin) greatest load of all links"
      : `load of ${this.section.links[this.chosen].name}`;
    this.curve.replaceChildren(
      svg("line", { class: "grid", x1: 40, x2: this.width - 10, y1: y(0), y2: y(0) }), svg("line", { class: "grid", x1: 40, x2: this.width - 10, y1: y(1), y2: y(1) }),
      svg("text", { x: 34, y: y(1) + 4, "text-anchor": "end" }, "100 %"), svg("text", { x: 34, y: y(0) + 4, "text-anchor": "end" }, "0"),
      ...curves.map(([name, loads]) => svg("polyline", { class: `load ${name}`, points: path(loads) })),
      svg("line", { class: "now", x1: x(frame), x2: x(frame), y1: y(1), y2: y(0) }), svg("text", { x: 40, y: 9 }, title));
  }

  start() {
    this.button.textContent = "stop";
    if (this.frame() >= this.play.frames - 1) this.slider.value = 0;
    this.timer = setInterval(() => {
      this.slider.value = this.frame() + 1;
      this.show();
      if (this.frame() >= this.play.frames - 1) this.stop();
    }, FRAME_MS);
  }

  stop() {
    clearInterval(this.timer);
    this.timer = null;
    this.button.textContent = "play";
  }
}
