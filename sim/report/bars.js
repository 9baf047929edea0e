// Stacked bars, a row each: where the time went, what was hidden, how a budget was split.

function barsElement(section) {
  const box = html("div", { class: "bars" });
  const draw = (hidden) => {
    const shown = section.parts.map((part, at) => ({ ...part, at })).filter((part) => !hidden.has(part.name));
    const sums = section.rows.map((row) => shown.reduce((sum, part) => sum + row.values[part.at], 0));
    const longest = section.share ? null : Math.max(...sums, Number.MIN_VALUE);
    box.replaceChildren(...section.rows.map((row, index) => {
      const whole = section.share ? Math.max(sums[index], Number.MIN_VALUE) : longest;
      const bar = html("div", { class: "bar", role: "img" }), said = [];
      for (const part of shown) {
        const value = row.values[part.at];
        if (!(value > 0)) continue;
        const piece = html("span", { class: "tone", "data-part": part.name, style: `width:${100 * value / whole}%;${tone(part.color)}` });
        const words = section.unit === "s" ? timeLabel(value) : `${short(value)} ${section.unit}`;
        piece.addEventListener("pointermove", (event) =>
          showTooltip(event, [row.name, `${part.name}: ${words}`, `${short(100 * value / sums[index])} % of what is shown`]));
        piece.addEventListener("pointerleave", hideTooltip);
        bar.append(piece);
        said.push(`${part.name} ${words}`);
      }
      bar.setAttribute("aria-label", said.join(", ") || "nothing");
      const total = section.unit === "s" ? timeLabel(sums[index]) : `${short(sums[index])} ${section.unit}`;
      return html("div", { class: "row" }, html("span", { class: "name" }, row.name), bar,
        html("span", { class: "total" }, total));
    }));
  };
  draw(new Set());
  return html("div", { class: "figure" }, box, legend(section.parts, draw));
}
