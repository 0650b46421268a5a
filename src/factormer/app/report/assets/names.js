// Names that a person gives to components: kept by the browser at once, and saved as names.csv for the run folder.

const KEPT = `factormer ${run.data.checksum} ${JSON.stringify(run.options)}`;
const names = structuredClone(run.names);

// What was typed into this page before, unless the run folder has got other names since.
try {
  const kept = JSON.parse(localStorage.getItem(KEPT));
  if (kept && kept.base === JSON.stringify(run.names)) Object.assign(names, kept.names);
} catch { /* a browser that keeps nothing for files */ }

const givenName = (c) => names[current().rank]?.[c + 1] || "";
const componentName = (c) => givenName(c) || `Component ${c + 1}`;
// Short: for axes and lists, in which the number is enough.
const shortName = (c) => (givenName(c) ? `${c + 1} ${givenName(c)}` : String(c + 1));

function rename(c, name) {
  (names[current().rank] ||= {})[c + 1] = name.trim();
  try {
    localStorage.setItem(KEPT, JSON.stringify({ base: JSON.stringify(run.names), names }));
  } catch { /* likewise */ }
  drawCards();
  if (c === state.component) byId("picked").querySelector("h3").textContent = componentName(c);
  drawAlike();
  drawAgreement();
  drawNames();
}

const named = () => Object.entries(names).flatMap(([rank, of]) => Object.entries(of).filter(([, name]) => name).map(([c, name]) => [rank, c, name]));

function drawNames() {
  const clean = (all) => JSON.stringify(Object.entries(all).map(([rank, of]) => [rank, Object.entries(of).filter(([, name]) => name)]).filter(([, of]) => of.length));
  byId("names").hidden = clean(names) === clean(run.names);
  const save = el("button", { type: "button", class: "csv", onclick: () => saveText("names.csv", asCsv(["rank", "component", "name"], named())) }, "Save names.csv");
  byId("names").replaceChildren(
    "This browser keeps the names. To keep them in the run folder: ", save, ", then ", el("code", {}, `factormer report ${run.folder} --names names.csv`),
  );
}
