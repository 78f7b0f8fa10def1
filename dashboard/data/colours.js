// Colours of the style sheet, as words and as pixels.

import { FADED, KINDS } from "./tracks.js";

const NAMES = ["page", "panel", "lane", "future", "line", "text", "quiet", "now", "tie", "link", "pick", ...KINDS];

// What is in force: the page's choice and the system's.
export function theme() {
  return document.documentElement.dataset.theme + matchMedia("(prefers-color-scheme: dark)").matches;
}

// colours: by name, #rrggbb; words: the same as pixels; palette: pixels by kind of bar, faded ones behind.
export function readColours() {
  const style = getComputedStyle(document.documentElement);
  const colours = {}, words = {};
  for (const name of NAMES) {
    colours[name] = style.getPropertyValue(`--${name}`).trim();
    words[name] = packed(colours[name]);
  }
  const palette = new Uint32Array(2 * FADED);
  KINDS.forEach((kind, i) => {
    palette[i] = words[kind];
    palette[i + FADED] = packed(blended(colours[kind], colours.lane, 0.75));
  });
  return { colours, words, palette };
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
