// What several runs of a rank agree on: which samples go together, and how stable each component is.

// The data that each of several runs was made on, in words.
const drawnData = () =>
  ({
    poisson: "counts drawn anew (each entry from a Poisson distribution with the entry as its mean)",
    bootstrap: "samples drawn anew, with replacement",
    none: "the same data from random starts",
  })[run.options.resample ?? "none"];

function drawAgreement() {
  const result = current();
  const has = Boolean(result.consensus);
  byId("agreement").hidden = !has;
  byId("agreement-link").hidden = !has;
  if (!has) return;
  const { consensus } = result;
  const count = consensus.shape[0];
  const axis = run[consensus.side];
  byId("agreement-note").textContent = `${result.runs_kept} of ${consensus.runs} runs on ${drawnData()} are kept; what they agree on is shown on this page.`;
  byId("consensus-note").textContent = `The share of runs in which two ${plural(axis.noun)} have the same largest component, like beside like${consensus.rows ? "" : `, ${integer(consensus.samples)} of them in ${count} × ${count} blocks`}. Sharp blocks mean agreement; cophenetic correlation ${consensus.cophenetic.toFixed(3)}.`;
  const values = decode(consensus);
  const canvas = byId("consensus-map");
  paint(canvas, values, consensus.shape, "ramp", linear(0, 1));
  canvas.style.imageRendering = "pixelated";
  canvas.setAttribute("aria-label", `Consensus matrix of ${integer(consensus.samples)} ${plural(axis.noun)}; cophenetic correlation ${consensus.cophenetic.toFixed(3)}`);
  const name = (i) => {
    if (!consensus.rows) return `${plural(axis.noun)} ${integer(Math.round((i * consensus.samples) / count) + 1)}–${integer(Math.round(((i + 1) * consensus.samples) / count))} in this order`;
    return labelOf(axis, consensus.rows[i]);
  };
  pointable(canvas, ([a, b]) => `${name(a)} and ${name(b)}: together in ${percent(values[a * count + b], 0)} of the runs`);
  byId("consensus-scale").replaceChildren(colourScale(linear(0, 1), "ramp"));
  const items = result.stability.map((s, c) =>
    el(
      "li",
      { style: barWidth(s), class: isShaky(s) ? "low" : null },
      el("span", {}, el("button", { type: "button", onclick: () => { pickComponent(c); byId("components").scrollIntoView(); } }, componentName(c)), `, ${percent(result.shares[c])}`),
      el("em", {}, s.toFixed(2)),
    ),
  );
  byId("stability-list").replaceChildren(el("ol", { class: "bars" }, ...items));
  byId("stability-csv").replaceChildren(csvButton(`${run.name} rank ${result.rank} stability`, ["component", "name", "share", "stability"], () => result.stability.map((s, c) => [c + 1, givenName(c), result.shares[c], s])));
}
