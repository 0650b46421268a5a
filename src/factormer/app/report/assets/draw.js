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

// Values, row by row, on a canvas of `shape`; `range` is what the ends of the ramp stand for.
function paint(canvas, values, [height, width], palette, range) {
  canvas.width = width;
  canvas.height = height;
  canvas.style.imageRendering = Math.min(height, width) < 40 ? "pixelated" : "";
  const context = canvas.getContext("2d");
  const image = context.createImageData(width, height);
  const table = colours(palette);
  const [low, high] = range || extent(values);
  const span = high - low || 1;
  for (let i = 0; i < width * height; i++) {
    const known = !Number.isNaN(values[i]);
    const level = known ? Math.min(255, Math.max(0, Math.round((255 * (values[i] - low)) / span))) : 0;
    for (let c = 0; c < 3; c++) image.data[4 * i + c] = table[3 * level + c];
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

// A picture of a vector over an axis that is an image.
function picture(axis, packed, { palette, label, hover = true, className, unit = "" }) {
  const values = decode(packed);
  const canvas = el("canvas", { role: "img", "aria-label": label, class: className });
  paint(canvas, values, axis.shown, palette, [Math.min(0, packed.low), packed.high]);
  if (hover) {
    canvas.addEventListener("pointermove", (event) => {
      const at = pixelAt(canvas, event);
      const i = at && at[0] * canvas.width + at[1];
      showTip(event, at && `${nameOf(axis, i)}: ${number(values[i], 3)}${unit}`);
    });
    canvas.addEventListener("pointerleave", hideTip);
  }
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
  for (let t = 0; t < W.length; t++) for (let f = 0; f < H.length; f++) values[t * H.length + f] = Math.sqrt(Math.max(0, W[t] * H[f]));
  const [turned, shape] = upright(values, [W.length, H.length]);
  const canvas = paint(el("canvas", { role: "img", "aria-label": label, class: "whole wide" }), turned, shape, "ramp");
  canvas.addEventListener("pointermove", (event) => {
    const at = pixelAt(canvas, event);
    const f = at && frequencyAt(at[0], shape[0]);
    showTip(event, at && `${nameOf(run.rows, at[1])}, ${nameOf(run.columns, f)}: ${number(W[at[1]] * H[f], 3)}`);
  });
  canvas.addEventListener("pointerleave", hideTip);
  return canvas;
}

// What the colours of a map stand for.
function colourScale(low, high, palette) {
  const canvas = el("canvas", { "aria-hidden": "true" });
  paint(canvas, Float32Array.from({ length: 128 }, (_, i) => i), [1, 128], palette);
  canvas.style.imageRendering = "";
  return el("div", { class: "scale" }, number(low, 3), canvas, number(high, 3));
}
