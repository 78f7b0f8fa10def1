// Bars indexed by time: one track for each slot of a node (at most MOST of a node, wider ones share).
// The bars of a track do not overlap, so that a binary search finds what a pixel shows.

const MOST = 8;
// What a bar is painted as; the number of a kind is its place here.
export const KINDS = ["running", "planned", "completed", "failed", "cancelled", "local"];
export const FADED = 8; // added to the number where a search leaves the bar out
const KIND_OF = {
  running: 0, preparing: 0, starting: 0, planned: 1, completed: 2, failed: 3, timeout: 3, lost: 3, cancelled: 4, local: 5,
};
const SLACK_S = 1; // Starts and ends are heard, not measured together.

class Track {
  constructor() {
    this.n = 0;
    this.starts = new Float64Array(8);
    this.ends = new Float64Array(8);
    this.bars = new Int32Array(8);
  }

  // The number of bars that start before an instant.
  before(time) {
    let low = 0, high = this.n;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.starts[middle] < time) low = middle + 1; else high = middle;
    }
    return low;
  }

  // The first bar that may show at or behind an instant.
  first(time) {
    const i = this.before(time);
    return i > 0 && this.ends[i - 1] > time ? i - 1 : i;
  }

  isFree(start, end) {
    const i = this.before(end - SLACK_S);
    return i === 0 || this.ends[i - 1] <= start + SLACK_S;
  }

  insert(start, end, bar) {
    if (this.n === this.starts.length) {
      for (const name of ["starts", "ends", "bars"]) {
        const larger = new this[name].constructor(this.n * 2);
        larger.set(this[name]);
        this[name] = larger;
      }
    }
    const i = this.before(start);
    if (i < this.n) {
      for (const array of [this.starts, this.ends, this.bars]) array.copyWithin(i + 1, i, this.n);
    }
    this.starts[i] = start;
    this.ends[i] = end;
    this.bars[i] = bar;
    this.n += 1;
  }

  remove(start, bar) {
    for (let i = this.before(start); i < this.n && this.starts[i] === start; i++) {
      if (this.bars[i] !== bar) continue;
      for (const array of [this.starts, this.ends, this.bars]) array.copyWithin(i, i + 1, this.n);
      this.n -= 1;
      return;
    }
  }
}

export class Tracks {
  // below: other tracks whose bars are in the way, too.
  constructor(below = null) {
    this.below = below;
    this.lanes = [];
    this.bars = [];
    this.kinds = new Uint8Array(1024); // of each bar, apart from it: they are read for every pixel
    this.hues = new Uint8Array(1024); // likewise
    this.hueOf = below?.hueOf ?? (() => 0);
    this.tied = []; // bars on several clusters, by start
    this.byId = new Map();
  }

  setLanes(lanes) {
    for (let i = this.lanes.length; i < lanes.length; i++) {
      const [cluster, , slots] = lanes[i];
      const width = Math.max(1, Math.min(MOST, slots));
      this.lanes.push({ cluster, slots: Math.max(1, slots), tracks: Array.from({ length: width }, () => new Track()) });
    }
  }

  // Rows as the server writes them: id, name, user, state, start, end, lanes, loads, project.
  add(row) {
    const [id, name, user, state, start, end, lanes, loads, project = ""] = row;
    const known = this.byId.get(id);
    if (known !== undefined && state !== "planned") this.take(known);
    const clusters = new Set();
    for (let k = 0; k < lanes.length; k += 2) clusters.add(this.lanes[lanes[k]]?.cluster);
    const bar = { id, name, user, project, state, start, end: Math.max(end, start), lanes, loads, clusters: clusters.size, isMatch: true };
    const index = this.bars.push(bar) - 1;
    this.byId.set(id, index);
    if (index >= this.kinds.length) {
      for (const name of ["kinds", "hues"]) {
        const larger = new Uint8Array(this[name].length * 2);
        larger.set(this[name]);
        this[name] = larger;
      }
    }
    this.hues[index] = this.hueOf(bar);
    this.kinds[index] = KIND_OF[state] ?? KIND_OF.local;
    for (let k = 0; k < lanes.length; k += 2) this.place(index, bar, lanes[k], lanes[k + 1]);
    if (clusters.size > 1) insertByStart(this.tied, bar);
    return bar;
  }

  // Give every bar the hue of its user, say.
  tint(hueOf) {
    this.hueOf = hueOf;
    this.bars.forEach((bar, i) => { if (bar) this.hues[i] = hueOf(bar); });
  }

  // Mark the bars that a search finds; the others fade. Returns the first that is found.
  match(isFound, from = 0) {
    let first = null;
    for (let i = from; i < this.bars.length; i++) {
      const bar = this.bars[i];
      if (!bar) continue;
      bar.isMatch = isFound(bar);
      this.kinds[i] = this.kinds[i] % FADED + (bar.isMatch ? 0 : FADED);
      if (bar.isMatch && first === null) first = bar;
    }
    return first;
  }

  place(index, bar, lane, slots) {
    const here = this.lanes[lane];
    if (!here) return;
    let units = Math.max(1, Math.min(here.tracks.length, Math.round(slots * here.tracks.length / here.slots)));
    const later = [];
    for (let t = 0; t < here.tracks.length && units; t++) {
      const isFree = here.tracks[t].isFree(bar.start, bar.end)
        && (!this.below?.lanes[lane] || this.below.lanes[lane].tracks[t].isFree(bar.start, bar.end));
      if (isFree) { here.tracks[t].insert(bar.start, bar.end, index); units -= 1; } else later.push(t);
    }
    // More is there than fits, as when a job overruns: it is drawn over what is free the longest.
    for (const t of later.slice(0, units)) here.tracks[t].insert(bar.start, bar.end, index);
  }

  take(index) {
    const bar = this.bars[index];
    if (!bar) return;
    for (let k = 0; k < bar.lanes.length; k += 2) {
      for (const track of this.lanes[bar.lanes[k]]?.tracks ?? []) track.remove(bar.start, index);
    }
    this.tied = this.tied.filter((other) => other !== bar);
    this.bars[index] = null;
  }
}

function insertByStart(list, bar) {
  let i = list.length;
  while (i > 0 && list[i - 1].start > bar.start) i -= 1;
  list.splice(i, 0, bar);
}

// The load on each cluster's link over time, as steps: times, and the load from each on.
export function loadSteps(sources, clusters) {
  const changes = Array.from({ length: clusters }, () => []);
  for (const tracks of sources) {
    for (const bar of tracks.tied) {
      for (let k = 0; k < bar.loads.length; k += 2) {
        changes[bar.loads[k]]?.push([bar.start, bar.loads[k + 1]], [bar.end, -bar.loads[k + 1]]);
      }
    }
  }
  return changes.map((list) => {
    list.sort((a, b) => a[0] - b[0]);
    const times = new Float64Array(list.length), loads = new Float64Array(list.length);
    let sum = 0;
    list.forEach(([time, change], i) => {
      sum += change;
      times[i] = time;
      loads[i] = Math.max(0, sum);
    });
    return { times, loads };
  });
}
