// The sections around the components.

const LOSSES = { frobenius: "squared error", "kullback-leibler": "Kullback–Leibler divergence", "itakura-saito": "Itakura–Saito divergence" };
const nameOfLoss = () => LOSSES[run.options.loss] || `β-divergence, β = ${run.options.loss}`;
const isSquared = () => run.options.loss === "frobenius" || run.options.loss === 2;
// Errors are those of the loss that was minimised; runs of older versions have squares alone.
const isBySquares = () => isSquared() || run.results.some((r) => r.divergence === null);
const isPenalised = () => run.options.regularize_w?.length > 0 || run.options.regularize_h?.length > 0;
const errorOf = (result) => (isBySquares() ? result.rmse : result.divergence);
const explainedOf = (result) => (isBySquares() ? result.explained : result.explained_divergence);
const errorName = () => (isBySquares() ? "RMSE" : "mean divergence");
const isWeighted = () => run.data.has_weights;

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
  const noBound = result.svd_rmse === 0 ? `which is 0: V has rank ${result.rank} or less` : "not known where entries are unknown or weighted";
  const bound = () => tile("Above the SVD bound", [above === null ? "–" : above < 10 ? percent(above, above < 0.1 ? 2 : 1) : `× ${number(above + 1, 3)}`], above === null ? noBound : `${number(result.svd_rmse)}, the least error of any matrix of rank ${result.rank}`);
  const steadiness = result.stability && result.stability.reduce((sum, s) => sum + s, 0) / result.rank;
  const parts = `by ${result.rank} ${plural("component", result.rank)}`;
  const mean = isWeighted() ? "the weighted mean" : "the mean";
  const errors = isBySquares()
    ? [
        tile("Explained", [explainedText(result.explained)], `of the sum of squares, ${parts}${isSquared() ? "" : `; what was minimised is the ${nameOfLoss()}`}`),
        tile("RMSE", [number(result.rmse)], `the usual error of an entry${isWeighted() ? ", weighted" : ""}; ${percent(result.relative_error)} of the size of V`),
      ]
    : [
        tile("Explained deviance", [result.explained_divergence === null ? "–" : explainedText(result.explained_divergence)], `of the ${nameOfLoss()} to a constant, ${parts}`),
        tile(capital(nameOfLoss()), [number(result.divergence)], `${mean} of an entry: what was minimised`),
      ];
  const seconds = [number(result.seconds, 3), small("s")];
  const took = result.consensus
    ? tile("All runs took", seconds, result.message)
    : tile(result.status === "CONVERGED" ? "Converged in" : "Stopped after", seconds, `${integer(result.iterations)} iterations; ${result.message}${run.options.n_init > 1 ? `; the best of ${run.options.n_init} runs` : ""}`);
  byId("tiles").replaceChildren(
    ...errors,
    isSquared() ? bound() : steadiness !== null ? tile("Stability", [steadiness.toFixed(2)], `the mean over components, of ${result.runs_kept} runs; 1 where all find the same`) : tile("Rank", [String(result.rank)], `${integer(run.data.shape[0])} × ${integer(run.data.shape[1])} entries by ${integer((run.data.shape[0] + run.data.shape[1]) * result.rank)} numbers`),
    took,
  );
}

function nearest(points, x) {
  return points.reduce((best, p, i) => (Math.abs(p[0] - x) < Math.abs(points[best][0] - x) ? i : best), 0);
}

// Errors of a trace are √(2·objective) of an entry.
const levelOf = (error) => (isSquared() ? error : error ** 2 / 2);

function drawConvergence() {
  const k = state.convergenceBy === "seconds" ? 1 : 0;
  const line = (result) => result.trace.map((row) => [row[k], levelOf(row[2])]);
  const mine = line(current());
  const others = run.results.filter((r) => r !== current()).map((r) => ({ points: line(r), className: "other" }));
  const ends = run.results.map((r) => r.trace.at(-1)[k]).filter((x) => x > 0);
  const logX = Math.max(...ends) > 8 * Math.min(...ends); // the short ones would be lost beside the long ones
  const what = isPenalised() ? "objective, of an entry" : isSquared() ? "RMSE" : "mean divergence";
  responsive(
    byId("convergence"),
    lineChart({
      series: [...others, { points: mine }], xName: state.convergenceBy, yName: what, log: true, logX,
      label: `Convergence at rank ${current().rank}: from ${number(mine[0][1])} to ${number(mine.at(-1)[1])} in ${current().iterations} iterations`,
      stops: mine.map(([x]) => x),
      hover: (x) => {
        const row = current().trace[nearest(mine, x)];
        return { x: row[k], text: `iteration ${row[0]} · ${number(row[1], 3)} s · ${number(levelOf(row[2]))}` };
      },
    }),
  );
  const { consensus } = current();
  const runs = consensus ? `, by the run most like all others: one of ${current().runs_kept}, which ended between ${consensus.errors.length ? [Math.min(...consensus.errors), Math.max(...consensus.errors)].map((e) => number(levelOf(e))).join(" and ") : "–"}. The consensus itself, which this page shows, is fitted to all of them` : "";
  byId("convergence-note").textContent = `Minimising the ${nameOfLoss()}${isPenalised() ? " and penalties" : ""}${runs}${others.length ? "; the other ranks in grey" : ""}.`;
  byId("convergence-csv").replaceChildren(csvButton(`${run.name} convergence`, ["rank", "iteration", "seconds", what], () => run.results.flatMap((r) => r.trace.map(([t, s, e]) => [r.rank, t, s, levelOf(e)]))), " ", svgButton(`${run.name} convergence`, byId("convergence")));
}

// Numbers, and names where there is room, along the sides of a matrix of components.
function matrixLabels(r) {
  const every = Math.ceil(r / 30);
  const label = (c, long) => el("span", { title: componentName(c) }, c % every ? "" : long ? shortName(c) : String(c + 1));
  const all = (long) => Array.from({ length: r }, (_, c) => label(c, long));
  byId("alike-top").replaceChildren(...all(false));
  byId("alike-left").replaceChildren(...all(r <= 20));
}

function drawAlike() {
  const result = current();
  const r = result.rank;
  const side = sideOf(state.alikeBy);
  const cosines = decode(result.alike[side]);
  const what = state.alikeBy === "profile" ? "profiles" : "uses";
  const canvas = byId("alike-map");
  paint(canvas, cosines, [r, r], "ramp", linear(0, 1));
  canvas.style.imageRendering = "pixelated";
  byId("alike-matrix").style.setProperty("--side", `${Math.min(400, Math.max(160, 44 * r))}px`);
  matrixLabels(r);
  byId("alike-scale").replaceChildren(colourScale(linear(0, 1), "ramp"));
  const pairs = [];
  for (let a = 0; a < r; a++) for (let b = a + 1; b < r; b++) pairs.push([a, b, cosines[a * r + b]]);
  pairs.sort((p, q) => q[2] - p[2]);
  const most = pairs.length ? `the most alike are ${shortName(pairs[0][0])} and ${shortName(pairs[0][1])}, ${pairs[0][2].toFixed(2)}` : "there is but one";
  canvas.setAttribute("aria-label", `Cosines between the ${what} of the components; ${most}`);
  pointable(canvas, ([a, b]) => `${shortName(a)} and ${shortName(b)}: ${cosines[a * r + b].toFixed(2)}`);
  canvas.onclick = (event) => {
    const at = pixelAt(canvas, event);
    if (at) pickComponent(at[0], true);
  };
  byId("alike-note").textContent = `Cosines between their ${what} over the ${plural(axes[side].noun)}: 0 shares nothing, 1 is the same.`;
  const go = (c) => el("button", { type: "button", onclick: () => { pickComponent(c); byId("components").scrollIntoView(); } }, shortName(c));
  const items = pairs.slice(0, 12).map(([a, b, cosine]) =>
    el("li", { style: barWidth(cosine) }, el("span", {}, go(a), " and ", go(b)), el("em", {}, cosine.toFixed(2))),
  );
  byId("alike-list").replaceChildren(items.length ? el("ol", { class: "bars" }, ...items) : "There is one component.");
  byId("alike-csv").replaceChildren(csvButton(`${run.name} rank ${r} cosines of ${what}`, ["component", "with", "cosine"], () => pairs.map(([a, b, x]) => [a + 1, b + 1, x.toFixed(4)])));
}

// How the colours of V and W Hᵀ are spread: by ratios where most values are far below the greatest.
function skewed(values) {
  const known = values.filter((x) => x >= 0).sort();
  return known.length > 0 && known[known.length >> 1] < 0.05 * known.at(-1);
}
const colourChoice = () => state.colours || (isSound ? "root" : skewed(decode(run.V)) ? "log" : "linear");
function mapScale(low, high, values) {
  if (colourChoice() === "linear" || low < 0) return linear(low, high);
  if (colourChoice() === "root") return byRoot(0, high);
  const some = values.filter((x) => x > 0).sort();
  return some.length ? logarithmic(high, Math.max(some[some.length >> 2], high / 1e4)) : linear(low, high);
}

// A map of blocks of rows × columns; pointing at one shows all three values.
function blockMap(title, key, maps, scale) {
  const { shape } = maps[key];
  const canvas = el("canvas", { role: "img", "aria-label": `${title}, by blocks of rows and columns`, "data-map": key });
  const [values, drawn] = isSound ? upright(decode(maps[key]), shape) : [decode(maps[key]), shape];
  paint(canvas, values, drawn, "ramp", scale);
  canvas.style.aspectRatio = "4 / 3";
  canvas.style.imageRendering = "pixelated";
  const span = (axis, i, count) => {
    const [first, last] = [Math.round((axis.size * i) / count) + 1, Math.round((axis.size * (i + 1)) / count)];
    return last > first ? `${plural(axis.noun)} ${integer(first)}–${integer(last)}` : labelOf(axis, first - 1);
  };
  pointable(canvas, (place) => {
    const at = isSound ? [place[1], frequencyAt(place[0], shape[1])] : place;
    const i = at[0] * shape[1] + at[1];
    const values = ["V", "fit", "residual"].map((name) => number(decode(maps[name])[i], 3));
    return `${span(run.rows, at[0], shape[0])}, ${span(run.columns, at[1], shape[1])} · V ${values[0]} · W Hᵀ ${values[1]} · ${isBySquares() ? "residual" : "loss"} ${values[2]}`;
  });
  return el("figure", { class: "map" }, el("figcaption", {}, el("h3", {}, title)), canvas, colourScale(scale, "ramp"));
}

function errorsBy(axis, errors) {
  const [what, of] = isBySquares() ? ["Root mean square error", "Root mean square of V − W Hᵀ"] : [`Mean ${nameOfLoss()}`, `Mean ${nameOfLoss()} of an entry`];
  const label = `${what} over the ${plural(axis.noun)}`;
  const body = [];
  if (axis.kind === "image") body.push(el("div", { class: "map" }, picture(axis, errors.values, { palette: "ramp", label })), colourScale(linear(0, errors.values.high), "ramp"));
  else {
    const chart = el("div", { class: "chart quiet" });
    responsive(chart, chartOf(axis)(axis, errors.values, { height: 110, full: true, label, thin: true, xNote: axis.sorted ? ", the worst first" : "" }));
    body.push(chart, el("div", { class: "save" }, svgButton(`${run.name} rank ${current().rank} error by ${axis.noun}`, chart)));
    if (errors.top) body.push(el("h3", { class: "below" }, withButton("Fitted worst", csvButton(`${run.name} rank ${current().rank} ${plural(axis.noun)} fitted worst`, [axis.noun, "error"], () => errors.top))), bars(errors.top, 6));
  }
  return el("figure", {}, el("figcaption", {}, el("h3", {}, `Error by ${axis.noun}`), el("p", {}, `${of}.`)), ...body);
}

function drawResidual() {
  const result = current();
  const maps = { V: run.V, ...result.maps };
  const { V, fit, residual } = maps;
  const common = mapScale(Math.min(0, V.low, fit.low), Math.max(V.high, fit.high), decode(V));
  const way = isSound ? "Time across, pitch up" : `${capital(plural(run.rows.noun))} down, ${plural(run.columns.noun)} across`;
  byId("residual-note").textContent = `${way}, in ${residual.shape[0]} × ${residual.shape[1]} blocks; V and W Hᵀ share a scale.`;
  const kinds = [["linear", "even"], ["root", "square root"], ["log", "logarithmic"]];
  choices(byId("map-colours"), "Colours", "colours", kinds, colourChoice(), (kind) => { state.colours = kind; drawResidual(); byId(`colours-${kind}`).focus(); }, "pill");
  byId("maps").replaceChildren(
    blockMap("V, mean", "V", maps, common),
    blockMap("W Hᵀ, mean", "fit", maps, common),
    blockMap(isBySquares() ? "V − W Hᵀ, root mean square" : `${capital(nameOfLoss())}, mean`, "residual", maps, mapScale(0, residual.high, decode(residual))),
  );
  byId("errors").replaceChildren(errorsBy(run.rows, result.rows), errorsBy(run.columns, result.columns));
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
