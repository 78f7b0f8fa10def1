// The overview: figures, clusters, the Gantt chart, why jobs wait.

import { HUES } from "./colours.js";
import { el, figure, jobLink, span, state, table } from "./dom.js";
import { KINDS } from "./tracks.js";

const COLOURINGS = ["user", "project", "state"];
const MOST_NAMES = 8; // in the legend

const LATE_S = 20; // a reading that is older is named

export function overview(site) {
  const figures = el("dl", { class: "figures" });
  const clusters = el("div", { class: "clusters" });
  const reasons = el("div", {}), newest = el("div", {});
  const gantt = site.gantt;
  const buttons = [
    ["Now", () => gantt.home()], ["All", () => gantt.fit()], ["−", () => gantt.zoom(1.6), "Zoom out"],
    ["+", () => gantt.zoom(0.6), "Zoom in"], ["‹", () => gantt.pan(-0.3), "Earlier"], ["›", () => gantt.pan(0.3), "Later"],
  ].map(([text, act, name]) => el("button", { type: "button", "aria-label": name, title: name, on: { click: act } }, text));
  const legend = el("ul", { class: "legend", "aria-label": "Legend" });
  const choice = el("select", { id: "colouring", on: { change: () => { colour(gantt, choice.value); showLegend(legend, gantt); } } },
    COLOURINGS.map((name) => el("option", { value: name }, name)));
  choice.value = gantt.tinted || "state";
  const colouring = el("label", { class: "quiet" }, "Colour by ", choice);
  const view = el("div", {},
    el("h1", { class: "hidden" }, "Overview"), figures, clusters,
    el("section", { class: "panel", "aria-label": "Past, now and plan" },
      el("div", { class: "bar" }, el("h2", {}, "Past, now and plan"), el("div", { class: "buttons" }, buttons), colouring, legend),
      gantt.element, gantt.picked),
    el("div", { class: "pair" }, reasons, newest));

  const update = async () => {
    if (!site.feed.status) return;
    showFigures(figures, site.feed.status);
    const [found, jobs] = await Promise.all([site.feed.get("clusters"), site.feed.get("jobs?limit=8")]);
    clusters.replaceChildren(...found.clusters.map(card));
    showLegend(legend, gantt);
    showReasons(reasons, site.feed.status);
    newest.replaceChildren(table("Newest jobs", [
      ["Job", (job) => jobLink(job.id)], ["Name", (job) => job.name], ["User", (job) => job.user],
      ["State", (job) => state(job.state)], ["Procs", (job) => String(job.procs), true],
    ], jobs.jobs, "no jobs"));
  };
  return { view, update, title: "Overview" };
}

export function colour(gantt, by) {
  gantt.colour(by === "state" ? "" : by);
  try { localStorage.setItem("colouring", by); } catch { /* private windows may forbid it */ }
}

// What the colours mean: states, or the users or projects that came first.
function showLegend(place, gantt) {
  const item = (mark, words) => el("li", {}, mark, words), kinds = gantt.tinted ? ["failed", "cancelled", "local"] : KINDS;
  const names = gantt.tinted ? [...gantt.names].slice(0, MOST_NAMES) : [];
  const hue = (number) => { const mark = el("i", { class: "swatch" }); mark.style.background = HUES[number]; return mark; };
  place.replaceChildren(
    ...names.map(([name, number]) => item(hue(number), name || (gantt.tinted === "project" ? "no project" : "not known"))),
    ...(gantt.tinted && gantt.names.size > MOST_NAMES ? [item("", `${gantt.names.size - MOST_NAMES} more`)] : []),
    ...(gantt.tinted ? [item("", "pale: planned")] : []),
    ...kinds.map((kind) => item(el("i", { class: `swatch ${kind}` }), kind === "local" ? "not ours" : kind)),
    item(el("i", { class: "swatch tie" }), "ties the parts of one job"));
}

function showFigures(place, status) {
  const daemon = status.daemon, last = daemon?.last_round, states = status.states;
  const gap = last && last.bound > 0 ? Math.max(0, (last.value - last.bound) / last.bound) : null;
  const active = (states.running ?? 0) + (states.preparing ?? 0) + (states.starting ?? 0);
  const rows = [
    ["running", active], ["waiting", (states.pending ?? 0) + (states.held ?? 0)],
    ["rounds", daemon ? daemon.rounds : "–"],
    ["last plan", [last ? `${last.policy}, ${last.status}` : "none",
      ...(gap === null ? [] : [gap < 0.0005 ? "at the bound" : `within ${figure(gap * 100, 3)} % of the bound`]),
      ...(daemon && !daemon.solver.is_warm ? ["solver compiles"] : [])].join(" · ")],
  ];
  if (daemon?.paused) rows.push(["planning", "paused"]);
  if (daemon && !daemon.writable) rows.push(["store", "cannot be written"]);
  place.replaceChildren(...rows.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, String(value)))));
}

function card({ row, nodes, nodes_up: up, slots, free, power, waiting, running }) {
  const used = slots ? (slots - free) / slots : 0;
  const fault = !row.connected ? "executor not connected" : row.stale ? "no recent reading" : row.drained ? "drained" : "";
  const known = !fault || row.drained;
  const meter = (share, name, kind) => el("div", {
    class: `meter ${kind}`, role: "img", "aria-label": `${name}: ${Math.round(share * 100)} %`,
  }, filled(share));
  const link = row.link_gbps
    ? [`${figure(row.link_used_gbps, 2)} of ${figure(row.link_gbps, 3)} Gb/s`, row.link_used_gbps / row.link_gbps]
    : [row.link_used_gbps ? `${figure(row.link_used_gbps, 2)} Gb/s` : "no limit", 0];
  return el("section", { class: `card ${known ? "" : "stale"}`, "aria-label": `Cluster ${row.cluster}` },
    el("h2", {}, row.cluster, fault ? el("span", { class: "fault" }, fault) : null),
    el("dl", {},
      el("dt", {}, "slots"), el("dd", { class: "wide" }, meter(known ? used : 0, "slots in use", "running")),
      el("dd", {}, known ? `${free} of ${slots} free` : "not known"),
      el("dt", {}, "link"), el("dd", { class: "wide" }, meter(Math.min(1, link[1]), "link in use", "link")), el("dd", {}, link[0])),
    el("p", { class: "quiet" }, [`${up} of ${nodes} nodes up`, `power ${figure(power, 3)}`, `${running} run`, `${waiting} planned`]
      .flatMap((words, i) => [i ? " · " : "", el("span", { class: "whole" }, words)]),
      row.age_s > LATE_S ? el("b", {}, ` · read ${span(row.age_s)} ago`) : null));
}

function filled(share) {
  const part = el("span", {});
  part.style.width = `${Math.max(0, Math.min(1, share)) * 100}%`;
  return part;
}

export const REASONS = {
  not_selected: "left out of this round", insufficient: "needs more than is up now", infeasible: "can never run",
  unsupported: "the policy plans no such jobs", unreachable: "no executor is connected",
  held: "held", held_by_owner: "held by its owner", held_by_admin: "held by an administrator",
  dependency: "waits for another job", begin_time: "may not start yet", planned: "has a start in the plan",
  next_round: "next round", backing_off: "refused a moment ago", others_first: "other jobs go first there",
  superseded: "the state changed before its start", out_of_time: "the search ended first", unknown: "not known",
  limit: "a limit holds it", over_limit: "over a limit", array_limit: "its array runs as many as it may",
  array_order: "others of its array go first", deadline: "would end after its deadline",
  tasks: "its tasks wait", parents: "waits for other tasks",
};

function showReasons(place, status) {
  const { planned = 0, ...others } = status.reasons, on = Object.entries(status.planned_on);
  const unplaced = planned - on.reduce((sum, [, count]) => sum + count, 0);
  const rows = [
    ...on.map(([clusters, count]) => ["planned", count, `slots of ${clusters.includes("+") ? `${clusters} together` : clusters}`]),
    ...(unplaced > 0 ? [["planned", unplaced, REASONS.planned]] : []),
    ...Object.entries(others).map(([name, count]) => [name, count, REASONS[name] ?? name]),
  ].sort((a, b) => b[1] - a[1]);
  const most = Math.max(1, ...rows.map((row) => row[1]));
  place.replaceChildren(table("What jobs wait for", [
    ["For", ([name, , words]) => el("a", { href: `#/jobs?state=waiting&reason=${encodeURIComponent(name)}` }, words)],
    ["Jobs", ([, count]) => String(count), true],
    ["Share", ([, count]) => el("div", { class: "meter planned", "aria-hidden": "true" }, filled(count / most))],
  ], rows, "no job waits"));
}
