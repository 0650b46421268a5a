// The components: a card each, and the picked one with where it is used.

const axes = { W: run.rows, H: run.columns };
// Photographs look right in grey; all else takes the colours of the page.
const paletteOf = (side) => (side === "H" && axes.H.grid ? "grey" : "ramp");

// How a component looks over one axis, small.
function glance(component, side, c) {
  const axis = axes[side];
  const label = `Component ${c + 1} over the ${plural(axis.noun)}`;
  if (axis.kind === "image") return picture(axis, component[side], { palette: paletteOf(side), label, hover: false });
  if (axis.kind === "labels" && side === "H") return bars(component.H_top, glanceTerms());
  const chart = el("div", { class: side === "W" ? "chart quiet" : "chart" });
  if (axis.mutations) responsive(chart, mutationBars(axis, component[side], { height: 62, label }));
  else responsive(chart, profile(axis, component[side], { height: (side === "W" ? 34 : 62) * (isRoomy() ? 1.6 : 1), label, thin: true }));
  return chart;
}

const glanceTerms = () => (current().rank > 30 ? 4 : isRoomy() ? 10 : 7);

// Few components are drawn large, many small.
const isRoomy = () => current().rank <= 4;
function cardWidth(rank, isImage) {
  if (rank <= 4) return "250px";
  if (rank <= 6) return "200px";
  if (rank > 30) return isImage ? "88px" : "132px";
  return isImage ? (rank > 9 ? "124px" : "160px") : "168px";
}

// The sides that a card shows: always the profile; the use where it is a picture or a course.
function sidesShown() {
  return ["image", "line", "mutations"].includes(axes.W.kind) ? ["H", "W"] : ["H"];
}

function drawCards() {
  const result = current();
  const cards = byId("cards");
  const isImage = axes.H.kind === "image";
  cards.style.setProperty("--card", cardWidth(result.rank, isImage));
  cards.style.setProperty("--card-small", isImage ? "92px" : "140px");
  cards.classList.toggle("few", result.rank <= 6);
  const most = Math.max(...result.shares) || 1;
  cards.replaceChildren(
    ...result.components.map((component, c) =>
      el(
        "button",
        { class: "card", type: "button", "aria-pressed": String(c === state.component), "aria-label": spoken(component, c), "data-component": c, onclick: () => pickComponent(c, true) },
        ...sidesShown().map((side) => glance(component, side, c)),
        el("span", { class: "caption" }, el("b", {}, String(c + 1)), el("span", {}, percent(result.shares[c]), steadyMark(result, c))),
        el("span", { class: "share" }, el("i", { style: `width:${((100 * result.shares[c]) / most).toFixed(1)}%` })),
      ),
    ),
  );
  byId("components-note").textContent =
    (result.rank === 1 ? "One part, W Hᵀ itself." : `${result.rank} parts whose sum is W Hᵀ, the largest first. Pick one to see where it is used.`) +
    (result.stability ? ` Framed is the stability over ${result.runs_kept} runs: 1 where all find the same; below 0.5 it is marked.` : "");
}

const isShaky = (stability) => stability < 0.5;
// How stable a component is over several runs, where there were several.
const steadyMark = (result, c) =>
  result.stability ? el("span", { class: isShaky(result.stability[c]) ? "steady low" : "steady", title: `stability ${result.stability[c].toFixed(2)}` }, result.stability[c].toFixed(2)) : null;
const steady = (result, c, before) => (result.stability ? `${before}${result.stability[c].toFixed(2)}` : "");

// A card in words.
function spoken(component, c) {
  const terms = axes.H.kind === "labels" ? component.H_top.slice(0, 3).map(([name]) => name) : [];
  return [`Component ${c + 1}`, percent(current().shares[c]) + steady(current(), c, ", stability "), ...terms].join(", ");
}

function pickComponent(c, byHand = false) {
  const count = current().rank;
  state.component = (c + count) % count;
  for (const card of byId("cards").children) {
    card.setAttribute("aria-pressed", String(Number(card.dataset.component) === state.component));
  }
  drawPicked();
  if (byHand && window.innerWidth <= 900) byId("picked").scrollIntoView({ block: "start" });
}

// A component over one axis, large, with values under the pointer.
function view(component, side, height) {
  const axis = axes[side];
  const unit = side === "W" ? "" : " of its peak";
  const label = `Component ${state.component + 1} over the ${plural(axis.noun)}`;
  if (axis.kind === "image") return picture(axis, component[side], { palette: paletteOf(side), label, className: "whole", unit });
  if (axis.kind === "labels" && side === "H") return bars(component.H_top, 12, (x) => percent(x, 0));
  const chart = el("div", { class: side === "W" ? "chart quiet" : "chart" });
  if (axis.mutations) responsive(chart, mutationBars(axis, component[side], { height, full: true, label, unit }));
  else responsive(chart, profile(axis, component[side], { height, axes: true, label, unit }));
  return chart;
}

function thumbnails(result, c) {
  const rows = result.examples[c];
  return el(
    "div",
    { class: "thumbs" },
    ...rows.map((i) => {
      const packed = result.example_images[i];
      const canvas = el("canvas", { role: "img", "aria-label": `${run.rows.noun} ${i + 1}` });
      paint(canvas, decode(packed), result.example_shape, "grey");
      const name = run.rows.labels ? run.rows.labels[i] : `${run.rows.noun} ${integer(i + 1)}`;
      return el("figure", {}, canvas, el("figcaption", { title: name }, name));
    }),
  );
}

const block = (title, ...content) => el("div", {}, el("h4", {}, title), ...content);

function drawPicked() {
  const result = current();
  const c = state.component;
  const component = result.components[c];
  const W = axes.W;
  const used = [];
  if (W.kind !== "labels" || W.size > 12) used.push(view(component, "W", 74));
  const parts = [
    el(
      "div",
      { class: "step" },
      el("span", {}, el("h3", {}, `Component ${c + 1}`), el("p", { class: "lead" }, `${percent(result.shares[c])} of the sum of W Hᵀ${steady(result, c, "; stability ")}`)),
      el(
        "div",
        {},
        el("button", { type: "button", "aria-label": "Previous component", onclick: () => pickComponent(c - 1) }, "←"),
        el("button", { type: "button", "aria-label": "Next component", onclick: () => pickComponent(c + 1) }, "→"),
      ),
    ),
    block(axes.H.kind === "labels" ? `Its ${plural(axes.H.noun)}` : `Over the ${plural(axes.H.noun)}`, view(component, "H", 110)),
  ];
  if (used.length) parts.push(block(`Where it is used, over the ${plural(W.noun)}`, ...used));
  if (isSound) parts.push(block("Its spectrogram", spectrogram(component, `Spectrogram of component ${c + 1}`)));
  if (result.examples) parts.push(block(`${capital(plural(W.noun))} that use it most`, thumbnails(result, c)));
  else if (component.W_top && W.kind !== "line") parts.push(block(`${capital(plural(W.noun))} that use it most`, bars(component.W_top, 7)));
  byId("picked").replaceChildren(el("div", { class: "panel" }, ...parts));
}
