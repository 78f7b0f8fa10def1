// Bars of the Gantt chart, painted into a buffer of pixels, track by track.

import { AXIS } from "./input.js";
import { FADED } from "./tracks.js";

const LABELLED = 40; // a bar of so many pixels gets its name
const MOST_LABELS = 400;

export function paint(chart) {
  const ratio = chart.ratio, left = Math.round(chart.left * ratio), top = Math.round(AXIS * ratio);
  const wide = chart.canvas.width - left, tall = chart.canvas.height - top;
  if (wide < 2 || tall < 2) return;
  if (!chart.buffer || chart.buffer.width !== wide || chart.buffer.height !== tall) {
    chart.buffer = chart.context.createImageData(wide, tall);
    chart.pixels = new Uint32Array(chart.buffer.data.buffer);
  }
  const pixels = chart.pixels, scale = wide / chart.span;
  pixels.fill(chart.words.page);
  const now = Math.max(0, Math.min(wide, Math.round((chart.now() - chart.view[0]) * scale)));
  let run = null;
  for (const row of chart.rows) {
    if (row.kind !== "lane") { run = null; continue; }
    const y = Math.round((row.y - chart.scroll) * ratio), end = Math.round((row.y + row.height - chart.scroll) * ratio) - 1;
    if (end <= 0 || y >= tall) continue;
    run = paintLane(chart, row.lane, y, end, wide, tall, scale, now, run);
  }
  chart.context.putImageData(chart.buffer, left, top);
}

// Paint the tracks of one node; `run` has the labels of the lane above, which a job may go on from.
function paintLane(chart, lane, y, end, wide, tall, scale, now, run) {
  const fromAbove = run ?? new Map(), labels = new Map();
  const past = chart.past.lanes[lane], live = chart.live.lanes[lane];
  const width = past.tracks.length, pixels = chart.pixels;
  for (let t = 0; t < width; t++) {
    const y0 = Math.max(0, y + Math.floor((end - y) * t / width));
    const y1 = Math.min(tall, y + Math.floor((end - y) * (t + 1) / width));
    if (y1 <= y0) continue;
    const base = y0 * wide;
    pixels.fill(chart.words.lane, base, base + now);
    pixels.fill(chart.words.future, base + now, base + wide);
    for (const [tracks, source] of [[past, chart.past], [live, chart.live]]) {
      paintTrack(chart, tracks.tracks[t], source, base, wide, scale, y0, y1, labels, fromAbove);
    }
    for (let r = y0 + 1; r < y1; r++) pixels.copyWithin(r * wide, base, base + wide);
  }
  return labels;
}

function paintTrack(chart, track, source, base, wide, scale, y, end, labels, fromAbove) {
  const pixels = chart.pixels, [begin, until] = chart.view, { starts, ends, bars, n } = track;
  const { kinds, hues } = source, palette = chart.tinted ? chart.hued : chart.palette;
  for (let i = track.first(begin); i < n && starts[i] < until;) {
    const x0 = starts[i] > begin ? Math.min(wide - 1, ((starts[i] - begin) * scale) | 0) : 0;
    const x1 = ends[i] < until ? ((ends[i] - begin) * scale) | 0 : wide;
    const kind = kinds[bars[i]] + (chart.tinted ? hues[bars[i]] * 2 * FADED : 0);
    i += 1;
    if (x1 - x0 > 1) {
      paintBar(chart, source.bars[bars[i - 1]], palette[kind], base, x0, x1, y, end, labels, fromAbove);
    } else {
      pixels[base + x0] = palette[kind];
      // Those that end in the same pixel would not be seen.
      for (const edge = begin + (x0 + 1) / scale; i < n && ends[i] <= edge;) i += 1;
    }
  }
}

function paintBar(chart, bar, colour, base, x0, x1, y, end, labels, fromAbove) {
  const pixels = chart.pixels, wide = x1 - x0;
  pixels.fill(colour, base + x0, base + (wide > 4 ? x1 - 1 : x1));
  if (bar.clusters > 1 && wide > 24) pixels.fill(chart.words.tie, base + x0, base + x0 + 3);
  if (wide <= LABELLED * chart.ratio || !bar.isMatch) return;
  let label = labels.get(bar);
  if (label && label.first === y) label.first = end; // the slot below, of the same node
  label ??= fromAbove.get(bar);
  if (!label && chart.labels.length < MOST_LABELS) {
    label = { bar, x0, x1, y, first: end };
    chart.labels.push(label);
  }
  if (!label) return;
  labels.set(bar, label);
  label.end = end;
}
