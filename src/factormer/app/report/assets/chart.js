// Lines: charts with axes, and profiles of vectors.

const polyline = (points) => points.map(([x, y], i) => `${i ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");

// Round numbers that cut a range into about `count` parts, and never into many more.
function ticks(low, high, count) {
  const power = 10 ** Math.floor(Math.log10((high - low) / count || 1));
  const many = (s) => Math.floor(high / s + 1e-9) - Math.ceil(low / s - 1e-9) + 1;
  const step = [0.5, 1, 2, 2.5, 5, 10].map((k) => k * power).find((s) => many(s) <= count + 1);
  const found = [];
  for (let x = Math.ceil(low / step - 1e-9) * step; x <= high + step * 1e-9; x += step) found.push(Math.abs(x) < step * 1e-9 ? 0 : Number(x.toPrecision(12)));
  return found;
}

// Round numbers on a logarithmic axis: at least three, where there are three, and not many more.
function logTicks(low, high) {
  const powers = [];
  for (let p = Math.floor(Math.log10(low)); p <= Math.ceil(Math.log10(high)); p++) powers.push(p);
  const inside = (y) => y >= low * 0.999 && y <= high * 1.001;
  for (const within of [[1], [1, 3], [1, 2, 5], [1, 1.5, 2, 3, 5, 7]]) {
    const found = powers.flatMap((p) => within.map((k) => k * 10 ** p)).filter(inside);
    if (found.length >= 3) return found.filter((_, i) => i % Math.ceil(found.length / 6) === 0);
  }
  return ticks(low, high, 4).filter((y) => y > 0);
}

// As many digits as tell neighbouring ticks apart.
function tickTexts(found) {
  for (let digits = 2; digits < 8; digits++) {
    const texts = found.map((x) => number(x, digits));
    if (new Set(texts).size === texts.length && found.every((x, i) => Math.abs(Number(x.toPrecision(digits)) - x) <= 1e-9 * Math.abs(x))) return texts;
  }
  return found.map((x) => number(x, 8));
}

// Labels [x, text, anchor] that have room: those that would touch the one before are left out.
function spaced(labels, letter) {
  let end = -Infinity;
  return labels.filter(([x, text, anchor]) => {
    const length = letter * text.length;
    const left = x - { start: 0, middle: length / 2, end: length }[anchor];
    if (left < end + letter) return false;
    end = left + length;
    return true;
  });
}

// Series [{points, className, dots}] with axes; pointing shows `hover(x)`, clicking is `pick(x)`. A third number of a
// point is its spread. `mark` is an x to point out, `range` what the y axis shows at least, `stops` the x of arrow keys.
function lineChart({ series, xName, yName, log = false, logX = false, label, hover, pick, stops, wholeX = false, mark = null, range = null }) {
  return (width) => {
    const height = Math.round(Math.min(320, Math.max(220, width * 0.56)));
    const box = { left: 64, right: 14, top: 24, bottom: 40 };
    const isDrawn = ([x, y]) => Number.isFinite(y) && (!log || y > 0) && (!logX || x > 0);
    const all = series.flatMap((s) => s.points).filter(isDrawn);
    let [x0, x1] = extent(all.map(([x]) => x));
    let [y0, y1] = extent(all.flatMap(([, y, s]) => (s && y > s ? [y - s, y + s] : [y])));
    if (x0 === x1) [x0, x1] = logX ? [x0 / 2, x1 * 2] : [x0 - 1, x1 + 1];
    if (range) [y0, y1] = [Math.min(range[0], y0), Math.max(range[1], y1)];
    else if (log) [y0, y1] = y0 === y1 ? [y0 / 1.5, y1 * 1.5] : [y0 / (y1 / y0) ** 0.04, y1 * (y1 / y0) ** 0.04];
    else [y0, y1] = y0 < 0.5 * y1 ? [0, y1 * 1.05] : [y0 - 0.1 * (y1 - y0 || y1), y1 + 0.1 * (y1 - y0 || y1)];
    const place = (x, a, b, isLog) => (isLog ? Math.log(x / a) / Math.log(b / a) : (x - a) / (b - a));
    const px = (x) => box.left + place(x, x0, x1, logX) * (width - box.left - box.right);
    const py = (y) => height - box.bottom - place(y, y0, y1, log) * (height - box.top - box.bottom);
    const root = el("svg", { viewBox: `0 0 ${width} ${height}`, height, role: "img", "aria-label": label, class: pick ? "pickable" : null });
    const yTicks = log ? logTicks(y0, y1) : ticks(y0, y1, 4);
    tickTexts(yTicks).forEach((text, i) => {
      root.append(
        el("line", { class: "grid", x1: box.left, x2: width - box.right, y1: py(yTicks[i]), y2: py(yTicks[i]) }),
        el("text", { x: box.left - 8, y: py(yTicks[i]) + 4, "text-anchor": "end" }, text),
      );
    });
    const many = within(Math.floor(width / 75), 3, 8);
    const xTicks = (logX ? logTicks(x0, x1) : ticks(x0, x1, many)).filter((x) => !wholeX || Number.isInteger(x));
    const foot = height - box.bottom;
    root.append(el("line", { class: "axis", x1: box.left, x2: width - box.right, y1: foot, y2: foot }));
    for (const x of xTicks) root.append(el("line", { class: "axis", x1: px(x), x2: px(x), y1: foot, y2: foot + 4 }));
    const xTexts = tickTexts(xTicks).map((text, i) => [px(xTicks[i]), text, "middle"]);
    for (const [x, text, anchor] of spaced(xTexts, 7)) root.append(el("text", { x, y: foot + 17, "text-anchor": anchor }, text));
    root.append(
      el("text", { x: 0, y: 10 }, yName + (log ? " (log)" : "")),
      el("text", { x: width - box.right, y: height - 3, "text-anchor": "end" }, xName + (logX ? " (log)" : "")),
    );
    if (mark !== null && mark >= x0 && mark <= x1) root.append(markAt(px(mark), box.top, foot));
    for (const { points, className, dots } of series) {
      const drawn = points.filter(isDrawn);
      root.append(el("path", { class: `curve ${className || ""}`, d: polyline(drawn.map(([x, y]) => [px(x), py(y)])) }));
      for (const [x, y, s] of drawn) if (s && (!log || y > s)) root.append(el("line", { class: `spread ${className || ""}`, x1: px(x), x2: px(x), y1: py(y - s), y2: py(y + s) }));
      if (dots) points.forEach(([x, y], i) => isDrawn([x, y]) && root.append(el("circle", { class: i === dots.here ? "dot here" : "dot", cx: px(x), cy: py(y), r: i === dots.here ? 5 : 3.5 })));
    }
    const cross = el("line", { class: "cross", y1: box.top, y2: foot, visibility: "hidden" });
    root.append(cross);
    const xAt = (event) => {
      const bounds = root.getBoundingClientRect();
      const share = within((((event.clientX - bounds.left) / bounds.width) * width - box.left) / (width - box.left - box.right), 0, 1);
      return logX ? x0 * (x1 / x0) ** share : x0 + share * (x1 - x0);
    };
    const show = (x, say) => {
      const found = hover(x);
      if (!found) return;
      const at = within(px(found.x), box.left, width - box.right) || box.left;
      cross.setAttribute("x1", at);
      cross.setAttribute("x2", at);
      cross.setAttribute("visibility", "visible");
      say(found.text, at);
    };
    const hide = () => {
      cross.setAttribute("visibility", "hidden");
      hideTip();
    };
    root.addEventListener("pointermove", (event) => show(xAt(event), (text) => showTip(event, text)));
    root.addEventListener("pointerleave", hide);
    if (pick) root.addEventListener("click", (event) => pick(xAt(event)));
    const byKey = (i) => show(stops[i], (text, at) => {
      const bounds = root.getBoundingClientRect();
      tell(bounds.left + (at / width) * bounds.width, bounds.top + bounds.height / 3, text);
    });
    steppable(root, stops.length, byKey, hide, pick && ((i) => pick(stops[i])));
    return root;
  };
}

const markAt = (x, top, bottom) => el("rect", { class: "mark", x: x - 7, y: top - 6, width: 14, height: bottom - top + 6, rx: 4 });

// A column for each [x, y], y from 0 to 1; `mark` is an x to point out.
function columnChart({ entries, xName, yName, label, text, mark }) {
  return (width) => {
    const height = Math.round(Math.min(320, Math.max(220, width * 0.56)));
    const box = { left: 58, right: 14, top: 22, bottom: 38 };
    const step = (width - box.left - box.right) / entries.length;
    const py = (y) => height - box.bottom - y * (height - box.top - box.bottom);
    const root = el("svg", { viewBox: `0 0 ${width} ${height}`, height, role: "img", "aria-label": label });
    for (const y of [0, 0.25, 0.5, 0.75, 1]) {
      root.append(
        el("line", { class: "grid", x1: box.left, x2: width - box.right, y1: py(y), y2: py(y) }),
        el("text", { x: box.left - 8, y: py(y) + 4, "text-anchor": "end" }, percent(y, 0)),
      );
    }
    const every = Math.ceil(22 / step);
    entries.forEach(([x, y], i) => {
      const middle = box.left + (i + 0.5) * step;
      const bar = el("rect", { class: x === mark ? "column here" : "column", x: middle - Math.min(18, step * 0.36), width: Math.min(36, step * 0.72), y: py(y), height: py(0) - py(y), rx: 2 });
      const area = el("rect", { class: "nothing", x: box.left + i * step, width: step, y: box.top, height: height - box.top - box.bottom });
      area.addEventListener("pointermove", (event) => showTip(event, text(x, y)));
      area.addEventListener("pointerleave", hideTip);
      root.append(bar, area);
      if (i % every === 0) root.append(el("text", { x: middle, y: height - box.bottom + 18, "text-anchor": "middle" }, String(x)));
    });
    root.append(el("text", { x: box.left, y: 10 }, yName), el("text", { x: width - box.right, y: height - 3, "text-anchor": "end" }, xName));
    return root;
  };
}

// What the lines of a chart stand for: [class, text].
function key(list, entries) {
  const swatch = (name) => {
    const root = el("svg", { viewBox: "0 0 22 10", width: 22, height: 10, "aria-hidden": "true" });
    root.append(name === "mark" ? el("rect", { class: "mark", x: 4, y: 0, width: 14, height: 10, rx: 3 }) : el("line", { class: `curve ${name}`, x1: 1, x2: 21, y1: 5, y2: 5 }));
    return root;
  };
  list.replaceChildren(...entries.map(([name, text]) => el("li", {}, swatch(name), text)));
}

// Where the points of a vector over an axis are drawn, and round numbers on it.
function scaleOf(axis, count) {
  if (axis.unit === "Hz") {
    const found = [0, 100, 300, 1000, 3000, 10000, 30000].filter((f) => f >= axis.positions[0] && f <= axis.positions.at(-1));
    const few = found.length > count ? found.filter((f) => [0, 300, 1000, 3000, 10000].includes(f)) : found;
    return { places: axis.positions.map(pitch), marks: few.map((f) => [pitch(f), number(f)]), name: "Hz" };
  }
  const places = axis.positions || axis.first.map((i) => i + 1);
  const [p0, p1] = extent(places);
  const found = ticks(p0, p1, count).filter((x) => axis.positions || Number.isInteger(x));
  const name = axis.positions ? axis.unit || axis.noun : plural(axis.noun);
  return { places, marks: tickTexts(found).map((text, i) => [found[i], text]), name };
}

// A vector over a line, filled to its foot, with its axis below; `full` adds that of the values, and answers when
// pointed at. Its values are multiplied by `times`; `over` is another vector, drawn over it as a dashed line.
function profile(axis, packed, { height = 64, full = false, label, thin = false, unit = "", times = 1, xNote = "", yName = "", over = null }) {
  const values = decode(packed).map((y) => times * y);
  const others = over ? decode(over).map((y) => times * y) : [];
  return (width) => {
    const { places, marks, name } = scaleOf(axis, within(Math.floor(width / (full ? 70 : 52)), 3, 8));
    const [p0, p1] = extent(places);
    const [top, left, right, foot] = full ? [yName ? 16 : 4, 46, 8, 34] : [3, 1, 1, 16];
    const [small, large] = [times * Math.min(0, packed.low), times * Math.max(packed.high, over ? over.high : packed.high)];
    const [low, high] = [small, large > small ? large : 1];
    const px = (p) => left + (p1 > p0 ? (p - p0) / (p1 - p0) : 0.5) * (width - left - right);
    const py = (y) => top + (1 - ((Number.isNaN(y) ? low : y) - low) / (high - low)) * height;
    const points = Array.from(values, (y, i) => [px(places[i]), py(y)]);
    const ground = py(Math.max(low, 0));
    const all = top + height + foot;
    const root = el("svg", { viewBox: `0 0 ${width} ${all}`, height: all, role: "img", "aria-label": label });
    if (full) {
      const found = ticks(low, high, 3);
      tickTexts(found).forEach((text, i) => {
        root.append(
          el("line", { class: "grid", x1: left, x2: width - right, y1: py(found[i]), y2: py(found[i]) }),
          el("text", { x: left - 6, y: py(found[i]) + 4, "text-anchor": "end" }, text),
        );
      });
    }
    root.append(
      el("path", { class: "area", d: `${polyline(points)}L${points.at(-1)[0].toFixed(1)} ${ground}L${points[0][0].toFixed(1)} ${ground}Z` }),
      el("path", { class: thin ? "curve thin" : "curve", d: polyline(points) }),
      over ? el("path", { class: "curve hidden", d: polyline(Array.from(others, (y, i) => [px(places[i]), py(y)])) }) : "",
      el("line", { class: "axis", x1: left, x2: width - right, y1: top + height, y2: top + height }),
    );
    for (const [p] of marks) root.append(el("line", { class: "axis", x1: px(p), x2: px(p), y1: top + height, y2: top + height + 3 }));
    const ends = marks.map(([p, text]) => [px(p), text, px(p) < 14 ? "start" : px(p) > width - 14 ? "end" : "middle"]);
    for (const [x, text, anchor] of spaced(ends, full ? 7 : 6)) root.append(el("text", { class: full ? null : "tiny", x, y: top + height + 14, "text-anchor": anchor }, text));
    if (!full) return root;
    if (yName) root.append(el("text", { x: 0, y: 10 }, yName));
    root.append(el("text", { x: width - right, y: all - 3, "text-anchor": "end" }, name + xNote));
    const dot = el("circle", { class: "dot", r: 4, visibility: "hidden" });
    root.append(dot);
    const show = (i) => {
      dot.setAttribute("cx", points[i][0]);
      dot.setAttribute("cy", points[i][1]);
      dot.setAttribute("visibility", "visible");
      return `${nameOf(axis, i)}: ${number(values[i], 3)}${unit}`;
    };
    const hide = () => {
      dot.setAttribute("visibility", "hidden");
      hideTip();
    };
    root.addEventListener("pointermove", (event) => {
      const bounds = root.getBoundingClientRect();
      const x = ((event.clientX - bounds.left) / bounds.width) * width;
      let best = 0;
      points.forEach(([at], i) => { if (Math.abs(at - x) < Math.abs(points[best][0] - x)) best = i; });
      showTip(event, show(best));
    });
    root.addEventListener("pointerleave", hide);
    const byKey = (i) => {
      const bounds = root.getBoundingClientRect();
      tell(bounds.left + (points[i][0] / width) * bounds.width, bounds.top + points[i][1], show(i));
    };
    steppable(root, points.length, byKey, hide);
    return root;
  };
}

// A button that saves a chart as SVG, with the style of the page inside.
function svgButton(what, container) {
  const save = () => saveText(`${fileName(what)}.svg`, asSvg(container.querySelector("svg")), "image/svg+xml");
  return el("button", { type: "button", class: "csv", "aria-label": `Save as SVG: ${what}`, title: `Save as SVG: ${what}`, onclick: save }, "SVG");
}

const STYLES = ["fill", "stroke", "stroke-width", "stroke-dasharray", "stroke-linecap", "stroke-linejoin", "opacity", "font-family", "font-size", "font-weight"];
function asSvg(svg) {
  const copy = svg.cloneNode(true);
  const { width, height } = svg.getBoundingClientRect();
  for (const [name, value] of [["xmlns", "http://www.w3.org/2000/svg"], ["width", width], ["height", height]]) copy.setAttribute(name, value);
  const [shown, kept] = [svg, copy].map((root) => [...root.querySelectorAll("*")]);
  shown.forEach((element, i) => {
    const style = getComputedStyle(element);
    const isSeen = style.visibility !== "hidden" && style.display !== "none" && !element.classList.contains("nothing");
    if (!isSeen) return kept[i].remove();
    for (const name of STYLES) kept[i].style.setProperty(name, style.getPropertyValue(name));
    kept[i].removeAttribute("class");
  });
  return new XMLSerializer().serializeToString(copy);
}
