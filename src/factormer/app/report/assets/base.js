"use strict";
// What every part of the page uses: the run, its state, elements, numbers as text, the tooltip.

const run = JSON.parse(document.getElementById("run").textContent);
const state = { at: run.opened, component: 0, convergenceBy: "iteration", alikeBy: "profile", swapped: run.swapped, toPeak: false, colours: null };

const current = () => run.results[state.at];
const byId = (id) => document.getElementById(id);

function el(tag, attributes = {}, ...children) {
  const isSvg = ["svg", "path", "line", "circle", "text", "rect", "g"].includes(tag);
  const element = isSvg ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

// Bytes of the page as numbers; level 0 is "not known" (see factormer.app.report.views.packed).
const decoded = new WeakMap();
function decode(packed) {
  if (decoded.has(packed)) return decoded.get(packed);
  const text = atob(packed.data);
  const wide = packed.bits === 16;
  const values = new Float32Array(wide ? text.length / 2 : text.length);
  const span = (packed.high - packed.low) / (2 ** packed.bits - 2);
  for (let i = 0; i < values.length; i++) {
    const level = wide ? text.charCodeAt(2 * i) + 256 * text.charCodeAt(2 * i + 1) : text.charCodeAt(i);
    values[i] = level === 0 ? NaN : packed.low + (level - 1) * span;
  }
  decoded.set(packed, values);
  return values;
}

const SUPERSCRIPTS = { "-": "⁻", 0: "⁰", 1: "¹", 2: "²", 3: "³", 4: "⁴", 5: "⁵", 6: "⁶", 7: "⁷", 8: "⁸", 9: "⁹" };
function number(x, digits = 4) {
  if (x === null || !Number.isFinite(x)) return "–";
  if (x === 0) return "0";
  const size = Math.abs(x);
  if (size >= 1e6 || size < 1e-3) {
    const [mantissa, exponent] = x.toExponential(Math.max(0, digits - 2)).split("e");
    const power = [...String(Number(exponent))].map((c) => SUPERSCRIPTS[c]).join("");
    return `${Number(mantissa)} × 10${power}`;
  }
  return Number(x.toPrecision(digits)).toLocaleString("en", { maximumFractionDigits: 8 });
}
const integer = (x) => x.toLocaleString("en");
const percent = (x, digits = 1) => `${(100 * x).toFixed(digits)} %`;
const IRREGULAR = { spectrum: "spectra", index: "indices", analysis: "analyses" };
const plural = (noun, n = 2) => (n === 1 ? noun : IRREGULAR[noun] || (/[^aeiou]y$/.test(noun) ? `${noun.slice(0, -1)}ies` : `${noun}s`));
const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);

function explainedText(x) {
  // As many digits as are needed to tell it from all.
  const left = Math.max(1 - x, 1e-8);
  return percent(x, Math.min(6, Math.max(1, Math.ceil(-Math.log10(left)) - 1)));
}

// The name of point i of a vector over an axis, as it is shown.
function nameOf(axis, i) {
  if (axis.grid) {
    const step = [0, 1].map((k) => axis.grid[k] / axis.shown[k]);
    const [y, x] = [Math.floor(i / axis.shown[1]), i % axis.shown[1]];
    return `${axis.noun} (${Math.floor(y * step[0]) + 1}, ${Math.floor(x * step[1]) + 1})`;
  }
  if (axis.labels && !axis.sorted && axis.first.length === axis.size) return axis.labels[i];
  if (axis.positions) return `${number(axis.positions[i])} ${axis.unit}`.trim();
  if (axis.sorted) return `${integer(axis.first[i] + 1)} of ${integer(axis.size)} ${plural(axis.noun)}`;
  const first = axis.first[i] + 1;
  const last = i + 1 < axis.first.length ? axis.first[i + 1] : axis.size;
  return last > first ? `${plural(axis.noun)} ${integer(first)}–${integer(last)}` : `${axis.noun} ${integer(first)}`;
}

// The name of row or column i of V.
const labelOf = (axis, i) => (axis.labels ? axis.labels[i] : axis.positions && axis.first.length === axis.size ? nameOf(axis, i) : `${axis.noun} ${integer(i + 1)}`);

const tip = byId("tip");
function showTip(event, text) {
  if (!text) return hideTip();
  tip.textContent = text;
  tip.hidden = false;
  const { width, height } = tip.getBoundingClientRect();
  const x = Math.min(event.clientX + 14, window.innerWidth - width - 8);
  const y = event.clientY - height - 12;
  tip.style.left = `${Math.max(8, x)}px`;
  tip.style.top = `${y < 8 ? event.clientY + 18 : y}px`;
}
function hideTip() {
  tip.hidden = true;
}
// What the keyboard points at is shown like what the mouse points at, and said to those who listen.
function tell(x, y, text) {
  showTip({ clientX: x, clientY: y }, text);
  byId("said").textContent = text;
}

const ARROWS = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] };
const within = (x, low, high) => Math.min(high, Math.max(low, x));

// Arrow keys on a chart go from point to point; `show(i)` shows one, and `pick(i)` is Enter.
function steppable(root, count, show, hide, pick) {
  let i = 0;
  root.tabIndex = 0;
  root.addEventListener("keydown", (event) => {
    const arrow = ARROWS[event.key];
    if (arrow) i = within(i + (arrow[1] - arrow[0]) * (event.shiftKey ? 10 : 1), 0, count - 1);
    else if (event.key === "Enter" && pick) return pick(i);
    else return;
    event.preventDefault();
    show(i);
  });
  root.addEventListener("blur", hide);
}

// Draw anew whenever the width changes.
const charts = new Map(); // from the container to its observer and how it is drawn
function responsive(container, draw) {
  charts.get(container)?.observer.disconnect();
  let last = 0;
  const fit = () => {
    const width = Math.floor(container.clientWidth);
    if (width > 0 && width !== last) {
      last = width;
      container.replaceChildren(draw(width));
    }
  };
  const observer = new ResizeObserver(fit);
  charts.set(container, { observer, fit });
  observer.observe(container);
}
// Draw all charts of the page at once, without waiting for observers, and forget those that left it.
function drawCharts() {
  for (const [container, { observer, fit }] of charts) {
    if (container.isConnected) fit();
    else {
      observer.disconnect();
      charts.delete(container);
    }
  }
}

// A group of radio buttons.
function choices(container, legend, name, options, chosen, onPick, className) {
  const fields = options.flatMap(([value, text]) => {
    const id = `${name}-${value}`;
    const input = el("input", { type: "radio", name, id, value, checked: value === chosen, onchange: () => onPick(value) });
    return [input, el("label", { for: id }, text)];
  });
  container.replaceChildren(el("fieldset", {}, el("legend", {}, legend), el("div", { class: className }, ...fields)));
}
