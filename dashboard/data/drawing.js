// What lies over the bars of the Gantt chart: axis, labels, ties, link use, names, the clock.

import { AXIS } from "./input.js";
import { ticks } from "./ticks.js";

const MOST_TIES = 15; // with more of them in view, only those of the job that is pointed at or selected
const MONO = "11px ui-monospace, SFMono-Regular, Menlo, 'DejaVu Sans Mono', monospace";

export function drawGrid(chart) {
  const context = chart.context;
  context.font = MONO;
  context.textBaseline = "middle";
  context.textAlign = "left";
  context.lineWidth = 1;
  context.strokeStyle = chart.colours.line;
  const now = chart.x(chart.now());
  for (const [at, label] of ticks(chart.view[0], chart.view[1], Math.max(2, (chart.width - chart.left) / 90))) {
    const x = Math.round(chart.x(at)) + 0.5;
    if (x < chart.left) continue;
    context.globalAlpha = 0.55;
    context.beginPath();
    context.moveTo(x, AXIS - 6);
    context.lineTo(x, chart.height);
    context.stroke();
    context.globalAlpha = 1;
    context.fillStyle = chart.colours.quiet;
    const isRoom = x + 6 * label.length < chart.width && (now > x + 20 + 7 * label.length || now < x - 12);
    if (isRoom) context.fillText(label, x + 4, AXIS / 2 - 1);
  }
}

export function drawLabels(chart) {
  const context = chart.context, ratio = chart.ratio;
  context.textAlign = "left";
  for (const { bar, x0, x1, y, first, end } of chart.labels) {
    // In the first lane where there is room, or else over all.
    const bottom = first - y >= 12 * ratio ? first : end;
    const height = (bottom - y) / ratio, width = (x1 - x0) / ratio;
    if (height < 12.5) continue;
    context.fillStyle = bar.state === "planned" || bar.state === "local" ? chart.colours.text : "#fff";
    const room = Math.floor((width - 12) / 6.7), text = bar.name ? `${bar.id} ${bar.name}` : bar.id;
    const shown = text.length <= room ? text : room > 3 ? `${text.slice(0, room - 1)}…` : "";
    context.fillText(shown, chart.left + x0 / ratio + 7, AXIS + (y + bottom) / 2 / ratio + 0.5);
  }
}

// Lines that tie the parts of a job on several clusters, with a dot at each.
export function drawTies(chart) {
  const context = chart.context, pixel = chart.span / (chart.width - chart.left), seen = [];
  for (const tracks of [chart.live, chart.past]) {
    for (const bar of tracks.tied) {
      if (bar.start > chart.view[1]) break;
      if (bar.end >= chart.view[0] && (bar.end - bar.start) / pixel >= 5 && bar.isMatch) seen.push(bar);
    }
  }
  context.strokeStyle = context.fillStyle = chart.colours.tie;
  for (const bar of seen.length <= MOST_TIES ? seen : seen.filter((one) => one === chart.hovered)) tie(chart, bar, 1.5);
}

function tie(chart, bar, width) {
  const context = chart.context, x = Math.max(chart.left + 2, chart.x(bar.start) + 1.5);
  const middles = new Map();
  for (let k = 0; k < bar.lanes.length; k += 2) {
    const lane = bar.lanes[k], y = chart.top.get(lane);
    if (y === undefined) continue;
    const cluster = chart.lanes[lane][0], known = middles.get(cluster) ?? [Infinity, -Infinity];
    middles.set(cluster, [Math.min(known[0], y), Math.max(known[1], y + chart.lane)]);
  }
  const ends = [...middles.values()].sort((a, b) => a[0] - b[0]);
  context.save();
  context.beginPath();
  context.rect(chart.left, AXIS, chart.width, chart.height);
  context.clip();
  context.lineWidth = width;
  context.setLineDash(bar.state === "planned" ? [4, 3] : []);
  for (let i = 1; i < ends.length; i++) {
    context.beginPath();
    context.moveTo(x, ends[i - 1][1] - 3);
    context.lineTo(x, ends[i][0] + 3);
    context.stroke();
    for (const y of [ends[i - 1][1] - 3, ends[i][0] + 3]) {
      context.beginPath();
      context.arc(x, y, width + 1.5, 0, 7);
      context.fill();
    }
  }
  context.restore();
}

export function drawLinks(chart) {
  const context = chart.context, plot = chart.width - chart.left;
  for (const row of chart.rows) {
    if (row.kind !== "link") continue;
    const top = AXIS + row.y - chart.scroll + 5, height = row.height - 8;
    if (top > chart.height || top + height < AXIS) continue;
    const index = chart.clusters.findIndex(([name]) => name === row.cluster);
    const capacity = chart.clusters[index]?.[1] ?? null, steps = chart.steps[index];
    const most = capacity ?? (steps ? Math.max(1e-9, ...peaks(steps.loads)) : 1);
    context.strokeStyle = chart.colours.line;
    context.lineWidth = 1;
    context.strokeRect(chart.left + 0.5, top + 0.5, plot - 1, height);
    if (steps?.times.length) fillLoad(chart, steps, most, top, height, plot);
    context.fillStyle = chart.colours.quiet;
    context.textAlign = "right";
    context.fillText(plot < 400 ? "link" : capacity === null ? "link, no limit" : `link ${capacity} Gb/s`, chart.left - 8, top + height / 2);
  }
}

function fillLoad(chart, { times, loads }, most, top, height, plot) {
  const context = chart.context, begin = chart.view[0], scale = chart.span / plot;
  let i = upper(times, begin);
  context.fillStyle = chart.colours.link;
  let load = i ? loads[i - 1] : 0;
  for (let x = 0; x < plot; x++) {
    let peak = load;
    const until = begin + (x + 1) * scale;
    while (i < times.length && times[i] < until) {
      load = loads[i];
      if (load > peak) peak = load;
      i += 1;
    }
    const share = Math.min(1, peak / most) * (height - 1);
    if (share > 0.2) context.fillRect(chart.left + x, top + height - share, 1, share);
  }
}

export function drawNames(chart) {
  const context = chart.context, most = Math.floor((chart.left - 14) / 6.7);
  context.textAlign = "right";
  context.fillStyle = chart.colours.page;
  context.save();
  context.beginPath();
  context.rect(0, AXIS, chart.width, chart.height);
  context.clip();
  for (const row of chart.rows) {
    const y = AXIS + row.y - chart.scroll;
    if (y + row.height < AXIS || y > chart.height) continue;
    if (row.kind === "head") {
      context.textAlign = "left";
      context.fillStyle = chart.colours.text;
      context.font = "600 12px system-ui, sans-serif";
      context.fillText(row.cluster, 8, y + row.height / 2);
      context.font = MONO;
    } else if (row.kind === "lane" && row.height >= 11) {
      context.textAlign = "right";
      context.fillStyle = chart.colours.quiet;
      const name = chart.lanes[row.lane][1];
      context.fillText(name.length > most ? `…${name.slice(1 - most)}` : name, chart.left - 8, y + row.height / 2);
    }
  }
  context.restore();
}

export function drawNow(chart) {
  const x = chart.x(chart.now()), context = chart.context;
  if (x < chart.left || x > chart.width) return;
  context.strokeStyle = context.fillStyle = chart.colours.now;
  context.lineWidth = 1.5;
  context.beginPath();
  context.moveTo(x, AXIS - 8);
  context.lineTo(x, chart.height);
  context.stroke();
  context.fillRect(x - 15, 2, 30, 15);
  context.fillStyle = chart.colours.page;
  context.textAlign = "center";
  context.fillText("now", x, 10);
}

export function drawSelected(chart) {
  const bar = chart.selected;
  if (!bar) return;
  const context = chart.context, x0 = Math.max(chart.left, chart.x(bar.start)), x1 = Math.max(x0 + 2, chart.x(bar.end));
  if (x0 > chart.width || x1 < chart.left) return;
  context.save();
  context.beginPath();
  context.rect(chart.left, AXIS, chart.width, chart.height);
  context.clip();
  context.strokeStyle = chart.colours.pick;
  context.lineWidth = 2;
  for (const [from, to] of blocks(chart, bar)) context.strokeRect(x0, from, x1 - x0, to - from - 1);
  if (bar.clusters > 1) {
    context.strokeStyle = context.fillStyle = chart.colours.tie;
    tie(chart, bar, 3);
  }
  context.restore();
}

// Where a job's nodes lie together.
function blocks(chart, bar) {
  const tops = [];
  for (let k = 0; k < bar.lanes.length; k += 2) {
    const y = chart.top.get(bar.lanes[k]);
    if (y !== undefined) tops.push(y);
  }
  const out = [];
  for (const y of tops.sort((a, b) => a - b)) {
    const last = out.at(-1);
    if (last && y <= last[1] + 0.5) last[1] = y + chart.lane; else out.push([y, y + chart.lane]);
  }
  return out;
}

function upper(times, at) {
  let low = 0, high = times.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (times[middle] <= at) low = middle + 1; else high = middle;
  }
  return low;
}

function peaks(loads) {
  let most = 0;
  for (const load of loads) if (load > most) most = load;
  return [most];
}
