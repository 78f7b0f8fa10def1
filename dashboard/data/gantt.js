// One Gantt chart over all clusters: past, now and plan, on a canvas.
//
// Bars are painted into a buffer of pixels, track by track; what is narrower than a pixel is skipped
// by binary search, so that a frame costs what is seen and not what is known.

import { clock, el, folded, span } from "./dom.js";
import { AXIS, Input } from "./input.js";
import { ticks } from "./ticks.js";
import { FADED, KINDS, Tracks, loadSteps } from "./tracks.js";

const HEADER = 20, LINK = 30, GAP = 10, MOST_LANE = 24;
const LABELLED = 44; // a bar of so many pixels gets its name
const MOST_LABELS = 400, MOST_TIES = 400;
const MIN_SPAN_S = 10, MAX_SPAN_S = 3 * 366 * 86400;

export class Gantt {
  // zero: from where the axis counts; null: it is the wall clock. hasPages: jobs have pages to go to.
  constructor(now, { zero = null, hasPages = true } = {}) {
    Object.assign(this, { now, zero, hasPages });
    this.when = zero === null ? clock : (time) => `${time < zero ? "−" : "+"}${span(Math.abs(time - zero))}`;
    this.reset();
    this.canvas = el("canvas", {
      id: "gantt", tabindex: "0", role: "application", "aria-roledescription": "Gantt chart",
      "aria-label": "Jobs over time. Arrow keys move, plus and minus zoom, N goes to now, F shows everything, comma and full stop select the job before or behind, Enter opens it.",
    });
    this.tip = el("div", { class: "tip", hidden: true, "aria-hidden": "true" });
    this.picked = el("p", { class: "picked", role: "status" }, "Point at a bar, or select it, to see the job.");
    this.element = el("div", { class: "gantt" }, this.canvas, this.tip);
    this.context = this.canvas.getContext("2d", { alpha: false });
    this.isFollowing = true;
    this.scroll = 0;
    this.selected = null;
    this.input = new Input(this);
    this.resizing = new ResizeObserver(() => this.invalidate());
    this.resizing.observe(this.element);
  }

  reset() {
    this.past = new Tracks();
    this.live = new Tracks(this.past);
    this.lanes = [];
    this.clusters = [];
    this.steps = [];
    this.isLinkStale = true;
    this.isFound = () => true;
  }

  // Data

  setLanes(lanes, clusters) {
    this.past.setLanes(lanes);
    this.live.setLanes(lanes);
    this.clusters = clusters;
    if (lanes.length !== this.lanes.length) {
      this.lanes = lanes;
      const order = new Map(clusters.map(([name], i) => [name, i]));
      const names = new Intl.Collator("en", { numeric: true });
      this.order = lanes.map((_, i) => i).sort((a, b) =>
        (order.get(lanes[a][0]) ?? 1e9) - (order.get(lanes[b][0]) ?? 1e9) || names.compare(lanes[a][1], lanes[b][1]));
    }
    const groups = new Set(lanes.map((lane) => lane[0])).size;
    this.element.style.maxHeight = `${AXIS + lanes.length * MOST_LANE + groups * (HEADER + LINK + GAP)}px`;
    this.invalidate();
  }

  addEnded(rows) {
    const from = this.past.bars.length;
    for (const row of rows) this.past.add(row);
    this.past.match(this.isFound, from);
    this.isLinkStale = true;
    this.invalidate();
  }

  setLive(rows) {
    const fresh = new Tracks(this.past);
    fresh.setLanes(this.lanes);
    // What runs is there; the plan goes around it.
    for (const row of rows) if (row[3] !== "planned") fresh.add(row);
    for (const row of rows) if (row[3] === "planned") fresh.add(row);
    fresh.match(this.isFound);
    this.live = fresh;
    this.isLinkStale = true;
    if (this.view === undefined || (this.isFollowing && !this.hasMoved)) this.home();
    this.invalidate();
  }

  search(text) {
    const sought = text.trim().toLowerCase();
    this.isFound = sought
      ? (bar) => bar.id.startsWith(sought) || bar.name.toLowerCase().includes(sought) || bar.user.toLowerCase() === sought
      : () => true;
    for (const tracks of [this.live, this.past]) tracks.match(this.isFound);
    this.invalidate();
  }

  // View

  get span() { return this.view[1] - this.view[0]; }

  home() {
    const now = this.now();
    let low = now - 1800, high = now + 1800;
    for (const bar of this.live.bars) {
      if (!bar) continue;
      low = Math.min(low, bar.start);
      high = Math.max(high, bar.end);
    }
    const ahead = Math.min(high - now, 2 * 86400), behind = Math.min(Math.max(now - low, ahead / 2), ahead);
    this.view = [now - behind * 1.05, now + ahead * 1.05];
    this.isFollowing = true;
    this.invalidate();
  }

  fit() {
    let low = Infinity, high = -Infinity;
    for (const tracks of [this.past, this.live]) {
      for (const bar of tracks.bars) if (bar) { low = Math.min(low, bar.start); high = Math.max(high, bar.end); }
    }
    if (high > low) this.look(low - 0.02 * (high - low), high + 0.02 * (high - low));
  }

  look(begin, end) {
    const width = Math.min(MAX_SPAN_S, Math.max(MIN_SPAN_S, end - begin)), middle = (begin + end) / 2;
    this.view = [middle - width / 2, middle + width / 2];
    this.isFollowing = false;
    this.hasMoved = true;
    this.invalidate();
  }

  pan(share) { this.look(this.view[0] + share * this.span, this.view[1] + share * this.span); }

  zoom(factor, at = 0.5) {
    const point = this.view[0] + at * this.span;
    this.look(point - at * this.span * factor, point + (1 - at) * this.span * factor);
  }

  show(bar) {
    if (bar.end < this.view[0] || bar.start > this.view[1]) {
      this.look(bar.start - this.span / 2, bar.start + this.span / 2);
    }
    this.select(bar);
  }

  tick() { // once a second
    if (this.view && this.isFollowing) {
      const ahead = this.now() - this.lastNow;
      if (ahead > 0 && ahead < 3600) this.view = [this.view[0] + ahead, this.view[1] + ahead];
    }
    this.lastNow = this.now();
    this.invalidate();
  }

  // Drawing

  invalidate() {
    if (!this.frame) this.frame = requestAnimationFrame(() => { this.frame = 0; this.draw(); });
  }

  measure() {
    const ratio = Math.min(2, window.devicePixelRatio || 1);
    const width = this.element.clientWidth, height = this.element.clientHeight;
    if (!width || !height) return false;
    if (this.width !== width || this.height !== height || this.ratio !== ratio) {
      Object.assign(this, { width, height, ratio });
      this.canvas.width = Math.round(width * ratio);
      this.canvas.height = Math.round(height * ratio);
      this.buffer = null;
    }
    this.left = width < 600 ? 64 : 108;
    const groups = new Set(this.lanes.map((lane) => lane[0])).size;
    const room = height - AXIS - groups * (HEADER + LINK + GAP);
    this.lane = Math.min(MOST_LANE, Math.max(5, Math.floor(room / Math.max(1, this.lanes.length))));
    return true;
  }

  layout() {
    const rows = [];
    let y = 0, cluster = null;
    const close = () => { if (cluster !== null) { rows.push({ kind: "link", cluster, y, height: LINK }); y += LINK + GAP; } };
    for (const lane of this.order ?? []) {
      if (this.lanes[lane][0] !== cluster) {
        close();
        cluster = this.lanes[lane][0];
        rows.push({ kind: "head", cluster, y, height: HEADER });
        y += HEADER;
      }
      rows.push({ kind: "lane", lane, y, height: this.lane });
      y += this.lane;
    }
    close();
    this.content = y;
    this.scroll = Math.max(0, Math.min(this.scroll, y - (this.height - AXIS)));
    this.top = new Map();
    for (const row of rows) if (row.kind === "lane") this.top.set(row.lane, AXIS + row.y - this.scroll);
    this.rows = rows;
  }

  draw() {
    if (!this.measure()) return;
    performance.mark("gantt-begin");
    const context = this.context;
    this.readColours();
    context.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    context.fillStyle = this.colours.page;
    context.fillRect(0, 0, this.width, this.height);
    if (this.view && this.lanes.length) {
      this.layout();
      if (this.isLinkStale) {
        this.steps = loadSteps([this.past, this.live], this.clusters.length);
        this.isLinkStale = false;
      }
      this.labels = [];
      this.paint();
      this.drawGrid();
      this.drawLinks();
      this.drawLabels();
      this.drawTies();
      this.drawNow();
      this.drawNames();
      this.drawSelected();
    }
    performance.measure("gantt-frame", "gantt-begin");
    performance.clearMarks("gantt-begin");
    // For tests and for the console.
    this.canvas.gantt = this;
    this.canvas.drawn = { view: this.view, past: this.past.byId.size, live: this.live.bars.length };
  }

  readColours() {
    const theme = document.documentElement.dataset.theme + matchMedia("(prefers-color-scheme: dark)").matches;
    if (this.colours && this.theme === theme) return;
    this.theme = theme;
    const style = getComputedStyle(document.documentElement);
    const read = (name) => style.getPropertyValue(`--${name}`).trim();
    this.colours = {};
    for (const name of ["page", "panel", "lane", "future", "line", "text", "quiet", "now", "tie", "link", "pick", ...KINDS]) this.colours[name] = read(name);
    this.words = {};
    for (const [name, value] of Object.entries(this.colours)) this.words[name] = packed(value);
    this.palette = new Uint32Array(2 * FADED);
    KINDS.forEach((kind, i) => {
      this.palette[i] = this.words[kind];
      this.palette[i + FADED] = packed(blended(this.colours[kind], this.colours.lane, 0.75));
    });
  }

  x(time) { return this.left + (time - this.view[0]) / this.span * (this.width - this.left); }

  paint() {
    const ratio = this.ratio, left = Math.round(this.left * ratio), top = Math.round(AXIS * ratio);
    const wide = this.canvas.width - left, tall = this.canvas.height - top;
    if (wide < 2 || tall < 2) return;
    if (!this.buffer || this.buffer.width !== wide || this.buffer.height !== tall) {
      this.buffer = this.context.createImageData(wide, tall);
      this.pixels = new Uint32Array(this.buffer.data.buffer);
    }
    const pixels = this.pixels, scale = wide / this.span;
    pixels.fill(this.words.page);
    const now = Math.max(0, Math.min(wide, Math.round((this.now() - this.view[0]) * scale)));
    let run = null;
    for (const row of this.rows) {
      if (row.kind !== "lane") { run = null; continue; }
      const y = Math.round((row.y - this.scroll) * ratio), end = Math.round((row.y + row.height - this.scroll) * ratio) - 1;
      if (end <= 0 || y >= tall) continue;
      run = this.paintLane(row.lane, y, end, wide, tall, scale, now, run);
    }
    this.context.putImageData(this.buffer, left, top);
  }

  // Paint the tracks of one node; `run` has the labels of the lane above, which a job may go on from.
  paintLane(lane, y, end, wide, tall, scale, now, run) {
    const fromAbove = run ?? new Map(), labels = new Map();
    const past = this.past.lanes[lane], live = this.live.lanes[lane];
    const width = past.tracks.length, pixels = this.pixels;
    for (let t = 0; t < width; t++) {
      const y0 = Math.max(0, y + Math.floor((end - y) * t / width));
      const y1 = Math.min(tall, y + Math.floor((end - y) * (t + 1) / width));
      if (y1 <= y0) continue;
      const base = y0 * wide;
      pixels.fill(this.words.lane, base, base + now);
      pixels.fill(this.words.future, base + now, base + wide);
      for (const [tracks, source] of [[past, this.past], [live, this.live]]) {
        this.paintTrack(tracks.tracks[t], source, base, wide, scale, y0, y1, labels, fromAbove);
      }
      for (let r = y0 + 1; r < y1; r++) pixels.copyWithin(r * wide, base, base + wide);
    }
    return labels;
  }

  paintTrack(track, source, base, wide, scale, y, end, labels, fromAbove) {
    const pixels = this.pixels, [begin, until] = this.view, { starts, ends, bars, n } = track;
    const { palette } = this, { kinds } = source;
    for (let i = track.first(begin); i < n && starts[i] < until;) {
      const x0 = starts[i] > begin ? Math.min(wide - 1, ((starts[i] - begin) * scale) | 0) : 0;
      const x1 = ends[i] < until ? ((ends[i] - begin) * scale) | 0 : wide;
      const kind = kinds[bars[i]];
      i += 1;
      if (x1 - x0 > 1) {
        this.paintBar(source.bars[bars[i - 1]], palette[kind], base, x0, x1, y, end, labels, fromAbove);
      } else {
        pixels[base + x0] = palette[kind];
        // Those that end in the same pixel would not be seen.
        for (const edge = begin + (x0 + 1) / scale; i < n && ends[i] <= edge;) i += 1;
      }
    }
  }

  paintBar(bar, colour, base, x0, x1, y, end, labels, fromAbove) {
    const pixels = this.pixels, wide = x1 - x0;
    pixels.fill(colour, base + x0, base + (wide > 4 ? x1 - 1 : x1));
    if (bar.clusters > 1 && wide > 6) pixels.fill(this.words.tie, base + x0, base + x0 + 3);
    if (wide <= LABELLED * this.ratio || !bar.isMatch) return;
    let label = labels.get(bar);
    if (label && label.first === y) label.first = end; // the slot below, of the same node
    label ??= fromAbove.get(bar);
    if (!label && this.labels.length < MOST_LABELS) {
      label = { bar, x0, x1, y, first: end };
      this.labels.push(label);
    }
    if (!label) return;
    labels.set(bar, label);
    label.end = end;
  }

  drawGrid() {
    const context = this.context;
    context.font = "11px ui-monospace, SFMono-Regular, Menlo, 'DejaVu Sans Mono', monospace";
    context.textBaseline = "middle";
    context.textAlign = "left";
    context.lineWidth = 1;
    context.strokeStyle = this.colours.line;
    const now = this.x(this.now());
    for (const [at, label] of ticks(this.view[0], this.view[1], Math.max(2, (this.width - this.left) / 90), this.zero)) {
      const x = Math.round(this.x(at)) + 0.5;
      if (x < this.left) continue;
      context.globalAlpha = 0.55;
      context.beginPath();
      context.moveTo(x, AXIS - 6);
      context.lineTo(x, this.height);
      context.stroke();
      context.globalAlpha = 1;
      context.fillStyle = this.colours.quiet;
      const isRoom = x + 6 * label.length < this.width && (now > x + 20 + 7 * label.length || now < x - 12);
      if (isRoom) context.fillText(label, x + 4, AXIS / 2 - 1);
    }
  }

  drawLabels() {
    const context = this.context, ratio = this.ratio;
    context.textAlign = "left";
    for (const { bar, x0, x1, y, first, end } of this.labels) {
      // In the first lane where there is room, or else over all.
      const bottom = first - y >= 12 * ratio ? first : end;
      const height = (bottom - y) / ratio, width = (x1 - x0) / ratio;
      if (height < 12.5) continue;
      context.fillStyle = bar.state === "planned" || bar.state === "local" ? this.colours.text : "#fff";
      const room = Math.floor((width - 12) / 6.7), text = bar.name ? `${bar.id} ${bar.name}` : bar.id;
      const shown = text.length <= room ? text : room > 3 ? `${text.slice(0, room - 1)}…` : "";
      context.fillText(shown, this.left + x0 / ratio + 7, AXIS + (y + bottom) / 2 / ratio + 0.5);
    }
  }

  // A line that ties the parts of a job on several clusters, with a dot at each.
  drawTies() {
    let left = MOST_TIES;
    const context = this.context, pixel = this.span / (this.width - this.left);
    context.strokeStyle = context.fillStyle = this.colours.tie;
    for (const tracks of [this.live, this.past]) {
      for (const bar of tracks.tied) {
        if (bar.start > this.view[1]) break;
        if (bar.end < this.view[0] || (bar.end - bar.start) / pixel < 5 || !bar.isMatch) continue;
        if ((left -= 1) < 0) return;
        this.tie(bar, bar === this.selected ? 3 : 1.5);
      }
    }
  }

  tie(bar, width) {
    const context = this.context, x = Math.max(this.left + 2, this.x(bar.start) + 1.5);
    const middles = new Map();
    for (let k = 0; k < bar.lanes.length; k += 2) {
      const lane = bar.lanes[k], y = this.top.get(lane);
      if (y === undefined) continue;
      const cluster = this.lanes[lane][0], known = middles.get(cluster) ?? [Infinity, -Infinity];
      middles.set(cluster, [Math.min(known[0], y), Math.max(known[1], y + this.lane)]);
    }
    const ends = [...middles.values()].sort((a, b) => a[0] - b[0]);
    context.save();
    context.beginPath();
    context.rect(this.left, AXIS, this.width, this.height);
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

  drawLinks() {
    const context = this.context, plot = this.width - this.left;
    for (const row of this.rows) {
      if (row.kind !== "link") continue;
      const top = AXIS + row.y - this.scroll + 5, height = LINK - 8;
      if (top > this.height || top + height < AXIS) continue;
      const index = this.clusters.findIndex(([name]) => name === row.cluster);
      const capacity = this.clusters[index]?.[1] ?? null, steps = this.steps[index];
      const most = capacity ?? (steps ? Math.max(1e-9, ...peaks(steps.loads)) : 1);
      context.strokeStyle = this.colours.line;
      context.lineWidth = 1;
      context.strokeRect(this.left + 0.5, top + 0.5, plot - 1, height);
      if (steps?.times.length) this.fillLoad(steps, most, top, height, plot);
      context.fillStyle = this.colours.quiet;
      context.textAlign = "right";
      context.fillText(plot < 400 ? "link" : capacity === null ? "link, no limit" : `link ${capacity} Gb/s`, this.left - 8, top + height / 2);
    }
  }

  fillLoad({ times, loads }, most, top, height, plot) {
    const context = this.context, begin = this.view[0], scale = this.span / plot;
    let i = upper(times, begin);
    context.fillStyle = this.colours.link;
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
      if (share > 0.2) context.fillRect(this.left + x, top + height - share, 1, share);
    }
  }

  drawNames() {
    const context = this.context, most = Math.floor((this.left - 14) / 6.7);
    context.textAlign = "right";
    context.fillStyle = this.colours.page;
    context.save();
    context.beginPath();
    context.rect(0, AXIS, this.width, this.height);
    context.clip();
    for (const row of this.rows) {
      const y = AXIS + row.y - this.scroll;
      if (y + row.height < AXIS || y > this.height) continue;
      if (row.kind === "head") {
        context.textAlign = "left";
        context.fillStyle = this.colours.text;
        context.font = "600 12px system-ui, sans-serif";
        context.fillText(row.cluster, 8, y + row.height / 2);
        context.font = "11px ui-monospace, SFMono-Regular, Menlo, 'DejaVu Sans Mono', monospace";
      } else if (row.kind === "lane" && row.height >= 11) {
        context.textAlign = "right";
        context.fillStyle = this.colours.quiet;
        const name = this.lanes[row.lane][1];
        context.fillText(name.length > most ? `…${name.slice(1 - most)}` : name, this.left - 8, y + row.height / 2);
      }
    }
    context.restore();
  }

  drawNow() {
    const x = this.x(this.now()), context = this.context;
    if (x < this.left || x > this.width) return;
    context.strokeStyle = context.fillStyle = this.colours.now;
    context.lineWidth = 1.5;
    context.beginPath();
    context.moveTo(x, AXIS - 8);
    context.lineTo(x, this.height);
    context.stroke();
    context.fillRect(x - 15, 2, 30, 15);
    context.fillStyle = this.colours.page;
    context.textAlign = "center";
    context.fillText("now", x, 10);
  }

  drawSelected() {
    const bar = this.selected;
    if (!bar) return;
    const context = this.context, x0 = Math.max(this.left, this.x(bar.start)), x1 = Math.max(x0 + 2, this.x(bar.end));
    if (x0 > this.width || x1 < this.left) return;
    context.save();
    context.beginPath();
    context.rect(this.left, AXIS, this.width, this.height);
    context.clip();
    context.strokeStyle = this.colours.pick;
    context.lineWidth = 2;
    for (const [from, to] of this.blocks(bar)) context.strokeRect(x0, from, x1 - x0, to - from - 1);
    if (bar.clusters > 1) {
      context.strokeStyle = context.fillStyle = this.colours.tie;
      this.tie(bar, 3);
    }
    context.restore();
  }

  // Where a job's nodes lie together.
  blocks(bar) {
    const tops = [];
    for (let k = 0; k < bar.lanes.length; k += 2) {
      const y = this.top.get(bar.lanes[k]);
      if (y !== undefined) tops.push(y);
    }
    const out = [];
    for (const y of tops.sort((a, b) => a - b)) {
      const last = out.at(-1);
      if (last && y <= last[1] + 0.5) last[1] = y + this.lane; else out.push([y, y + this.lane]);
    }
    return out;
  }

  // Selection

  hit(x, y) {
    if (!this.view || x < this.left || y < AXIS) return null;
    const time = this.view[0] + (x - this.left) / (this.width - this.left) * this.span;
    const near = this.span / (this.width - this.left) * 2;
    for (const [lane, top] of this.top) {
      if (y < top || y >= top + this.lane) continue;
      for (const source of [this.live, this.past]) {
        const tracks = source.lanes[lane].tracks;
        const t = Math.min(tracks.length - 1, Math.floor((y - top) / this.lane * tracks.length));
        const track = tracks[t], i = track.first(time - near);
        if (i < track.n && track.starts[i] <= time + near) return source.bars[track.bars[i]];
      }
    }
    return null;
  }

  select(bar) {
    this.selected = bar;
    this.picked.replaceChildren(...(bar ? this.describe(bar) : ["Point at a bar, or select it, to see the job."]));
    this.invalidate();
  }

  step(direction) {
    const all = [...this.past.bars, ...this.live.bars].filter((bar) => bar?.isMatch)
      .sort((a, b) => a.start - b.start || (a.id < b.id ? -1 : 1));
    if (!all.length) return;
    const now = this.now();
    const at = this.selected ? all.indexOf(this.selected) : all.findIndex((bar) => bar.end >= now);
    this.show(all[Math.max(0, Math.min(all.length - 1, at + (this.selected ? direction : 0)))]);
  }

  open() {
    if (this.hasPages && this.selected && this.selected.state !== "local") location.hash = `#/job/${encodeURIComponent(this.selected.id)}`;
  }

  describe(bar, isShort = false) {
    const { lanes } = this;
    const nodes = [];
    let slots = 0;
    const clusters = new Set();
    for (let k = 0; k < bar.lanes.length; k += 2) {
      nodes.push(lanes[bar.lanes[k]]?.[1] ?? "?");
      clusters.add(lanes[bar.lanes[k]]?.[0] ?? "?");
      slots += bar.lanes[k + 1];
    }
    const isLocal = bar.state === "local";
    const title = isLocal ? `${bar.id}: the batch system's own job` : `${bar.id} ${bar.name}`.trim();
    const words = [bar.user, bar.state, [...clusters].join(" + "), `${slots} on ${folded(nodes)}`,
      `${this.when(bar.start)} → ${this.when(bar.end)} (${span(bar.end - bar.start)})`].filter(Boolean);
    if (isShort) return [el("b", {}, title), ...words.map((word) => el("span", {}, word))];
    const open = isLocal || !this.hasPages ? [] : [" ", el("a", { href: `#/job/${encodeURIComponent(bar.id)}` }, "Open job")];
    return [el("b", {}, title), ` · ${words.join(" · ")}`, ...open];
  }
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
