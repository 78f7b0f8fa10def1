// Rounds, wait times and nodes.

import { clock, el, figure, jobLink, span, state, svg, table } from "./dom.js";

export function rounds(site) {
  const plot = el("div", { class: "panel" }), rows = el("div", {});
  const view = el("div", {}, el("h1", {}, "Rounds"), plot, rows);
  const update = async () => {
    const found = await site.feed.get("rounds");
    plot.replaceChildren(el("h2", {}, "Distance from the bound"), gaps(found.rounds.slice(0, 200).reverse(), Math.max(320, plot.clientWidth - 26)));
    const deferred = (round) => Object.entries(round.deferred).map(([name, count]) => `${count} ${name.replaceAll("_", " ")}`).join(", ");
    const cost = (rule) => rule.cost === null ? rule.why || "not computed" : `${figure(rule.cost)} of ${figure(rule.with_rule)}${rule.at_most === null ? "" : `, at most ${figure(rule.at_most)}`}${rule.held ? `, ${rule.held} held` : ""}`;
    const costs = (round) => round.rule_costs === null ? "not computed" : Object.entries(round.rule_costs).map(([name, rule]) => `${name} ${cost(rule)}`).join("; ");
    const ruled = found.rounds.some((round) => round.rule_costs !== null);
    const timed = found.rounds.some((round) => Object.keys(round.phases_s).length);
    const phases = (round) => Object.entries(round.phases_s).map(([name, value]) => `${name.replaceAll("_", " ")} ${figure(value, 2)} s`).join(", ");
    rows.replaceChildren(table("Since the dashboard was started, the newest first", [
      ["Round", (round) => String(round.round), true], ["When", (round) => clock(round.heard), true],
      ["Policy", (round) => round.policy], ["Status", (round) => round.status], ["Objective", (round) => round.placed === 0 ? "nothing could be planned" : round.objective.replaceAll("_", " ")],
      ["Value", (round) => round.placed === 0 ? "–" : figure(round.value), true], ["Bound", (round) => figure(round.bound), true],
      ["Gap", (round) => round.gap === null ? "–" : `${figure(round.gap * 100, 3)} %`, true],
      ["Placed", (round) => round.placed === null ? "–" : String(round.placed), true],
      ["Left out", deferred], ...(timed ? [["Times", phases]] : []), ...(ruled ? [["Rules cost", costs]] : []),
    ], found.rounds.slice(0, 500), "no round has ended since"));
  };
  return { view, update, title: "Rounds" };
}

function gaps(list, width) {
  const known = list.filter((round) => round.gap !== null);
  if (known.length < 2) return el("p", { class: "quiet" }, "Shown when several rounds have sought a bound.");
  const height = 120, most = Math.max(0.01, ...known.map((round) => round.gap));
  const points = known.map((round, i) => `${(i / (known.length - 1) * (width - 60) + 50).toFixed(1)},${(height - 18 - round.gap / most * (height - 30)).toFixed(1)}`);
  const text = (x, y, words) => svg("text", { x, y, class: "tick" }, words);
  return svg("svg", { viewBox: `0 0 ${width} ${height}`, class: "plot", role: "img", "aria-label": `Gap of ${known.length} rounds, at most ${figure(most * 100, 3)} per cent` },
    svg("line", { x1: 50, x2: width - 10, y1: height - 18, y2: height - 18, class: "axis" }),
    text(4, 18, `${figure(most * 100, 2)} %`), text(4, height - 15, "0 %"),
    text(50, height - 3, `round ${known[0].round}`), text(width - 90, height - 3, `round ${known.at(-1).round}`),
    svg("polyline", { points: points.join(" "), class: "curve" }));
}

const GROUPS = ["cluster", "user", "project"];
const nameless = (by) => (by === "project" ? "no project" : "not known");

export function waits(site, parameters) {
  const by = GROUPS.includes(parameters.get("by")) ? parameters.get("by") : GROUPS[0];
  const body = el("div", {});
  const choices = el("nav", { class: "filters", "aria-label": "Group by" }, GROUPS.map((name) =>
    el("a", { href: `#/waits?by=${name}`, "aria-current": name === by ? "true" : null }, `by ${name}`)));
  const view = el("div", {}, el("div", { class: "bar" }, el("h1", {}, "How long jobs wait"), choices), body);
  const update = async () => {
    const found = await site.feed.get(`waits?by=${by}`);
    const names = found.bounds_s.map((bound) => `≤ ${round(bound)}`).concat(`> ${round(found.bounds_s.at(-1))}`);
    const shown = found.groups.slice(0, 12), most = Math.max(1, ...shown.flatMap((group) => group.counts));
    body.replaceChildren(
      el("div", { class: "histograms" }, shown.map((group) => histogram(group, names, nameless(by), most))),
      table("Jobs that have started", [
        [by[0].toUpperCase() + by.slice(1), (group) => group.name || nameless(by)], ["Jobs", (group) => String(group.jobs), true],
        ["Mean", (group) => span(group.mean_s), true], ["Median", (group) => span(group.median_s), true],
        ["95 % within", (group) => span(group.p95_s), true],
      ], found.groups, "no job has started"));
  };
  return { view, update, title: "Waits" };
}

function round(seconds) {
  const [unit, name] = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]].find(([size]) => seconds >= size);
  return `${seconds / unit} ${name}`;
}

// All histograms have one scale, so that groups can be compared by eye.
function histogram(group, names, other, most) {
  const wide = 22;
  const words = group.counts.map((count, i) => `${names[i]}: ${count}`).join(", ");
  return el("figure", { class: "panel" }, el("figcaption", {}, el("b", {}, group.name || other), ` ${group.jobs} jobs, median ${span(group.median_s)}`),
    svg("svg", { viewBox: `0 0 ${group.counts.length * wide} 100`, class: "plot", role: "img", "aria-label": words },
      ...group.counts.map((count, i) => svg("rect", { x: i * wide + 2, width: wide - 4, y: 84 - 80 * count / most, height: 80 * count / most, class: "column" })),
      svg("line", { x1: 0, x2: group.counts.length * wide, y1: 84.5, y2: 84.5, class: "axis" }),
      ...[0, 3, 6].map((i) => svg("text", { x: i * wide + 1, y: 97, class: "tick small" }, names[i]))));
}

export function nodes(site) {
  const body = el("div", {}), shown = el("p", { class: "picked", role: "status" }, "Select a node to see it.");
  const view = el("div", {}, el("h1", {}, "Nodes"), shown, body,
    el("ul", { class: "legend" }, [["up", "up"], ["draining", "draining"], ["down", "down"]].map(([kind, name]) => el("li", {}, el("i", { class: `swatch node-${kind}` }), name))));
  const show = (entry) => {
    const { node, jobs } = entry;
    shown.replaceChildren(...described(entry), jobs.length ? " · jobs " : "", ...jobs.flatMap((id) => [jobLink(id), " "]), " · ",
      el("a", { href: `#/node/${encodeURIComponent(node.name)}` }, "All its jobs"));
  };
  const update = async () => {
    const found = await site.feed.get("nodes"), groups = new Map();
    for (const entry of found.nodes) {
      if (!groups.has(entry.cluster)) groups.set(entry.cluster, []);
      groups.get(entry.cluster).push(entry);
    }
    const focused = document.activeElement?.dataset?.node;
    body.replaceChildren(...[...groups].map(([cluster, entries]) => el("section", { class: "panel" }, el("h2", {}, cluster, " ", el("span", { class: "quiet" }, `${entries.length} nodes`)),
      el("div", { class: "grid" }, entries.map((entry) => tile(entry, show))))));
    if (focused) body.querySelector(`[data-node="${CSS.escape(focused)}"]`)?.focus();
  };
  return { view, update, title: "Nodes" };
}

const NODE_JOBS = 200;

// One node: its state, and the jobs that run or ran on it, the newest first.
export function node(site, parameters, name) {
  const facts = el("p", { class: "panel" }), rows = el("div", {});
  const view = el("div", {}, el("h1", {}, `Node ${name}`), facts, rows);
  const update = async () => {
    const [all, found] = await Promise.all([
      site.feed.get("nodes"), site.feed.get(`jobs?limit=${NODE_JOBS}&node=${encodeURIComponent(name)}`)]);
    const entry = all.nodes.find((one) => one.node.name === name);
    facts.replaceChildren(...(entry ? described(entry) : ["No cluster has a node of this name now."]));
    const local = entry ? entry.jobs.filter((id) => !found.jobs.some((job) => job.id === id)) : [];
    if (local.length) facts.append(` · other work: ${local.join(", ")}`);
    const now = site.feed.now(), rest = found.total - found.jobs.length;
    rows.replaceChildren(table(`Jobs on it, the newest first${rest > 0 ? `, without ${rest} older ones` : ""}`, [
      ["Job", (job) => jobLink(job.id)], ["Name", (job) => job.name], ["User", (job) => job.user],
      ["State", (job) => state(job.state)], ["Processes here", (job) => String(job.nodes[name]), true],
      ["Started", (job) => clock(job.started), true], ["Ended", (job) => clock(job.ended), true],
      ["Run", (job) => job.started ? span((job.ended ?? now) - job.started) : "–", true],
      ["Exit", (job) => job.exit_code === null ? "–" : String(job.exit_code), true],
    ], found.jobs, "no job is known to have run on it"));
  };
  return { view, update, title: `Node ${name}` };
}

function described({ cluster, node }) {
  const reason = node.reason ? `: ${node.reason}` : "", load = Math.round(node.load * 100);
  return [el("b", {}, `${node.name} (${cluster})`), ` · ${node.state}${reason} · ${node.free} of ${node.slots} slots free · power ${figure(node.power, 3)} · ${load} % other load`,
    node.memory_mb ? ` · ${node.free_memory_mb ?? "?"} of ${node.memory_mb} MiB free` : "",
    ...Object.entries(node.resources).map(([name, all]) => ` · ${node.free_resources[name] ?? "?"} of ${all} ${name} free`), node.features.length ? ` · ${node.features.join(", ")}` : ""];
}

function tile(entry, show) {
  const { node } = entry, busy = el("span", {});
  busy.style.width = `${node.slots ? (node.slots - node.free) / node.slots * 100 : 0}%`;
  const kind = ["up", "draining", "down"].includes(node.state) ? node.state : "down";
  const load = Math.round(node.load * 100), used = `${node.slots - node.free}/${node.slots}`;
  return el("button", {
    type: "button", class: `tile node-${kind}`, "data-node": node.name, on: { click: () => show(entry) },
    "aria-label": `${node.name}, ${node.state}, ${node.free} of ${node.slots} slots free, ${load} % other load`,
  }, busy, el("b", { "aria-hidden": "true" }, node.name), el("small", { "aria-hidden": "true" }, load ? `${used} · load ${load} %` : used));
}
