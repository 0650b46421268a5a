// Tables and lists with bars, each of which can be saved as CSV.

function saveText(name, text, type = "text/csv") {
  const link = el("a", { href: URL.createObjectURL(new Blob([text], { type })), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

const quoted = (cell) => (/[",\r\n]/.test(cell) ? `"${cell.replaceAll('"', '""')}"` : cell);
const asCsv = (head, rows) => `${[head, ...rows].map((row) => row.map((cell) => quoted(String(cell ?? ""))).join(",")).join("\n")}\n`;

const fileName = (what) => what.toLowerCase().replaceAll(/[^a-z0-9]+/g, "-");

// A button that saves a table; `rows` is called when it is pressed.
function csvButton(what, head, rows) {
  const save = () => saveText(`${fileName(what)}.csv`, asCsv(head, rows()));
  return el("button", { type: "button", class: "csv", "aria-label": `Save as CSV: ${what}`, title: `Save as CSV: ${what}`, onclick: save }, "CSV");
}

function table(head, rows, className) {
  return el(
    "table", { class: className },
    el("thead", {}, el("tr", {}, ...head.map((name) => el("th", { scope: "col" }, name)))),
    el("tbody", {}, ...rows.map((row) => el("tr", {}, ...row.map((cell) => (cell instanceof Node ? cell : el("td", {}, String(cell))))))),
  );
}

const barWidth = (share) => `--w:${within(100 * share, 0, 100).toFixed(1)}%`;

// Names with bars under them, and their values in a column of their own; the greatest first.
function bars(entries, count, format = (x) => number(x, 3)) {
  const most = Math.max(...entries.map(([, value]) => value)) || 1;
  const items = entries.slice(0, count).map(([name, value]) => el("li", { style: barWidth(value / most), title: `${name}: ${number(value)}` }, el("span", {}, name), el("em", {}, format(value))));
  return el("ol", { class: "bars" }, ...items);
}

// What sets a component apart: [name, specificity, loading].
function telling(axis, entries) {
  const rows = entries.map(([name, specificity, loading]) => [el("th", { scope: "row", style: barWidth(specificity), title: name }, el("span", {}, name)), specificity.toFixed(2), percent(loading, 0)]);
  return table([axis.noun, "specificity", "loading"], rows, "telling");
}
