// The numbers of a picture: a table that is built when it is opened, and a CSV of all rows.
//
// A source is {columns: [title, ...], count, row(i) -> [cell, ...]}: cells are numbers or text.
const kRowsShown = 500;

function csvCell(cell) {
  const text = String(cell);
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

function csvText(source) {
  const lines = [source.columns.map(csvCell).join(",")];
  for (let i = 0; i < source.count; ++i) lines.push(source.row(i).map(csvCell).join(","));
  return lines.join("\r\n") + "\r\n";
}

function fileName(title) {
  return `${title.toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-|-$/g, "") || "chart"}.csv`;
}

function fillTable(table, source) {
  const head = element("tr", {}, ...source.columns.map((title) => element("th", { scope: "col" }, title)));
  const body = element("tbody");
  for (let i = 0; i < Math.min(source.count, kRowsShown); ++i) {
    const cells = source.row(i).map((cell) =>
      typeof cell === "number" ? element("td", { class: "number" }, formatNumber(cell)) : element("td", {}, String(cell)));
    body.append(element("tr", {}, ...cells));
  }
  table.append(element("thead", {}, head), body);
}

// <details> with the table, and the link to the CSV beside it.
function dataTable(title, source) {
  const rows = kWhole.format(source.count);
  const table = element("table", {}, element("caption", { class: "hidden" }, title));
  const scroll = element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `Data of ${title}` }, table);
  const details = element("details", { class: "data" },
    element("summary", {}, `Data, ${rows} ${source.count === 1 ? "row" : "rows"}`), scroll);
  details.addEventListener("toggle", () => {
    if (!details.open || table.tHead) return;
    fillTable(table, source);
    if (source.count > kRowsShown) {
      details.append(element("p", { class: "note" }, `The first ${kRowsShown} of ${rows} rows; the CSV has all.`));
    }
  });

  // The file is made when it is asked for: a page of large charts should not hold everything twice.
  const link = element("a", { href: "#", class: "csv", download: fileName(title), "aria-label": `CSV of ${title}` }, "CSV");
  link.addEventListener("click", () => {
    const url = URL.createObjectURL(new Blob([csvText(source)], { type: "text/csv" }));
    link.href = url;
    setTimeout(() => {
      URL.revokeObjectURL(url);
      link.href = "#";
    }, 10_000);
  });
  return element("div", { class: "data-row" }, details, link);
}
