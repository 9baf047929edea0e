// A table whose heads sort it.

function tableElement(section) {
  const body = html("tbody");
  let rows = [...section.rows], last = null, falling = false;
  const draw = () => body.replaceChildren(...rows.map((row) =>
    html("tr", {}, ...row.map((cell) => html("td", { class: typeof cell === "number" ? "number" : "text" }, cellText(cell))))));
  const heads = section.columns.map((name, column) => {
    const button = html("button", { type: "button", "data-column": name }, section.heads[column]);
    button.addEventListener("click", () => {
      falling = last === column && !falling;
      last = column;
      rows.sort((a, b) => (falling ? -1 : 1) * compareCells(a[column], b[column]));
      heads.forEach((head, at) => head.setAttribute("aria-sort", at !== column ? "none" : falling ? "descending" : "ascending"));
      draw();
    });
    return html("th", { scope: "col" }, button);
  });
  draw();
  const table = html("table", {}, html("thead", {}, html("tr", {}, ...heads)), body);
  return html("details", { class: "table", ...(section.open ? { open: "" } : {}) }, html("summary", {}, section.title),
    html("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": section.title }, table));
}

const cellText = (cell) => (cell === null ? "" : typeof cell === "number" ? short(cell) : String(cell));

function compareCells(a, b) {
  if (a === null || b === null) return (a === null) - (b === null);
  return typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b));
}
