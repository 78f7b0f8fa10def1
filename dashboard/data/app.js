// The page: which view is shown, whether the daemon answers, the theme.

import { clock, el } from "./dom.js";
import { Feed } from "./feed.js";
import { Gantt } from "./gantt.js";
import { job, jobs } from "./jobs.js";
import { colour, overview } from "./overview.js";
import { node, nodes, rounds, waits } from "./site.js";

const THEMES = ["auto", "light", "dark"];
const UPDATE_S = 5;

const main = document.getElementById("main");
const feed = new Feed();
const site = { feed, gantt: new Gantt(() => feed.now()), showInGantt };
let shown = null;
let isUpdating = false;

function route() {
  const [path, query = ""] = location.hash.slice(1).split("?");
  const parameters = new URLSearchParams(query), [, name = "", id = ""] = path.split("/");
  const pages = { "": overview, jobs, rounds, waits, nodes, node, job };
  const make = Object.hasOwn(pages, name) ? pages[name] : overview;
  shown = make(site, parameters, decoded(id));
  document.title = `${shown.title} – coalloc`;
  for (const link of document.querySelectorAll("#pages a")) {
    const isHere = link.hash === `#/${name === "job" || name === "node" ? `${name}s` : name}`;
    if (isHere) link.setAttribute("aria-current", "page"); else link.removeAttribute("aria-current");
  }
  main.replaceChildren(shown.view);
  site.gantt.invalidate();
  update();
}

function decoded(text) {
  try { return decodeURIComponent(text); } catch { return text; }
}

async function update() {
  if (isUpdating || !shown) return;
  isUpdating = true;
  const now = shown;
  try {
    await now.update();
    now.view.querySelector(".trouble")?.remove();
  } catch (error) {
    now.view.querySelector(".trouble")?.remove();
    now.view.append(el("p", { class: "trouble", role: "alert" }, String(error.message ?? error)));
  }
  isUpdating = false;
  if (now !== shown) update();
}

function showInGantt(id) {
  location.hash = "#/";
  const gantt = site.gantt;
  for (const tracks of [gantt.live, gantt.past]) {
    const bar = tracks.bars[tracks.byId.get(id)];
    if (bar) { gantt.show(bar); return; }
  }
}

// Unreachable is not empty: what is shown stays, and says since when it is old.
function health() {
  const line = document.getElementById("health"), outage = document.getElementById("outage");
  const change = feed.change, daemon = feed.status?.daemon;
  let text = "";
  if (feed.isConnected === false) text = `The dashboard does not answer since ${clock(feed.lostAt)}. What is shown is from then.`;
  else if (change && !change.reachable) {
    text = change.heard
      ? `The daemon does not answer since ${clock(change.heard)}. What is shown is from then. (${change.fault})`
      : `The daemon has not answered yet. (${change.fault})`;
  }
  if (outage.textContent !== text) outage.textContent = text;
  outage.hidden = !text;
  document.body.classList.toggle("old", Boolean(text));
  const words = text ? "no answer" : daemon ? `live · coallocd ${daemon.version}` : "connecting…";
  if (line.textContent !== words) line.textContent = words;
}

function setTheme(name) {
  document.documentElement.dataset.theme = name;
  const button = document.getElementById("theme");
  button.textContent = `Theme: ${name}`;
  try { localStorage.setItem("theme", name); } catch { /* private windows may forbid it */ }
  site.gantt.invalidate();
}

function start() {
  let theme = "auto";
  try { theme = localStorage.getItem("theme") ?? theme; } catch { /* as above */ }
  setTheme(THEMES.includes(theme) ? theme : "auto");
  document.getElementById("theme").addEventListener("click", () => {
    setTheme(THEMES[(THEMES.indexOf(document.documentElement.dataset.theme) + 1) % THEMES.length]);
  });
  let colouring = "user";
  try { colouring = localStorage.getItem("colouring") ?? colouring; } catch { /* as above */ }
  colour(site.gantt, colouring);
  const query = document.getElementById("query");
  let timer = 0;
  query.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(() => site.gantt.search(query.value), 120);
  });
  document.getElementById("search").addEventListener("submit", (event) => {
    event.preventDefault();
    const text = query.value.trim();
    location.hash = /^\d+([._]\w+)?$/.test(text) ? `#/job/${encodeURIComponent(text)}` : `#/jobs?q=${encodeURIComponent(text)}`;
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "/" && !/^(INPUT|TEXTAREA)$/.test(document.activeElement?.tagName ?? "")) { event.preventDefault(); query.focus(); }
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => site.gantt.invalidate());
  feed.addEventListener("reset", () => site.gantt.reset());
  feed.addEventListener("lanes", ({ detail }) => site.gantt.setLanes(detail.lanes, detail.clusters));
  feed.addEventListener("live", ({ detail }) => site.gantt.setLive(detail.live));
  feed.addEventListener("ended", ({ detail }) => site.gantt.addEnded(detail.ended));
  feed.addEventListener("site", update);
  feed.addEventListener("health", health);
  window.addEventListener("hashchange", route);
  setInterval(() => site.gantt.tick(), 1000);
  setInterval(update, UPDATE_S * 1000);
  route();
  feed.start();
}

start();
