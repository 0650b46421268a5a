// Lines: charts with axes, and profiles of vectors.

const polyline = (points) => points.map(([x, y], i) => `${i ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");

// Round numbers that cut a range into about `count` parts.
function ticks(low, high, count) {
  const raw = (high - low) / count || 1;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].map((k) => k * power).find((s) => s >= raw * 0.999);
  const found = [];
  for (let x = Math.ceil(low / step - 1e-9) * step; x <= high + step * 1e-9; x += step) found.push(Math.abs(x) < step * 1e-9 ? 0 : x);
  return found;
}

function logTicks(low, high) {
  const found = [];
  for (let p = Math.floor(Math.log10(low)); p <= Math.ceil(Math.log10(high)); p++) {
    for (const k of high / low < 30 ? [1, 2, 5] : [1]) found.push(k * 10 ** p);
  }
  const inside = found.filter((y) => y >= low * 0.999 && y <= high * 1.001);
  return inside.length >= 2 ? inside : ticks(low, high, 3).filter((y) => y > 0);
}

// Series [{points, className, dots, beside}] with axes; pointing shows `hover(x)`, clicking is `pick(x)`.
// What is only `beside` the others is cut off where they end. A third number of a point is its spread. `mark` is an x
// to point out, `range` what the y axis shows at least.
function lineChart({ series, xName, yName, log = false, label, hover, pick, wholeX = false, mark = null, range = null }) {
  return (width) => {
    const height = Math.round(Math.min(320, Math.max(220, width * 0.56)));
    const box = { left: 58, right: 14, top: 22, bottom: 38 };
    const all = series.filter((s) => !s.beside).flatMap((s) => s.points).filter(([, y]) => Number.isFinite(y) && (!log || y > 0));
    let [x0, x1] = extent(all.map(([x]) => x));
    let [y0, y1] = extent(all.flatMap(([, y, s]) => (s && y > s ? [y - s, y + s] : [y])));
    if (x0 === x1) [x0, x1] = [x0 - 1, x1 + 1];
    if (range) [y0, y1] = [Math.min(range[0], y0), Math.max(range[1], y1)];
    else if (log) [y0, y1] = y0 === y1 ? [y0 / 1.5, y1 * 1.5] : [y0 / (y1 / y0) ** 0.04, y1 * (y1 / y0) ** 0.04];
    else [y0, y1] = y0 < 0.5 * y1 ? [0, y1 * 1.05] : [y0 - 0.1 * (y1 - y0 || y1), y1 + 0.1 * (y1 - y0 || y1)];
    const digits = Math.min(7, 3 + Math.max(0, Math.floor(-Math.log10((y1 - y0) / (y1 || 1)))));
    const level = (y) => (log ? (Math.log(y) - Math.log(y0)) / (Math.log(y1) - Math.log(y0)) : (y - y0) / (y1 - y0));
    const px = (x) => box.left + ((x - x0) / (x1 - x0)) * (width - box.left - box.right);
    const py = (y) => height - box.bottom - level(y) * (height - box.top - box.bottom);
    const root = el("svg", { viewBox: `0 0 ${width} ${height}`, height, role: "img", "aria-label": label, class: pick ? "pickable" : null });
    for (const y of log ? logTicks(y0, y1) : ticks(y0, y1, 4)) {
      root.append(
        el("line", { class: "grid", x1: box.left, x2: width - box.right, y1: py(y), y2: py(y) }),
        el("text", { x: box.left - 8, y: py(y) + 4, "text-anchor": "end" }, number(y, digits)),
      );
    }
    for (const x of ticks(x0, x1, Math.max(3, Math.min(8, Math.floor(width / 75))))) {
      if (wholeX && !Number.isInteger(x)) continue;
      root.append(el("text", { x: px(x), y: height - box.bottom + 18, "text-anchor": "middle" }, number(x, 3)));
    }
    root.append(
      el("text", { x: box.left, y: 10 }, yName),
      el("text", { x: width - box.right, y: height - 3, "text-anchor": "end" }, xName),
    );
    const inside = el("svg", { class: "clip", x: box.left - 6, y: box.top - 6, width: width - box.left - box.right + 12, height: height - box.top - box.bottom + 12 });
    inside.setAttribute("viewBox", `${box.left - 6} ${box.top - 6} ${width - box.left - box.right + 12} ${height - box.top - box.bottom + 12}`);
    root.append(inside);
    if (mark !== null && mark >= x0 && mark <= x1) inside.append(markAt(px(mark), box.top, height - box.bottom));
    for (const { points, className, dots } of series) {
      const drawn = points.filter(([, y]) => Number.isFinite(y) && (!log || y > 0)).map(([x, y]) => [px(x), py(y)]);
      inside.append(el("path", { class: `curve ${className || ""}`, d: polyline(drawn) }));
      for (const [x, y, s] of points) if (s && (!log || y > s)) inside.append(el("line", { class: `spread ${className || ""}`, x1: px(x), x2: px(x), y1: py(y - s), y2: py(y + s) }));
      if (dots) points.forEach(([x, y], i) => inside.append(el("circle", { class: i === dots.here ? "dot here" : "dot", cx: px(x), cy: py(y), r: i === dots.here ? 5 : 3.5 })));
    }
    const cross = el("line", { class: "cross", y1: box.top, y2: height - box.bottom, visibility: "hidden" });
    root.append(cross);
    const xAt = (event) => {
      const bounds = root.getBoundingClientRect();
      const x = x0 + ((((event.clientX - bounds.left) / bounds.width) * width - box.left) / (width - box.left - box.right)) * (x1 - x0);
      return Math.min(x1, Math.max(x0, x));
    };
    root.addEventListener("pointermove", (event) => {
      const found = hover(xAt(event));
      if (!found) return;
      cross.setAttribute("x1", px(found.x));
      cross.setAttribute("x2", px(found.x));
      cross.setAttribute("visibility", "visible");
      showTip(event, found.text);
    });
    root.addEventListener("pointerleave", () => {
      cross.setAttribute("visibility", "hidden");
      hideTip();
    });
    if (pick) root.addEventListener("click", (event) => pick(xAt(event)));
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

// A vector over a line, filled to its foot; `axes` adds the ends of the axis below.
function profile(axis, packed, { height = 64, axes = false, label, thin = false, unit = "" }) {
  const values = decode(packed);
  const places = axis.unit === "Hz" ? axis.positions.map(pitch) : axis.positions || axis.first;
  const [p0, p1] = extent(places);
  return (width) => {
    const foot = axes ? 18 : 0;
    const [low, high] = [Math.min(0, packed.low), packed.high > Math.min(0, packed.low) ? packed.high : 1];
    const px = (i) => (p1 > p0 ? ((places[i] - p0) / (p1 - p0)) * width : width / 2);
    const py = (y) => 3 + (1 - ((Number.isNaN(y) ? low : y) - low) / (high - low)) * (height - 6);
    const points = Array.from(values, (y, i) => [px(i), py(y)]);
    const ground = py(Math.max(low, 0));
    const root = el("svg", { viewBox: `0 0 ${width} ${height + foot}`, height: height + foot, role: "img", "aria-label": label });
    root.append(
      el("path", { class: "area", d: `${polyline(points)}L${points.at(-1)[0].toFixed(1)} ${ground}L${points[0][0].toFixed(1)} ${ground}Z` }),
      el("path", { class: thin ? "curve thin" : "curve", d: polyline(points) }),
    );
    if (axes) {
      const names = axis.positions ? [number(axis.positions[0], 3), `${number(axis.positions.at(-1), 3)} ${axis.unit}`] : [`${axis.noun} 1`, integer(axis.size)];
      root.append(
        el("line", { class: "grid", x1: 0, x2: width, y1: height, y2: height }),
        el("text", { x: 0, y: height + 14 }, names[0]),
        el("text", { x: width, y: height + 14, "text-anchor": "end" }, names[1]),
      );
      const dot = el("circle", { class: "dot", r: 4, visibility: "hidden" });
      root.append(dot);
      root.addEventListener("pointermove", (event) => {
        const bounds = root.getBoundingClientRect();
        const x = ((event.clientX - bounds.left) / bounds.width) * width;
        let best = 0;
        points.forEach(([at], i) => { if (Math.abs(at - x) < Math.abs(points[best][0] - x)) best = i; });
        dot.setAttribute("cx", points[best][0]);
        dot.setAttribute("cy", points[best][1]);
        dot.setAttribute("visibility", "visible");
        showTip(event, `${nameOf(axis, best)}: ${number(values[best], 3)}${unit}`);
      });
      root.addEventListener("pointerleave", () => {
        dot.setAttribute("visibility", "hidden");
        hideTip();
      });
    }
    return root;
  };
}

// Names with their values as bars; the list is ordered, greatest first.
function bars(entries, count, format = (x) => number(x, 3)) {
  const most = entries.length ? entries[0][1] : 1;
  const items = entries.slice(0, count).map(([name, value]) =>
    el("li", { style: `--w:${((100 * value) / most).toFixed(1)}%`, title: `${name}: ${number(value)}` }, el("span", {}, name), el("em", {}, format(value))),
  );
  return el("ol", { class: "bars" }, ...items);
}
