// Colours of the style sheet, as words and as pixels.

import { FADED, KINDS } from "./tracks.js";

// Of users or projects, for bars with white labels; who comes behind the last begins anew.
export const HUES = [
  "#2f6db5", "#b85c0e", "#3a7d44", "#8a4fa3", "#a8324a", "#1f7a7a", "#7a5a3a", "#5a63b8", "#8a7414", "#b0487f",
];

const NAMES = ["page", "panel", "lane", "future", "line", "text", "quiet", "now", "tie", "link", "pick", ...KINDS];

// What is in force: the page's choice and the system's.
export function theme() {
  return document.documentElement.dataset.theme + matchMedia("(prefers-color-scheme: dark)").matches;
}

// colours: by name, #rrggbb; words: the same as pixels; palette: pixels by kind of bar, faded ones behind;
// hued: the same for each hue in turn, where what runs, is planned or is complete has its hue.
export function readColours() {
  const style = getComputedStyle(document.documentElement);
  const colours = {}, words = {};
  for (const name of NAMES) {
    colours[name] = style.getPropertyValue(`--${name}`).trim();
    words[name] = packed(colours[name]);
  }
  const paletteOf = (colourOf) => {
    const palette = new Uint32Array(2 * FADED);
    KINDS.forEach((kind, i) => {
      palette[i] = packed(colourOf(kind));
      palette[i + FADED] = packed(blended(colourOf(kind), colours.lane, 0.75));
    });
    return palette;
  };
  const palette = paletteOf((kind) => colours[kind]);
  const hued = new Uint32Array(HUES.length * 2 * FADED);
  HUES.forEach((hue, i) => hued.set(paletteOf((kind) => ({
    running: hue, completed: blended(hue, colours.lane, 0.25), planned: blended(hue, colours.future, 0.65),
  })[kind] ?? colours[kind]), i * 2 * FADED));
  return { colours, words, palette, hued };
}

function channels(colour) {
  const n = parseInt(colour.slice(1), 16);
  return [n >> 16 & 255, n >> 8 & 255, n & 255];
}

function blended(colour, other, share) {
  const a = channels(colour), b = channels(other);
  return `#${a.map((v, i) => Math.round(v * (1 - share) + b[i] * share).toString(16).padStart(2, "0")).join("")}`;
}

// #rrggbb as the pixel that little-endian memory holds.
function packed(colour) {
  const [r, g, b] = channels(colour);
  return (255 << 24 | b << 16 | g << 8 | r) >>> 0;
}
