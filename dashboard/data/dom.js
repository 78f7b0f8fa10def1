// Elements from data. Text becomes text nodes, never markup: nothing of a job's name can execute.

export function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "on") for (const [kind, act] of Object.entries(value)) node.addEventListener(kind, act);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}

const SVG = "http://www.w3.org/2000/svg";

export function svg(tag, attributes = {}, ...children) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, String(value));
  node.append(...children);
  return node;
}

// A table: columns are [heading, cell of a row, is a number].
export function table(caption, columns, rows, empty = "none") {
  const head = el("tr", {}, columns.map(([name, , isNumber]) =>
    el("th", { scope: "col", class: isNumber ? "number" : null }, name)));
  const body = rows.map((row) => el("tr", {}, columns.map(([, cell, isNumber]) =>
    el("td", { class: isNumber ? "number" : null }, cell(row)))));
  if (!rows.length) body.push(el("tr", {}, el("td", { colspan: columns.length, class: "empty" }, empty)));
  return el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    el("table", {}, el("caption", {}, caption), el("thead", {}, head), el("tbody", {}, body)));
}

export function jobLink(id) {
  return el("a", { href: `#/job/${encodeURIComponent(id)}`, class: "mono" }, id);
}

export function state(name) {
  return el("span", { class: `state ${/^[a-z_]+$/.test(name) ? name : ""}` }, name);
}

// Lengths of time as squeue writes them: 1-02:03:04, 2:03:04, 3:04.
export function span(seconds) {
  if (seconds === null || seconds === undefined || !Number.isFinite(seconds)) return "–";
  const whole = Math.max(0, Math.round(seconds));
  const [d, h, m, s] = [Math.floor(whole / 86400), Math.floor(whole / 3600) % 24, Math.floor(whole / 60) % 60, whole % 60];
  const two = (n) => String(n).padStart(2, "0");
  if (d) return `${d}-${two(h)}:${two(m)}:${two(s)}`;
  return h ? `${h}:${two(m)}:${two(s)}` : `${m}:${two(s)}`;
}

export function clock(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  const at = new Date(seconds * 1000), two = (n) => String(n).padStart(2, "0");
  const time = `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
  const isToday = at.toDateString() === new Date().toDateString();
  return isToday ? time : `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ${time}`;
}

export function figure(value, digits = 4) {
  if (value === null || value === undefined) return "–";
  return Number(value.toPrecision(digits)).toLocaleString("en", { maximumFractionDigits: 6, useGrouping: true });
}

export function count(number, word) {
  return `${number} ${word}${number === 1 ? "" : "s"}`;
}

// Names of nodes, folded: a1 a2 a3 b7 becomes a[1-3],b7.
export function folded(names) {
  const groups = new Map();
  for (const name of names) {
    const found = /^(.*?)(0|[1-9]\d*)$/.exec(name);
    const key = found ? found[1] : name;
    if (!groups.has(key)) groups.set(key, []);
    if (found) groups.get(key).push(Number(found[2]));
  }
  return [...groups].map(([prefix, numbers]) => {
    if (!numbers.length) return prefix;
    numbers.sort((a, b) => a - b);
    const runs = [];
    for (const n of numbers) {
      const last = runs.at(-1);
      if (last && n <= last[1] + 1) last[1] = n; else runs.push([n, n]);
    }
    const text = runs.map(([a, b]) => (a === b ? `${a}` : `${a}-${b}`)).join(",");
    return numbers.length === 1 ? `${prefix}${text}` : `${prefix}[${text}]`;
  }).join(",");
}
