// Images and maps on canvases, in the colours of the theme.

let forcedTheme = null; // "light" while printing
function isDark() {
  if (forcedTheme) return forcedTheme === "dark";
  const chosen = document.documentElement.style.colorScheme;
  return chosen ? chosen === "dark" : window.matchMedia("(prefers-color-scheme: dark)").matches;
}

const RAMPS = {
  light: [[252, 252, 250], [203, 231, 228], [112, 186, 181], [24, 120, 118], [7, 52, 62]],
  dark: [[27, 31, 34], [22, 68, 72], [36, 128, 124], [104, 203, 192], [236, 252, 247]],
  grey: [[10, 11, 12], [250, 250, 248]],
};

function colours(palette) {
  const stops = palette === "grey" ? RAMPS.grey : RAMPS[isDark() ? "dark" : "light"];
  const table = new Uint8ClampedArray(256 * 3);
  for (let i = 0; i < 256; i++) {
    const place = (i / 255) * (stops.length - 1);
    const k = Math.min(Math.floor(place), stops.length - 2);
    for (let c = 0; c < 3; c++) table[3 * i + c] = stops[k][c] + (place - k) * (stops[k + 1][c] - stops[k][c]);
  }
  return table;
}

// What the colours of a map stand for: from a value to its place on the ramp, 0 to 1, and back.
const linear = (low, high) => ({ low, high, level: (x) => (x - low) / (high - low || 1), value: (l) => low + l * (high - low) });
const byRoot = (low, high) => ({ low: 0, high, level: (x) => Math.sqrt(Math.max(0, x) / (high || 1)), value: (l) => l * l * high });
// Of skewed values: about proportional near 0, and by ratios above `foot`.
function logarithmic(high, foot) {
  const top = Math.log1p(high / foot);
  return { low: 0, high, level: (x) => Math.log1p(Math.max(0, x) / foot) / top, value: (l) => foot * Math.expm1(l * top) };
}

// Values, row by row, on a canvas of `shape`.
function paint(canvas, values, [height, width], palette, scale) {
  canvas.width = width;
  canvas.height = height;
  canvas.style.imageRendering = Math.min(height, width) < 40 ? "pixelated" : "";
  const context = canvas.getContext("2d");
  const image = context.createImageData(width, height);
  const table = colours(palette);
  const { level } = scale || linear(...extent(values));
  for (let i = 0; i < width * height; i++) {
    const known = !Number.isNaN(values[i]);
    const place = known ? within(Math.round(255 * level(values[i])), 0, 255) : 0;
    for (let c = 0; c < 3; c++) image.data[4 * i + c] = table[3 * place + c];
    image.data[4 * i + 3] = known ? 255 : 0;
  }
  context.putImageData(image, 0, 0);
  return canvas;
}

function extent(values) {
  let low = Infinity;
  let high = -Infinity;
  for (const value of values) {
    if (value < low) low = value;
    if (value > high) high = value;
  }
  return low > high ? [0, 1] : [low, high];
}

// Which pixel of a canvas is under the pointer; the picture may be fitted inside its box.
function pixelAt(canvas, event) {
  const box = canvas.getBoundingClientRect();
  const fitted = getComputedStyle(canvas).objectFit === "contain";
  const scale = fitted ? Math.min(box.width / canvas.width, box.height / canvas.height) : 0;
  const [w, h] = fitted ? [canvas.width * scale, canvas.height * scale] : [box.width, box.height];
  const x = Math.floor(((event.clientX - box.left - (box.width - w) / 2) / w) * canvas.width);
  const y = Math.floor(((event.clientY - box.top - (box.height - h) / 2) / h) * canvas.height);
  return x >= 0 && y >= 0 && x < canvas.width && y < canvas.height ? [y, x] : null;
}

// `text([y, x])` for the pixel under the pointer, or for the one to which arrow keys have moved.
function pointable(canvas, text) {
  let at = [0, 0];
  canvas.tabIndex = 0;
  canvas.onpointermove = (event) => {
    const place = pixelAt(canvas, event);
    showTip(event, place && text(place));
  };
  canvas.onpointerleave = hideTip;
  canvas.onblur = hideTip;
  canvas.onkeydown = (event) => {
    const arrow = ARROWS[event.key];
    if (!arrow) return;
    event.preventDefault();
    const far = event.shiftKey ? 10 : 1;
    at = [within(at[0] + far * arrow[0], 0, canvas.height - 1), within(at[1] + far * arrow[1], 0, canvas.width - 1)];
    const box = canvas.getBoundingClientRect();
    tell(box.left + ((at[1] + 0.5) / canvas.width) * box.width, box.top + ((at[0] + 0.5) / canvas.height) * box.height, text(at));
  };
  return canvas;
}

// A picture of a vector over an axis that is an image; its values are multiplied by `times`, and colours end at `high`.
function picture(axis, packed, { palette, label, hover = true, className, unit = "", times = 1, high = packed.high }) {
  const values = decode(packed);
  const canvas = el("canvas", { role: "img", "aria-label": label, class: className });
  paint(canvas, values, axis.shown, palette, linear(Math.min(0, packed.low), high));
  if (hover) pointable(canvas, ([y, x]) => `${nameOf(axis, y * canvas.width + x)}: ${number(times * values[y * canvas.width + x], 3)}${unit}`);
  return canvas;
}

const isSound = run.columns.unit === "Hz";

// Frequencies as the ear has them: steps of pitch, evenly, above some hundred hertz.
const pitch = (f) => Math.log1p(f / 300);
const frequency = (p) => 300 * Math.expm1(p);

// Which of `count` frequencies is at a line of a spectrogram of as many lines, low notes below.
function frequencyAt(line, count) {
  const highest = run.columns.positions.at(-1);
  const f = frequency((1 - (line + 0.5) / count) * pitch(highest));
  return Math.min(count - 1, Math.floor((f / highest) * count));
}

// A matrix of frames × frequencies as spectrograms are drawn: time to the right, pitch up.
function upright(values, [height, width]) {
  const turned = new Float32Array(values.length);
  for (let line = 0; line < width; line++) {
    const f = frequencyAt(line, width);
    for (let t = 0; t < height; t++) turned[line * height + t] = values[t * width + f];
  }
  return [turned, [width, height]];
}

// The spectrogram that one component stands for: its spectrum at each moment.
function spectrogram(component, label) {
  const [W, H] = [decode(component.W), decode(component.H)];
  const values = new Float32Array(W.length * H.length);
  for (let t = 0; t < W.length; t++) for (let f = 0; f < H.length; f++) values[t * H.length + f] = W[t] * H[f];
  const [turned, shape] = upright(values, [W.length, H.length]);
  const scale = byRoot(0, extent(values)[1]);
  const canvas = paint(el("canvas", { role: "img", "aria-label": label, class: "whole wide" }), turned, shape, "ramp", scale);
  pointable(canvas, ([line, t]) => {
    const f = frequencyAt(line, shape[0]);
    return `${nameOf(run.rows, t)}, ${nameOf(run.columns, f)}: ${number(W[t] * H[f], 3)}`;
  });
  const ends = `${nameOf(run.rows, 0)} to ${nameOf(run.rows, W.length - 1)} across, 0 to ${nameOf(run.columns, H.length - 1)} up, by pitch`;
  return el("div", {}, canvas, el("p", { class: "hint" }, ends), colourScale(scale, "ramp"));
}

// What the colours of a map stand for, with the value in the middle.
function colourScale({ low, high, value }, palette, { unit = "", times = 1, digits = 3 } = {}) {
  const canvas = el("canvas", { "aria-hidden": "true" });
  paint(canvas, Float32Array.from({ length: 128 }, (_, i) => i), [1, 128], palette);
  canvas.style.imageRendering = "";
  const ends = [low, value(0.5), high].map((x) => el("span", {}, number(times * x, digits)));
  ends[2].append(unit);
  return el("div", { class: "scale" }, canvas, el("div", {}, ...ends));
}
