// The components: a card each, and the picked one with where it is used.

const axes = { W: run.rows, H: run.columns };
// A component is a profile over one side of V, used more or less by each of the other; rows use it, unless swapped.
const sideOf = (part) => ((part === "profile") === state.swapped ? "W" : "H");
const axisOf = (part) => axes[sideOf(part)];
// Photographs look right in grey; all else takes the colours of the page.
const paletteOf = (side) => (side === "H" && axes.H.grid ? "grey" : "ramp");
// Shares, which have a sum, are shown as they are, with the other factor.
const hasSums = Object.keys(run.sums).length > 0;
// Else profiles are relative to their peak, uses in the unit of V: W is stored so, and H at most 1.
const timesOf = (component, part) => (hasSums ? 1 : part === "profile" ? 1 / (component[sideOf("profile")].high || 1) : component[sideOf("profile")].high);
const hasNames = (axis) => axis.sorted;
// Catalogues of mutations have a chart of their own.
const chartOf = (axis) => (axis.mutations ? mutationBars : profile);

// Maps of use share a scale, so that components can be compared, unless each is to go to its own peak.
const hasMaps = () => axisOf("use").kind === "image";
const isShared = (part) => part === "use" && hasMaps() && !state.toPeak;
const mostUsed = () => Math.max(...current().components.map((one) => timesOf(one, "use") * one[sideOf("use")].high));
// The greatest value of a picture's colours, in the numbers that it holds.
const highOf = (component, part) => (isShared(part) ? mostUsed() / timesOf(component, "use") : component[sideOf(part)].high);

// How a component looks over one axis, small.
function glance(component, part, c) {
  const [side, axis] = [sideOf(part), axisOf(part)];
  const label = `${componentName(c)} over the ${plural(axis.noun)}`;
  if (axis.kind === "image") return picture(axis, component[side], { palette: paletteOf(side), label, hover: false, high: highOf(component, part) });
  if (hasNames(axis)) return bars(component[`${side}_telling`].map(([name, , loading]) => [name, loading]), glanceTerms());
  const chart = el("div", { class: part === "use" ? "chart quiet" : "chart" });
  responsive(chart, chartOf(axis)(axis, component[side], { height: (part === "use" ? 30 : 56) * (isRoomy() ? 1.6 : 1), label, thin: true }));
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
const partsShown = () => (hasNames(axisOf("use")) ? ["profile"] : ["profile", "use"]);

function drawCards() {
  const result = current();
  const cards = byId("cards");
  const isImage = axisOf("profile").kind === "image";
  cards.style.setProperty("--card", cardWidth(result.rank, isImage));
  cards.style.setProperty("--card-small", isImage ? "92px" : "140px");
  cards.classList.toggle("few", result.rank <= 6);
  const most = Math.max(...result.shares) || 1;
  cards.replaceChildren(
    ...result.components.map((component, c) =>
      el(
        "button",
        { class: "card", type: "button", "aria-pressed": String(c === state.component), "aria-label": spoken(component, c), "data-component": c, title: result.references ? result.references[c].text : null, onclick: () => pickComponent(c, true) },
        ...partsShown().map((part) => glance(component, part, c)),
        el("span", { class: "caption" }, el("b", { title: componentName(c) }, shortName(c)), el("span", {}, percent(result.shares[c]), steadyMark(result, c))),
        result.references?.[c].is_close ? el("span", { class: "known" }, `${result.references[c].name}, ${result.references[c].cosine.toFixed(3)}`) : null,
        el("span", { class: "share" }, el("i", { style: `width:${((100 * result.shares[c]) / most).toFixed(1)}%` })),
      ),
    ),
  );
  const pictures = partsShown().filter((part) => axisOf(part).kind === "image");
  byId("cards-scale").replaceChildren(...pictures.map((part) => (isShared(part) ? colourScale(linear(0, mostUsed()), paletteOf(sideOf(part))) : peakScale(plural(axisOf(part).noun), paletteOf(sideOf(part))))));
  byId("maps-scale").hidden = !hasMaps();
  drawReferences(result);
  byId("components-note").textContent =
    (result.rank === 1 ? "One part, W Hᵀ itself." : `${result.rank} parts whose sum is W Hᵀ, the largest first. Pick one to see where it is used.`) +
    unitsNote() +
    (result.stability ? ` Framed is the stability over ${result.runs_kept} runs: 1 where all find the same; below 0.5 it is marked.` : "");
}

// Which reference each component is, or which sum of references.
function drawReferences(result) {
  byId("references").hidden = !result.references;
  if (!result.references) return;
  const cosine = (x) => (x === null ? "–" : x.toFixed(3));
  const angle = (x) => `${((180 / Math.PI) * Math.acos(Math.min(x, 1))).toFixed(1)}°`;
  const head = ["component", "nearest reference", "cosine", "angle", "sum of references", "its cosine"];
  const rows = () => result.references.map((r, c) => [shortName(c), r.name, cosine(r.cosine), angle(r.cosine), r.sum || "–", cosine(r.sum_cosine)]);
  byId("references-table").replaceChildren(table(head, rows()));
  byId("references-csv").replaceChildren(csvButton(`${run.name} rank ${result.rank} references`, head, rows));
}

// What the numbers of both sides mean.
function unitsNote() {
  const [profiles, uses] = ["profile", "use"].map((part) => `over the ${plural(axisOf(part).noun)}`);
  if (!hasSums) return ` Numbers ${profiles} are relative to their peak; those ${uses} carry the unit of V.`;
  const meaning = (side) => {
    const own = run.sums[side];
    if (own) return `are shares, which sum to ${number(own.total)} for each ${own.by === "rows" ? axes[side].noun : "component"}`;
    const { total } = run.sums[side === "W" ? "H" : "W"];
    return total === 1 ? "carry the unit of V" : `are in the unit of V, divided by ${number(total)}`;
  };
  return ` Numbers ${profiles} ${meaning(sideOf("profile"))}; those ${uses} ${meaning(sideOf("use"))}.`;
}

// Pictures that have scales of their own; the picked one shows its numbers.
function peakScale(what, palette) {
  const scale = colourScale(linear(0, 1), palette);
  const [none, over, peak] = scale.lastChild.children;
  [none.textContent, over.textContent, peak.textContent] = ["0", `over the ${what}`, "its peak"];
  return scale;
}

const isShaky = (stability) => stability < 0.5;
// How stable a component is over several runs, where there were several.
const steadyMark = (result, c) =>
  result.stability ? el("span", { class: isShaky(result.stability[c]) ? "steady low" : "steady", title: `stability ${result.stability[c].toFixed(2)}` }, result.stability[c].toFixed(2)) : null;
const steady = (result, c, before) => (result.stability ? `${before}${result.stability[c].toFixed(2)}` : "");

// A card in words.
function spoken(component, c) {
  const terms = hasNames(axisOf("profile")) ? component[`${sideOf("profile")}_telling`].slice(0, 3).map(([name]) => name) : [];
  return [componentName(c), percent(current().shares[c]) + steady(current(), c, ", stability "), ...terms].join(", ");
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
function view(component, part, height) {
  const [side, axis, times] = [sideOf(part), axisOf(part), timesOf(component, part)];
  const unit = part === "use" || hasSums ? "" : " of its peak";
  const over = current().references?.[state.component][side];
  const label = `${componentName(state.component)} over the ${plural(axis.noun)}`;
  if (axis.kind === "image") {
    const high = highOf(component, part);
    const scale = linear(Math.min(0, component[side].low), high);
    const other = over ? el("div", {}, picture(axis, over, { palette: paletteOf(side), label: `${label}, reference`, className: "whole", unit, times }), el("p", { class: "hint" }, "The reference")) : null;
    return el("div", {}, picture(axis, component[side], { palette: paletteOf(side), label, className: "whole", unit, times, high }), colourScale(scale, paletteOf(side), { times, unit }), other);
  }
  if (part === "profile" && hasNames(axis)) return telling(axis, component[`${side}_telling`]);
  const chart = el("div", { class: part === "use" ? "chart quiet" : "chart" });
  const xNote = axis.sorted ? ", those that use it most first" : "";
  responsive(chart, chartOf(axis)(axis, component[side], { height, full: true, label, unit, times, xNote, over }));
  const save = el("div", { class: "save" }, svgButton(`${run.name} rank ${current().rank} ${shortName(state.component)} over the ${plural(axis.noun)}`, chart));
  return el("div", {}, chart, over ? el("p", { class: "hint" }, `${axis.mutations ? "Marks" : "Dashed"}: ${current().references[state.component].sum || current().references[state.component].name}.`) : null, save);
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
      const name = labelOf(run.rows, i);
      return el("figure", {}, canvas, el("figcaption", { title: name }, name));
    }),
  );
}

const block = (title, ...content) => el("div", {}, el("h4", {}, title), ...content);
const withButton = (title, button) => el("span", { class: "with-button" }, title, button);

// All components of the rank in one table: what sets each apart, or what uses it most.
function componentTable(what, head, key, times = () => 1) {
  const rows = () => current().components.flatMap((component, c) => component[key].map(([name, ...numbers]) => [c + 1, givenName(c), name, ...numbers.map((x) => x * times(component))]));
  return csvButton(`${run.name} rank ${current().rank} ${what}`, ["component", "name", ...head], rows);
}

function drawPicked() {
  const result = current();
  const c = state.component;
  const component = result.components[c];
  const [shape, use] = [axisOf("profile"), axisOf("use")];
  const input = el("input", { type: "text", id: "rename", maxlength: 60, placeholder: "Give it a name", "aria-label": `Name of component ${c + 1}`, value: givenName(c), autocomplete: "off", spellcheck: "false" });
  input.addEventListener("change", () => rename(c, input.value));
  const parts = [
    el(
      "div",
      { class: "step" },
      el("span", {}, el("h3", {}, componentName(c)), el("p", { class: "lead" }, `${c + 1} of ${result.rank}; ${percent(result.shares[c])} of the sum of W Hᵀ${steady(result, c, "; stability ")}`), result.references ? el("p", { class: "lead reference" }, `Reference: ${result.references[c].text}`) : null),
      el(
        "div",
        {},
        el("button", { type: "button", "aria-label": "Previous component", onclick: () => pickComponent(c - 1) }, "←"),
        el("button", { type: "button", "aria-label": "Next component", onclick: () => pickComponent(c + 1) }, "→"),
      ),
    ),
    input,
  ];
  const key = `${sideOf("profile")}_telling`;
  const title = hasNames(shape)
    ? withButton(`${capital(plural(shape.noun))} that set it apart`, componentTable(plural(shape.noun), [shape.noun, "specificity", "loading"], key))
    : `Over the ${plural(shape.noun)}`;
  parts.push(block(title, view(component, "profile", 110)));
  if (hasNames(shape) && result.rank > 1) parts.at(-1).append(el("p", { class: "hint" }, "Specificity: 1 where no other component has it. Loading: relative to the largest."));
  if (!use.sorted || use.size > 12) parts.push(block(`Where it is used, over the ${plural(use.noun)}`, view(component, "use", 74)));
  if (isSound) parts.push(block("Its spectrogram", spectrogram(component, `Spectrogram of ${componentName(c)}`)));
  if (result.examples && !state.swapped) parts.push(block(`${capital(plural(use.noun))} that use it most`, thumbnails(result, c)));
  else if (use.sorted) {
    const top = component[`${sideOf("use")}_top`].map(([name, value]) => [name, value * timesOf(component, "use")]);
    parts.push(block(withButton(`${capital(plural(use.noun))} that use it most`, componentTable(`${plural(use.noun)} by use`, [use.noun, "use"], `${sideOf("use")}_top`, (one) => timesOf(one, "use"))), bars(top, 7)));
  }
  byId("picked").replaceChildren(el("div", { class: "panel" }, ...parts));
}
