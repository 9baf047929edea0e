// The page from its data: one part for every result, in the order of the files.

const KINDS = {
  curves: (section) => new Chart(section).element(),
  pareto: (section) => new Pareto(section).element(),
  bars: barsElement,
  fabric: (section) => new Fabric(section).element(),
  table: tableElement,
};

const main = document.querySelector("main"), contents = document.querySelector("nav");
for (const [at, result] of page.results.entries()) {
  const part = html("section", { id: `result-${at}`, "aria-label": result.title }, html("h2", {}, result.title),
    html("p", { class: "file" }, result.file), ...result.notes.map((note) => html("p", { class: "note" }, note)));
  for (const section of result.sections) {
    if (section.kind !== "table") part.append(html("h3", {}, section.title));
    part.append(KINDS[section.kind](section));
  }
  contents.append(html("a", { href: `#result-${at}` }, result.title));
  main.append(part);
}
if (page.left_out.length) {
  main.append(html("section", { id: "left-out" }, html("h2", {}, "Not shown"),
    html("ul", {}, ...page.left_out.map((why) => html("li", {}, why)))));
}
document.body.append(tooltip);
