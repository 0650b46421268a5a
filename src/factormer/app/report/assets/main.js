// Draw everything, and answer to rank, theme, keys and printing.

function pickRank(i) {
  state.at = Number(i);
  state.component = 0;
  const chosen = byId(`rank-${state.at}`);
  if (chosen) chosen.checked = true;
  drawResult();
}

function drawResult() {
  drawTiles();
  drawCards();
  drawPicked();
  drawNames();
  drawByRank();
  drawStability();
  drawChoice();
  drawAgreement();
  drawConvergence();
  drawAlike();
  drawResidual();
  // Beside many cards the picked one stays in view, and scrolls by itself.
  requestAnimationFrame(() => byId("cards").closest(".split").classList.toggle("long", byId("cards").offsetHeight > window.innerHeight));
}

function drawTheme() {
  const dark = isDark();
  byId("theme").textContent = dark ? "Light" : "Dark";
  byId("theme").setAttribute("aria-pressed", String(dark));
  drawResult();
}

byId("theme").addEventListener("click", () => {
  document.documentElement.style.colorScheme = isDark() ? "light" : "dark";
  drawTheme();
});
byId("print").addEventListener("click", () => window.print());
window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawTheme);
// Paper is light whatever the screen is; canvases know no style sheet. Charts are drawn here and now, at the
// width of a page, as observers of widths would be called after it was printed.
function drawFor(paper) {
  forcedTheme = paper ? "light" : null;
  document.documentElement.classList.toggle("printing", paper);
  drawResult();
  drawCharts();
}
window.addEventListener("beforeprint", () => drawFor(true));
window.addEventListener("afterprint", () => drawFor(false));

byId("cards").addEventListener("keydown", (event) => {
  const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
  if (!step) return;
  event.preventDefault();
  pickComponent(state.component + step);
  byId("cards").children[state.component].focus();
});

choices(byId("convergence-by"), "Against", "convergence", [["iteration", "iterations"], ["seconds", "seconds"]], state.convergenceBy, (by) => { state.convergenceBy = by; drawConvergence(); }, "pill");
choices(byId("alike-by"), "Compare", "alike", [["profile", "profiles"], ["use", "uses"]], state.alikeBy, (by) => { state.alikeBy = by; drawAlike(); }, "pill");
choices(byId("maps-scale"), "Colours of maps", "to-peak", [["shared", "on one scale"], ["peak", "each to its peak"]], "shared", (by) => { state.toPeak = by === "peak"; drawCards(); drawPicked(); }, "pill");
// Where samples are the columns, components are profiles over the rows.
if (!run.options.symmetric) {
  const sides = [["H", plural(run.columns.noun)], ["W", plural(run.rows.noun)]];
  choices(byId("swap"), "Draw components over the", "swap", sides, sideOf("profile"), (side) => { state.swapped = side === "W"; drawResult(); }, "pill");
}
drawTitle();
drawAdvice();
drawMade();
drawTheme();
document.documentElement.dataset.ready = "true";
