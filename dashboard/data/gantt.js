// One Gantt chart over all clusters: past, now and plan, on a canvas.
//
// Bars are painted into a buffer of pixels, track by track; what is narrower than a pixel is skipped
// by binary search, so that a frame costs what is seen and not what is known.

import { HUES, readColours, theme } from "./colours.js";
import { clock, el, folded, span } from "./dom.js";
import { drawGrid, drawLabels, drawLinks, drawNames, drawNow, drawSelected, drawTies } from "./drawing.js";
import { AXIS, Input } from "./input.js";
import { paint } from "./painting.js";
import { Tracks, loadSteps } from "./tracks.js";

const HEADER = 20, LINK = 30, GAP = 10, MOST_LANE = 24;
const BEHIND_S = 1800, AHEAD_S = 3 * 3600, LEAST_AHEAD_S = 600; // what is seen at first
const MIN_SPAN_S = 10, MAX_SPAN_S = 3 * 366 * 86400;

export class Gantt {
  constructor(now) {
    this.now = now;
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
    this.selected = this.hovered = null;
    this.tinted = "";
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
    if (this.tinted) this.colour(this.tinted);
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

  // by: "user" or "project" gives each its own hue; "" shows states.
  colour(by) {
    const numbers = new Map();
    this.tinted = by;
    const hueOf = (bar) => {
      const name = bar[by] || "";
      if (!numbers.has(name)) numbers.set(name, numbers.size % HUES.length);
      return numbers.get(name);
    };
    for (const tracks of [this.past, this.live]) tracks.tint(by ? hueOf : () => 0);
    this.names = numbers;
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

  // The next hours, and of the last half hour what is known.
  home() {
    const now = this.now();
    let first = now, last = now;
    for (const tracks of [this.past, this.live]) {
      for (const bar of tracks.bars) {
        if (!bar) continue;
        first = Math.min(first, bar.start);
        last = Math.max(last, bar.end);
      }
    }
    const ahead = Math.min(AHEAD_S, Math.max(LEAST_AHEAD_S, last - now));
    this.view = [now - Math.min(BEHIND_S, Math.max(ahead / 12, now - first)), now + ahead * 1.03];
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
    const current = theme();
    if (this.theme !== current) Object.assign(this, { theme: current }, readColours());
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
      paint(this);
      drawGrid(this);
      drawLinks(this);
      drawLabels(this);
      drawTies(this);
      drawNow(this);
      drawNames(this);
      drawSelected(this);
    }
    performance.measure("gantt-frame", "gantt-begin");
    performance.clearMarks("gantt-begin");
    // For tests and for the console.
    this.canvas.gantt = this;
    this.canvas.drawn = { view: this.view, past: this.past.byId.size, live: this.live.bars.length };
  }

  x(time) { return this.left + (time - this.view[0]) / this.span * (this.width - this.left); }

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
    if (this.selected && this.selected.state !== "local") location.hash = `#/job/${encodeURIComponent(this.selected.id)}`;
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
      `${clock(bar.start)} → ${clock(bar.end)} (${span(bar.end - bar.start)})`].filter(Boolean);
    if (isShort) return [el("b", {}, title), ...words.map((word) => el("span", {}, word))];
    const open = isLocal ? [] : [" ", el("a", { href: `#/job/${encodeURIComponent(bar.id)}` }, "Open job")];
    return [el("b", {}, title), ` · ${words.join(" · ")}`, ...open];
  }
}
