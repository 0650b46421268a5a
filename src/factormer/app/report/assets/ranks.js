// How many components: errors, stability and probabilities by rank, with what is recommended marked and explained.

const isRecommended = () => run.advice !== null && run.advice.by !== "bend";
const marked = () => (isRecommended() ? run.advice.rank : null);

function drawAdvice() {
  const { advice } = run;
  const [first] = run.results;
  if (advice === null) {
    byId("advice").textContent = `Rank ${first.rank} is shown because it was asked for; no other was fitted. --rank 2..12 compares several, and --rank select chooses one from the data.`;
    return;
  }
  const by = { network: "by a network that compares all ranks", hidden: "by the error of hidden entries", stability: "by stability under new draws of the data" }[advice.by];
  const fitted = run.results.some((r) => r.rank === advice.rank);
  const opened = run.results[run.opened].rank;
  const head = isRecommended() ? el("b", {}, `Rank ${advice.rank} is recommended, ${by}${fitted && run.results.length > 1 ? ", and therefore open" : ""}. `) : null;
  const missing = fitted ? "" : ` Rank ${advice.rank} is not part of this run; rank ${opened} is open instead.`;
  byId("advice").replaceChildren(...[head, `${advice.text}${missing}`].filter(Boolean));
  byId("rules").hidden = advice.rules.length === 0;
  byId("rules-table").replaceChildren(table(["rule asks", "rank", "what it saw"], advice.rules.map((rule) => [rule.asks, rule.rank, rule.text])));
  const pill = byId(`rank-${run.results.findIndex((r) => r.rank === advice.rank)}`);
  if (pill && isRecommended()) {
    pill.nextElementSibling.classList.add("recommended");
    pill.setAttribute("aria-label", `${advice.rank}, recommended`);
  }
}

// Whether errors differ by so much that the small ones would be lost, and none is rounding.
const isWide = (all) => Math.max(...all) > 10 * Math.min(...all) && Math.min(...all) > 1e-6 * Math.max(...all);
const at = (list, rank) => list.find(([x]) => x === rank);

function drawByRank() {
  const points = run.results.map((r) => [r.rank, errorOf(r)]);
  // One dot tells nothing that the tiles do not.
  byId("by-rank-figure").hidden = points.length + quickFits().length < 2;
  if (byId("by-rank-figure").hidden) return;
  byId("by-rank").className = "chart";
  const highest = points.at(-1)[0];
  // The SVD is a bound for squares alone.
  const bound = (isSquared() && run.bound ? run.bound : []).map((y, rank) => [rank, y]).filter(([rank]) => rank >= 1 && rank <= Math.max(highest, 12));
  const tried = quickFits();
  const series = [{ points, dots: { here: state.at } }];
  if (tried.length) series.unshift({ points: tried, className: "tried" });
  if (run.hidden.length) series.unshift({ points: run.hidden, className: "hidden", dots: run.hidden.length === 1 ? {} : null });
  if (bound.length) series.unshift({ points: bound, className: "bound" });
  const text = (rank) => {
    const result = run.results.find((r) => r.rank === rank);
    const [hidden, best, quick] = [at(run.hidden, rank), at(bound, rank), at(tried, rank)];
    return [
      `Rank ${rank}${rank === marked() ? ", recommended" : ""}`,
      result && `${errorName()} ${number(errorOf(result))}`,
      !result && quick && `quick fit ${number(quick[1], 3)}`,
      hidden && `hidden entries ${number(hidden[1], 3)} ± ${number(hidden[2], 2)}`,
      best && `SVD ${number(best[1])}`,
    ].filter(Boolean).join(" · ");
  };
  const known = [...new Set([...points, ...bound, ...tried].map(([x]) => x))].sort((a, b) => a - b).map((x) => [x, 0]);
  const all = [...points, ...run.hidden].map(([, y]) => y).filter((y) => y > 0);
  responsive(
    byId("by-rank"),
    lineChart({
      series, xName: "rank", yName: errorName(), wholeX: true, mark: marked(),
      log: isWide(all), stops: known.map(([x]) => x),
      label: `Error by rank: ${points.map(([rank, y]) => `rank ${rank}, ${number(y)}`).join("; ")}`,
      hover: (x) => {
        const rank = known[nearest(known, x)][0];
        return { x: rank, text: text(rank) };
      },
      pick: run.results.length > 1 ? (x) => pickRank(nearest(points, x)) : null,
    }),
  );
  byId("by-rank-note").textContent = isSquared()
    ? run.bound ? "No factorisation of a rank can be below the truncated SVD." : "There is no SVD bound, since entries are unknown or count differently."
    : `The ${nameOfLoss()}, which was minimised: the mean of an entry.`;
  key(byId("by-rank-key"), [
    ["", "the fit"],
    ...(tried.length ? [["tried", "quick fits, to choose the rank"]] : []),
    ...(run.hidden.length ? [["hidden", "hidden entries ± standard error"]] : []),
    ...(bound.length ? [["bound", "SVD"]] : []),
    ...(marked() === null ? [] : [["mark", "recommended"]]),
  ]);
  drawNumbers();
  byId("by-rank-csv").append(" ", svgButton(`${run.name} error by rank`, byId("by-rank")));
}

// Errors of the fits by which a rank was chosen, in the unit of V; those of counts are of another kind.
function quickFits() {
  const curves = run.choice?.curves;
  const one = run.results[0];
  if (!isSquared() || !curves || !(one.relative_error > 0)) return [];
  const size = one.rmse / one.relative_error;
  return curves.rank.map((rank, i) => [rank, curves.error[i] === null ? NaN : curves.error[i] * size]).filter(([, y]) => Number.isFinite(y));
}

function drawNumbers() {
  const mean = (list) => list.reduce((sum, x) => sum + x, 0) / list.length;
  const columns = [
    ["rank", (r) => String(r.rank) + (r.rank === marked() ? " ★" : "")],
    [isBySquares() ? "RMSE" : "divergence", (r) => number(errorOf(r))],
    [isBySquares() ? "explained" : "explained deviance", (r) => (explainedOf(r) === null ? "–" : explainedText(explainedOf(r)))],
    isSquared() && ["SVD bound", (r) => number(r.svd_rmse)],
    run.hidden.length && ["hidden", (r) => { const found = run.hidden.find(([k]) => k === r.rank); return found ? `${number(found[1])} ± ${number(found[2], 2)}` : "–"; }],
    run.results.some((r) => r.stability) && ["stability", (r) => (r.stability ? mean(r.stability).toFixed(2) : "–")],
    run.results.some((r) => r.stability) && ["least", (r) => (r.stability ? Math.min(...r.stability).toFixed(2) : "–")],
    ["iterations", (r) => integer(r.iterations)],
    ["seconds", (r) => number(r.seconds, 3)],
  ].filter(Boolean);
  const head = columns.map(([name]) => name);
  const rows = () => run.results.map((r) => columns.map(([, cell]) => cell(r)));
  byId("by-rank-table").replaceChildren(table(head, rows()));
  const exact = [
    ["rank", (r) => r.rank], [errorName(), errorOf], ["explained", explainedOf], ["objective", (r) => r.objective], ["RMSE", (r) => r.rmse], ["SVD bound", (r) => r.svd_rmse],
    ["hidden entries", (r) => at(run.hidden, r.rank)?.[1]], ["standard error", (r) => at(run.hidden, r.rank)?.[2]],
    ["stability", (r) => r.stability && mean(r.stability)], ["least stability", (r) => r.stability && Math.min(...r.stability)],
    ["iterations", (r) => r.iterations], ["seconds", (r) => r.seconds], ["status", (r) => r.status],
  ].filter(([name], i, all) => all.findIndex(([other]) => other === name) === i);
  byId("by-rank-csv").replaceChildren(csvButton(`${run.name} ranks`, exact.map(([name]) => name), () => run.results.map((r) => exact.map(([, cell]) => cell(r)))));
}

function drawStability() {
  const several = run.results.filter((r) => r.stability);
  const curves = run.choice?.curves;
  const own = several.length > 1;
  const starts = !own && curves ? curves.rank.map((rank, i) => [rank, curves.stability[i], curves.least_stability[i]]).filter(([, y]) => y !== null) : [];
  const rows = own ? several.map((r) => [r.rank, r.stability.reduce((sum, s) => sum + s, 0) / r.rank, Math.min(...r.stability)]) : starts;
  byId("stability-figure").hidden = rows.length < 2;
  if (rows.length < 2) return;
  const title = own ? "Stability by rank" : "Agreement of starts by rank";
  byId("by-stability-title").textContent = title;
  byId("by-stability").className = "chart";
  const here = rows.findIndex(([rank]) => rank === current().rank);
  responsive(
    byId("by-stability"),
    lineChart({
      series: [{ points: rows.map(([k, , least]) => [k, least]), className: "bound" }, { points: rows.map(([k, mean]) => [k, mean]), dots: { here } }],
      xName: "rank", yName: own ? "stability" : "cosine", wholeX: true, range: [0, 1], mark: marked(), stops: rows.map(([x]) => x),
      label: `${title}: ${rows.map(([k, mean]) => `rank ${k}, ${mean.toFixed(2)}`).join("; ")}`,
      hover: (x) => {
        const [rank, mean, least] = rows[nearest(rows, x)];
        return { x: rank, text: `Rank ${rank} · mean ${mean.toFixed(2)} · least ${least.toFixed(2)}` };
      },
      pick: own && run.results.length > 1 ? (x) => pickRank(nearest(run.results.map((r) => [r.rank]), x)) : null,
    }),
  );
  byId("stability-save").replaceChildren(svgButton(`${run.name} ${title}`, byId("by-stability")));
  byId("by-stability-note").textContent = own
    ? `How well the components of ${several[0].consensus?.runs ?? run.options.repeats} runs on ${drawnData()} agree: 1 where all find the same.${(run.options.resample ?? "none") === "none" ? " It says nothing about noise in the data." : ""}`
    : "Cosines of components that were matched between the starts by which the rank was chosen.";
  key(byId("by-stability-key"), [["", "mean of the components"], ["bound", own ? "the least stable" : "the least alike"], ...(marked() === null ? [] : [["mark", "recommended"]])]);
}

function drawChoice() {
  const { choice } = run;
  byId("choice-figure").hidden = choice === null;
  if (choice === null) return;
  byId("by-probability").className = "chart";
  const entries = Object.entries(choice.probabilities).map(([rank, p]) => [Number(rank), p]);
  responsive(
    byId("by-probability"),
    columnChart({
      entries, xName: "rank", yName: "probability", mark: choice.rank, text: (rank, p) => `Rank ${rank}: ${percent(p)}`,
      label: `Probability by rank: ${entries.filter(([, p]) => p > 0.01).map(([rank, p]) => `rank ${rank}, ${percent(p)}`).join("; ")}`,
    }),
  );
  byId("choice-note").textContent = `By a network that read how errors, singular values and agreement change from rank to rank. The choice is ${choice.clear ? "clear: such choices were exact in 95 % of test problems." : "not clear: compare the components of the ranks that are likely."}`;
  const rows = Object.entries(choice.criteria).map(([name, rank]) => [name === "stability" ? "agreement of starts" : name, rank, choice.rules?.[name] ?? ""]);
  byId("choice-rules").replaceChildren(table(["rule", "rank", "takes the"], rows));
  byId("choice-csv").replaceChildren(csvButton(`${run.name} probability of ranks`, ["rank", "probability"], () => entries), " ", csvButton(`${run.name} classical rules`, ["rule", "rank", "takes the"], () => rows), " ", svgButton(`${run.name} probability of ranks`, byId("by-probability")));
}
