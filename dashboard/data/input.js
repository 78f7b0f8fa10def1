// Pointer, wheel and keys of a Gantt chart: pan, zoom, scroll, point and select.

export const AXIS = 26; // height of the time axis, pixels

export class Input {
  constructor(chart) {
    const { canvas } = chart;
    this.chart = chart;
    this.pointers = new Map();
    canvas.addEventListener("pointerdown", (event) => this.down(event));
    canvas.addEventListener("pointermove", (event) => this.move(event));
    for (const kind of ["pointerup", "pointercancel"]) canvas.addEventListener(kind, (event) => this.up(event));
    canvas.addEventListener("pointerleave", () => { chart.tip.hidden = true; chart.hovered = null; chart.invalidate(); });
    canvas.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    canvas.addEventListener("keydown", (event) => this.key(event));
    canvas.addEventListener("dblclick", () => chart.open());
  }

  at(event) {
    const box = this.chart.canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  }

  down(event) {
    const { chart } = this;
    chart.canvas.setPointerCapture(event.pointerId);
    this.pointers.set(event.pointerId, this.at(event));
    this.travelled = 0;
    chart.tip.hidden = true;
  }

  move(event) {
    const { chart } = this;
    const [x, y] = this.at(event), old = this.pointers.get(event.pointerId);
    if (!old) { if (event.pointerType !== "touch") this.hover(x, y); return; }
    const plot = chart.width - chart.left;
    if (this.pointers.size === 1) {
      this.travelled += Math.abs(x - old[0]) + Math.abs(y - old[1]);
      if (this.travelled > 4) {
        chart.scroll = chart.scroll - (y - old[1]);
        chart.pan((old[0] - x) / plot);
      }
    } else {
      const [other] = [...this.pointers].filter(([id]) => id !== event.pointerId).map(([, point]) => point);
      const before = Math.max(10, Math.abs(old[0] - other[0])), after = Math.max(10, Math.abs(x - other[0]));
      this.travelled = 100;
      chart.zoom(before / after, ((x + other[0]) / 2 - chart.left) / plot);
    }
    this.pointers.set(event.pointerId, [x, y]);
  }

  up(event) {
    const { chart } = this;
    this.pointers.delete(event.pointerId);
    if (event.type === "pointerup" && this.travelled <= 4) chart.select(chart.hit(...this.at(event)));
  }

  hover(x, y) {
    const { chart } = this;
    const bar = chart.hit(x, y);
    chart.canvas.classList.toggle("over", Boolean(bar));
    chart.tip.hidden = !bar;
    if (chart.hovered !== bar) { chart.hovered = bar; chart.invalidate(); }
    if (!bar) return;
    chart.tip.replaceChildren(...chart.describe(bar, true));
    const width = chart.tip.offsetWidth, height = chart.tip.offsetHeight;
    chart.tip.style.left = `${Math.max(4, Math.min(chart.width - width - 4, x + 14))}px`;
    chart.tip.style.top = `${y + height + 24 > chart.height ? y - height - 10 : y + 16}px`;
  }

  wheel(event) {
    const { chart } = this;
    const [x] = this.at(event), plot = chart.width - chart.left;
    if (event.ctrlKey || event.metaKey) {
      event.preventDefault();
      chart.zoom(Math.exp(event.deltaY * 0.003), Math.max(0, (x - chart.left) / plot));
    } else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      event.preventDefault();
      chart.pan((event.deltaX || event.deltaY) / plot);
    } else if (chart.content > chart.height - AXIS) {
      const before = chart.scroll;
      chart.scroll = Math.max(0, Math.min(chart.content - (chart.height - AXIS), before + event.deltaY));
      if (chart.scroll !== before) { event.preventDefault(); chart.invalidate(); }
    }
  }

  key(event) {
    const { chart } = this;
    const acts = {
      ArrowLeft: () => chart.pan(-0.1), ArrowRight: () => chart.pan(0.1),
      ArrowUp: () => this.scroll(-40), ArrowDown: () => this.scroll(40),
      "+": () => chart.zoom(0.7), "=": () => chart.zoom(0.7), "-": () => chart.zoom(1 / 0.7),
      n: () => chart.home(), f: () => chart.fit(), ",": () => chart.step(-1), ".": () => chart.step(1),
      Enter: () => chart.open(), Escape: () => chart.select(null),
    };
    const act = event.ctrlKey || event.metaKey || event.altKey ? undefined : acts[event.key];
    if (act) { event.preventDefault(); act(); }
  }

  scroll(pixels) {
    this.chart.scroll += pixels;
    this.chart.invalidate();
  }
}
