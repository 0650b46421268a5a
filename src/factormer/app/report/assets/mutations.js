// Mutation catalogues: 96 bars in their usual order, coloured by the six classes of substitutions.

const MUTATION_CLASSES = [
  ["C>A", "#03a4cc"],
  ["C>G", "currentColor"],
  ["C>T", "#e32926"],
  ["T>A", "#9a9a9a"],
  ["T>C", "#7fae3d"],
  ["T>G", "#e09d99"],
];

// `full` adds names of the classes, a scale, and values under the pointer.
function mutationBars(axis, packed, { height = 64, full = false, label, unit = "", times = 1, over = null }) {
  const values = decode(packed);
  const others = over ? decode(over) : [];
  const { order } = axis.mutations;
  const high = Math.max(packed.high, over ? over.high : 0) || 1;
  return (width) => {
    const [top, left] = full ? [18, 40] : [3, 0];
    const step = (width - left) / order.length;
    const root = el("svg", { viewBox: `0 0 ${width} ${top + height + 2}`, height: top + height + 2, role: "img", "aria-label": `${label}, by class of substitution` });
    const group = order.length / MUTATION_CLASSES.length;
    MUTATION_CLASSES.forEach(([name, colour], k) => {
      const x = left + k * group * step;
      root.append(el("rect", { x: x + 1, y: full ? 12 : 0, width: Math.max(group * step - 2, 1), height: full ? 4 : 2, fill: colour }));
      if (full) root.append(el("text", { x: x + (group * step) / 2, y: 9, "text-anchor": "middle" }, name));
    });
    order.forEach((i, place) => {
      const [, colour] = MUTATION_CLASSES[Math.floor(place / group)];
      const size = Number.isNaN(values[i]) ? 0 : Math.max(0, (values[i] / high) * height);
      root.append(el("rect", { class: "mutation", x: (left + place * step + step * 0.12).toFixed(2), y: (top + height - size).toFixed(2), width: (step * 0.76).toFixed(2), height: size.toFixed(2), fill: colour }));
      if (!over) return;
      const y = top + height - Math.max(0, (others[i] / high) * height);
      root.append(el("line", { class: "known", x1: left + place * step, x2: left + (place + 1) * step, y1: y, y2: y }));
    });
    root.append(el("line", { class: "grid", x1: left, x2: width, y1: top + height, y2: top + height }));
    if (!full) return root;
    root.append(
      el("text", { x: left - 4, y: top + 8, "text-anchor": "end" }, number(high * times, 2)),
      el("text", { x: left - 4, y: top + height, "text-anchor": "end" }, "0"),
    );
    const say = (place) => `${nameOf(axis, order[place])}: ${number(values[order[place]] * times, 3)}${unit}`;
    root.addEventListener("pointermove", (event) => {
      const bounds = root.getBoundingClientRect();
      const place = Math.floor((((event.clientX - bounds.left) / bounds.width) * width - left) / step);
      if (place >= 0 && place < order.length) showTip(event, say(place));
      else hideTip();
    });
    root.addEventListener("pointerleave", hideTip);
    const byKey = (place) => {
      const bounds = root.getBoundingClientRect();
      tell(bounds.left + ((left + (place + 0.5) * step) / width) * bounds.width, bounds.top + top, say(place));
    };
    steppable(root, order.length, byKey, hideTip);
    return root;
  };
}
