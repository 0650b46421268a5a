// The sections around the components.

const LOSSES = { frobenius: "squared error", "kullback-leibler": "Kullback–Leibler divergence", "itakura-saito": "Itakura–Saito divergence" };
const nameOfLoss = () => LOSSES[run.options.loss] || `β-divergence, β = ${run.options.loss}`;
const isSquared = () => run.options.loss === "frobenius" || run.options.loss === 2;
// Errors are those of the loss that was minimised; runs of older versions have squares alone.
const isBySquares = () => isSquared() || run.results.some((r) => r.divergence === null);
const isPenalised = () => run.options.regularize_w?.length > 0 || run.options.regularize_h?.length > 0;
const errorOf = (result) => (isBySquares() ? result.rmse : result.divergence);
const explainedOf = (result) => (isBySquares() ? result.explained : result.explained_divergence);
const errorName = () => (isBySquares() ? "RMSE" : "loss of an entry");

function drawTitle() {
  const [m, n] = run.data.shape;
  byId("name").textContent = run.name;
  const filled = run.data.nonzeros / (m * n);
  const notes = [
    `${integer(m)} ${plural(run.rows.noun, m)} × ${integer(n)} ${plural(run.columns.noun, n)}`,
    run.data.source,
    run.data.is_sparse ? `${percent(filled)} of the entries are not zero` : null,
    run.data.unknown ? `${integer(run.data.unknown)} entries are not known` : null,
  ];
  byId("what").textContent = `${notes.filter(Boolean).join("; ")}.`;
  if (run.results.length < 2) return;
  byId("ranks").hidden = false;
  const options = run.results.map((result, i) => [i, String(result.rank)]);
  choices(byId("ranks"), "Rank", "rank", options, state.at, pickRank, "pill");
}

function drawTiles() {
  const result = current();
  const above = isSquared() && result.svd_rmse ? result.rmse / result.svd_rmse - 1 : null;
  const small = (text) => el("small", {}, text);
  const tile = (name, value, note) => el("div", {}, el("dt", {}, name), el("dd", { class: "value" }, ...value), el("dd", { class: "note" }, note));
  const noBound = run.bound ? "an exact fit is possible at this rank" : "not known where entries are unknown";
  const bound = () => tile("Above the SVD bound", [above === null ? "–" : above < 10 ? percent(above, above < 0.1 ? 2 : 1) : `× ${number(above + 1, 3)}`], above === null ? noBound : `${number(result.svd_rmse)}, the least error of any matrix of rank ${result.rank}`);
  const steadiness = result.stability && result.stability.reduce((sum, s) => sum + s, 0) / result.rank;
  const parts = `by ${result.rank} ${plural("component", result.rank)}`;
  const errors = isBySquares()
    ? [
        tile("Explained", [explainedText(result.explained)], `of the sum of squares, ${parts}${isSquared() ? "" : `; what was minimised is the ${nameOfLoss()}`}`),
        tile("RMSE", [number(result.rmse)], `the usual error of an entry; ${percent(result.relative_error)} of the size of V`),
      ]
    : [
        tile("Explained", [result.explained_divergence === null ? "–" : explainedText(result.explained_divergence)], `of the ${nameOfLoss()} to a constant, ${parts}`),
        tile(capital(nameOfLoss()), [number(result.divergence)], "the mean of an entry: what was minimised"),
      ];
  byId("tiles").replaceChildren(
    ...errors,
    isSquared() ? bound() : steadiness !== null ? tile("Stability", [steadiness.toFixed(2)], `the mean over components, of ${result.runs_kept} runs; 1 where all find the same`) : tile("Rank", [String(result.rank)], `${integer(run.data.shape[0])} × ${integer(run.data.shape[1])} entries by ${integer((run.data.shape[0] + run.data.shape[1]) * result.rank)} numbers`),
    tile(result.status === "CONVERGED" ? "Converged in" : "Stopped after", [number(result.seconds, 3), small("s")], `${integer(result.iterations)} iterations; ${result.message}`),
  );
}

function nearest(points, x) {
  return points.reduce((best, p, i) => (Math.abs(p[0] - x) < Math.abs(points[best][0] - x) ? i : best), 0);
}

function table(head, rows) {
  return el(
    "table", {},
    el("thead", {}, el("tr", {}, ...head.map((name) => el("th", { scope: "col" }, name)))),
    el("tbody", {}, ...rows.map((row) => el("tr", {}, ...row.map((cell) => el("td", {}, String(cell)))))),
  );
}

function drawConvergence() {
  const k = state.convergenceBy === "seconds" ? 1 : 0;
  const level = (error) => (isSquared() ? error : error ** 2 / 2); // of a trace: the root of twice the objective
  const line = (result) => result.trace.map((row) => [row[k], level(row[2])]);
  const mine = line(current());
  const others = run.results.filter((r) => r !== current()).map((r) => ({ points: line(r), className: "other", beside: true }));
  responsive(
    byId("convergence"),
    lineChart({
      series: [...others, { points: mine }], xName: state.convergenceBy, yName: isSquared() ? "RMSE" : isPenalised() ? "objective, of an entry" : "loss of an entry", log: true,
      label: `Convergence at rank ${current().rank}: from ${number(mine[0][1])} to ${number(mine.at(-1)[1])} in ${current().iterations} iterations`,
      hover: (x) => {
        const row = current().trace[nearest(mine, x)];
        return { x: row[k], text: `iteration ${row[0]} · ${number(row[1], 3)} s · ${number(level(row[2]))}` };
      },
    }),
  );
  byId("convergence-note").textContent = `Minimising the ${nameOfLoss()}${others.length ? "; the other ranks in grey" : ""}.`;
}

function drawAlike() {
  const result = current();
  const r = result.rank;
  const cosines = decode(result.alike[state.alikeBy]);
  const what = state.alikeBy === "H" ? "profiles" : "uses";
  const canvas = byId("alike-map");
  paint(canvas, cosines, [r, r], "ramp", [0, 1]);
  canvas.style.imageRendering = "pixelated";
  canvas.style.width = `${Math.min(440, Math.max(200, 44 * r))}px`;
  const pairs = [];
  for (let a = 0; a < r; a++) for (let b = a + 1; b < r; b++) pairs.push([a, b, cosines[a * r + b]]);
  pairs.sort((p, q) => q[2] - p[2]);
  canvas.setAttribute("role", "img");
  const most = pairs.length ? `the most alike are ${pairs[0][0] + 1} and ${pairs[0][1] + 1}, ${pairs[0][2].toFixed(2)}` : "there is but one";
  canvas.setAttribute("aria-label", `Cosines between the ${what} of the components; ${most}`);
  canvas.onpointermove = (event) => {
    const at = pixelAt(canvas, event);
    showTip(event, at && `${at[0] + 1} and ${at[1] + 1}: ${cosines[at[0] * r + at[1]].toFixed(2)}`);
  };
  canvas.onpointerleave = hideTip;
  canvas.onclick = (event) => {
    const at = pixelAt(canvas, event);
    if (at) pickComponent(at[0], true);
  };
  byId("alike-note").textContent = `Cosines between their ${what} over the ${plural((state.alikeBy === "H" ? run.columns : run.rows).noun)}: 0 shares nothing, 1 is the same.`;
  const go = (c) => el("button", { type: "button", onclick: () => { pickComponent(c); byId("components").scrollIntoView(); } }, String(c + 1));
  const items = pairs.slice(0, 12).map(([a, b, cosine]) =>
    el("li", { style: `--w:${Math.max(0, 100 * cosine).toFixed(1)}%` }, el("span", {}, go(a), " and ", go(b)), el("em", {}, cosine.toFixed(2))),
  );
  byId("alike-list").replaceChildren(el("ol", { class: "bars" }, ...items));
}

// A map of blocks of rows × columns; pointing at one shows all three values.
function blockMap(title, key, palette, range) {
  const maps = current().maps;
  const { shape } = maps[key];
  const canvas = el("canvas", { role: "img", "aria-label": `${title}, by blocks of rows and columns`, "data-map": key });
  const [values, drawn] = isSound ? upright(decode(maps[key]).map(Math.sqrt), shape) : [decode(maps[key]), shape];
  paint(canvas, values, drawn, palette, isSound ? range.map(Math.sqrt) : range);
  canvas.style.aspectRatio = "4 / 3";
  canvas.style.imageRendering = "pixelated";
  const span = (axis, i, count) => {
    const [first, last] = [Math.round((axis.size * i) / count) + 1, Math.round((axis.size * (i + 1)) / count)];
    return last > first ? `${plural(axis.noun)} ${integer(first)}–${integer(last)}` : `${axis.noun} ${integer(first)}`;
  };
  canvas.addEventListener("pointermove", (event) => {
    let at = pixelAt(canvas, event);
    if (!at) return hideTip();
    if (isSound) at = [at[1], frequencyAt(at[0], shape[1])];
    const i = at[0] * shape[1] + at[1];
    const values = ["V", "fit", "residual"].map((name) => number(decode(maps[name])[i], 3));
    showTip(event, `${span(run.rows, at[0], shape[0])}, ${span(run.columns, at[1], shape[1])} · V ${values[0]} · W Hᵀ ${values[1]} · ${isBySquares() ? "residual" : "loss"} ${values[2]}`);
  });
  canvas.addEventListener("pointerleave", hideTip);
  return el("figure", { class: "map" }, el("figcaption", {}, el("h3", {}, title)), canvas, colourScale(range[0], range[1], palette));
}

function drawResidual() {
  const result = current();
  const { V, fit, residual } = result.maps;
  const common = [Math.min(0, V.low, fit.low), Math.max(V.high, fit.high)];
  const way = isSound ? "Time across, pitch up, colours by the square root" : "Rows down, columns across";
  byId("residual-note").textContent = `${way}, in ${residual.shape[0]} × ${residual.shape[1]} blocks; V and W Hᵀ share a scale.`;
  byId("maps").replaceChildren(
    blockMap("V, mean", "V", "ramp", common),
    blockMap("W Hᵀ, mean", "fit", "ramp", common),
    blockMap(isBySquares() ? "V − W Hᵀ, root mean square" : `${capital(nameOfLoss())}, mean`, "residual", "ramp", [0, residual.high]),
  );
  const side = (axis, errors) => {
    const title = `Error by ${axis.noun}`;
    const [what, of] = isBySquares() ? ["Root mean square error", "Root mean square of V − W Hᵀ."] : [`Mean ${nameOfLoss()}`, `Mean ${nameOfLoss()} of an entry.`];
    const label = `${what} over the ${plural(axis.noun)}`;
    const body = [];
    if (axis.kind === "image") body.push(el("div", { class: "map" }, picture(axis, errors.values, { palette: "ramp", label })), colourScale(0, errors.values.high, "ramp"));
    else {
      const chart = el("div", { class: "chart quiet" });
      responsive(chart, profile(axis, errors.values, { height: 110, axes: true, label, thin: true }));
      body.push(chart);
      if (axis.kind !== "line") body.push(el("h3", { style: "margin:1rem 0 .5rem" }, "Fitted worst"), bars(errors.top, 6));
    }
    return el("figure", {}, el("figcaption", {}, el("h3", {}, title), el("p", {}, of)), ...body);
  };
  byId("errors").replaceChildren(side(run.rows, result.rows), side(run.columns, result.columns));
}

function drawMade() {
  byId("command").textContent = run.command;
  const facts = (title, entries) =>
    el("div", { class: "facts" }, el("h3", {}, title), el("dl", {}, ...entries.flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, String(value))])));
  const isSet = (value) => value !== null && value !== false && !(Array.isArray(value) && !value.length);
  const shown = (value) => (Array.isArray(value) ? value.join(", ") : value === true ? "yes" : value);
  const options = Object.entries(run.options).filter(([, value]) => isSet(value)).map(([name, value]) => [name.replaceAll("_", " "), shown(value)]);
  const { machine, networks, ...versions } = run.made_with;
  byId("facts").replaceChildren(
    facts("Options", options),
    facts("Data", [
      ["shape", run.data.shape.map(integer).join(" × ")], ["type", run.data.dtype], ["not zero", integer(run.data.nonzeros)],
      ["mask", run.data.has_mask ? "yes" : "no"], ["weights", run.data.has_weights ? "yes" : "no"], ["sha256", run.data.checksum.slice(0, 16)],
    ]),
    facts("Versions", [...Object.entries(versions).map(([name, value]) => [name, String(value ?? "–").slice(0, 24)]), ["processor", machine.cpu], ["cores", machine.cores]]),
  );
}
