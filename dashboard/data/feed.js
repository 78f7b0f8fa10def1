// What the page knows of the site: asked for once, then again when the server says that it changed.

export class Feed extends EventTarget {
  constructor() {
    super();
    this.status = null;
    this.ahead = 0; // of the daemon's clock, seconds
    this.revision = 0;
    this.seen = { revision: -1, live: -1 };
    this.heardAt = 0;
  }

  now() { return Date.now() / 1000 + this.ahead; }

  async get(path) {
    const answer = await fetch(`api/v1/${path}`, { headers: { accept: "application/json" } });
    if (answer.status === 401) { location.reload(); throw new Error("not logged in"); }
    const body = await answer.json();
    if (!answer.ok) throw new Error(body.error ?? `status ${answer.status}`);
    return body;
  }

  start() {
    this.source = new EventSource("api/v1/events");
    this.source.addEventListener("change", (event) => this.changed(JSON.parse(event.data)));
    this.source.addEventListener("open", () => { this.isConnected = true; this.tell("health"); });
    this.source.addEventListener("error", () => {
      if (this.isConnected !== false) { this.isConnected = false; this.lostAt = Date.now() / 1000; }
      this.tell("health");
    });
    this.refresh();
  }

  changed(change) {
    const wasReachable = this.change?.reachable;
    this.change = change;
    if (change.heard) this.ahead = this.ahead ? Math.max(this.ahead, change.heard - Date.now() / 1000) : change.heard - Date.now() / 1000;
    const isNew = change.live !== this.seen.live || change.revision !== this.seen.revision;
    if (isNew || wasReachable !== change.reachable) this.refresh(); else this.tell("health");
  }

  // One refresh at a time; what changes meanwhile follows.
  async refresh() {
    if (this.isBusy) { this.isAgain = true; return; }
    this.isBusy = true;
    const change = this.change;
    try {
      this.status = await this.get("status");
      await this.timeline();
      if (change) this.seen = { live: change.live, revision: change.revision };
      this.tell("site");
    } catch (error) {
      this.failed = String(error.message ?? error);
    }
    this.tell("health");
    setTimeout(() => {
      this.isBusy = false;
      if (this.isAgain) { this.isAgain = false; this.refresh(); }
    }, 1000);
  }

  // What is live first: that is what people look for. Then the past, piece by piece.
  async timeline() {
    let page = await this.get(`timeline?live=1&limit=1&since=${2 ** 52}`);
    if (page.instance !== this.instance) {
      this.instance = page.instance;
      this.revision = 0;
      this.tell("reset");
    }
    this.tell("lanes", page);
    this.tell("live", page);
    do {
      page = await this.get(`timeline?since=${this.revision}&limit=2000`);
      if (page.instance !== this.instance) return;
      this.revision = page.revision;
      if (page.ended.length) this.tell("ended", page);
    } while (page.more);
  }

  tell(kind, detail) { this.dispatchEvent(new CustomEvent(kind, { detail })); }
}
