// The list of jobs, and the page of one.

import { clock, count, el, figure, folded, jobLink, span, state, table } from "./dom.js";
import { REASONS } from "./overview.js";

const STATES = [["", "all"], ["active", "on nodes"], ["waiting", "waiting"], ["ended", "ended"], ["failed", "failed"]];
const PAGE = 100;

export function jobs(site, parameters) {
  const rows = el("div", {}), more = el("p", { class: "bar" });
  const asked = (name) => parameters.get(name) ?? "";
  const link = (change) => {
    const next = new URLSearchParams(parameters);
    for (const [name, value] of Object.entries(change)) if (value) next.set(name, value); else next.delete(name);
    return `#/jobs?${next}`;
  };
  const filters = el("nav", { class: "filters", "aria-label": "States" }, STATES.map(([name, text]) =>
    el("a", { href: link({ state: name, offset: "" }), "aria-current": asked("state") === name ? "true" : null }, text)));
  const only = ["q", "user", "cluster", "reason"].filter(asked).map((name) =>
    el("a", { class: "chip", href: link({ [name]: "", offset: "" }), title: "Remove this filter" },
      name === "q" ? `“${asked("q")}”` : `${name}: ${REASONS[asked(name)] ?? asked(name)}`, " ×"));
  const view = el("div", {}, el("div", { class: "bar" }, el("h1", {}, "Jobs"), filters, only), rows, more);

  const update = async () => {
    const offset = Number(asked("offset")) || 0;
    const query = new URLSearchParams(parameters);
    query.set("limit", PAGE);
    const found = await site.feed.get(`jobs?${query}`);
    const now = site.feed.now();
    rows.replaceChildren(table(`${count(found.total, "job")}, the newest first`, [
      ["Job", (job) => jobLink(job.id)], ["Name", (job) => job.name],
      ["User", (job) => el("a", { href: link({ user: job.user, offset: "" }) }, job.user)],
      ["State", (job) => state(job.state)], ["Procs", (job) => String(job.procs), true],
      ["Submitted", (job) => clock(job.submitted), true],
      ["Waited", (job) => span((job.started ?? job.ended ?? now) - job.submitted), true],
      ["Start", (job) => job.started ? clock(job.started) : job.start_estimate ? `≈ ${clock(job.start_estimate)}` : "–", true],
      ["Run", (job) => job.started ? span((job.ended ?? now) - job.started) : "–", true],
      ["Where or why", (job) => where(job)],
    ], found.jobs, site.feed.status?.loaded ? "no job matches" : "not read yet"));
    more.replaceChildren(
      offset ? el("a", { href: link({ offset: String(Math.max(0, offset - PAGE)) }) }, "newer") : "",
      found.more ? el("a", { href: link({ offset: String(offset + PAGE) }) }, "older") : "");
  };
  return { view, update, title: "Jobs" };
}

function where(job) {
  const nodes = Object.keys(job.nodes);
  if (nodes.length) return `${job.clusters.join(" + ")}: ${folded(nodes)}`;
  if (job.state === "pending" || job.state === "held") return job.detail || REASONS[job.reason] || job.reason;
  return job.detail;
}

export function job(site, parameters, id) {
  const title = el("h1", {}, `Job ${id}`), body = el("div", { class: "job" }), why = el("section", { class: "panel", hidden: true });
  const view = el("div", {}, el("div", { class: "bar" }, title,
    el("button", { type: "button", on: { click: () => site.showInGantt(id) } }, "Show in the Gantt chart")), why, body);
  let askedIn = null;

  const update = async () => {
    const found = await site.feed.get(`jobs/${encodeURIComponent(id)}`);
    const row = found.details ?? found.row;
    title.replaceChildren(`Job ${id} `, el("span", { class: "quiet" }, row.name), " ", state(row.state));
    body.replaceChildren(...sections(found, row, site.feed.now()));
    const isWaiting = row.state === "pending" || row.state === "held";
    why.hidden = !isWaiting;
    const round = site.feed.status?.daemon?.rounds;
    if (isWaiting && askedIn !== round) {
      askedIn = round;
      if (!why.childElementCount) why.replaceChildren(el("h2", {}, "Why it waits"), el("p", {}, "asking the daemon…"));
      try {
        showWhy(why, (await site.feed.get(`jobs/${encodeURIComponent(id)}/why`)).why);
      } catch (error) {
        why.replaceChildren(el("h2", {}, "Why it waits"), el("p", {}, String(error.message)));
      }
    }
  };
  return { view, update, title: `Job ${id}` };
}

function showWhy(place, why) {
  place.replaceChildren(el("h2", {}, "Why it waits"),
    el("p", {}, el("b", {}, why.detail || why.reason)),
    why.start_estimate ? el("p", {}, "Expected start: ", el("b", { class: "mono" }, clock(why.start_estimate)), likely(why)) : "",
    el("ul", {}, [...why.lines, ...why.facts].map((line) => el("li", {}, line))),
    why.unexplained ? el("p", { class: "quiet" }, why.unexplained) : "");
}

function likely(row) {
  return row.start_early && row.start_late ? ` (nine times of ten between ${clock(row.start_early)} and ${clock(row.start_late)})` : "";
}

function sections(found, row, now) {
  const details = found.details, record = details?.record;
  const begin = row.started ?? row.start_estimate;
  const end = row.ended ?? (record?.planned && begin ? begin + record.planned : row.started && row.time_limit ? row.started + row.time_limit : null);
  const facts = [
    ["user", row.user], ["processes", String(row.procs)], ["submitted", clock(row.submitted)],
    ["waited", span((row.started ?? row.ended ?? now) - row.submitted)],
    [row.started ? "started" : "expected start", clock(begin) + (row.started ? "" : likely(row))],
    [row.ended ? "ended" : "expected end", end ? clock(end) : "–"],
    ["run time", row.started ? span((row.ended ?? now) - row.started) : "–"],
    ["time limit", row.time_limit ? span(row.time_limit) : row.ended ? "–" : "none"],
    ["exit code", row.exit_code === null ? "–" : String(row.exit_code)],
    ["clusters", row.clusters.join(" + ") || "–"], ["nodes", folded(Object.keys(row.nodes)) || "–"],
  ];
  const asked = Object.entries(row.shape).map(([key, value]) =>
    `${key.replaceAll("_", " ")} ${typeof value === "object" ? Object.entries(value).map((one) => one.join(": ")).join(", ") : value}`);
  if (asked.length) facts.push(["asks for", asked.join("; ")]);
  if (row.skew_ms !== null) facts.push(["between its parts' starts", `${figure(row.skew_ms, 3)} ms`]);
  if (row.detail) facts.push(["remark", row.detail]);
  if (row.progress) facts.push(["progress", `${row.progress.completed} of ${row.progress.total} ${row.progress.unit}`]);
  if (found.output) facts.push(["output", found.output]);
  if (details) facts.push(["command", details.launch.argv.join(" ")], ["folder", details.launch.cwd ?? "/"], ["placed by", record.policy ? `${record.policy}, round ${record.round}` : "–"]);
  const out = [el("dl", { class: "facts panel" }, facts.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value))))];
  if (!details) out.push(el("p", { class: "quiet" }, `Command and output: ${found.withheld}.`));
  if (record?.parts) out.push(table("Parts", [
    ["Cluster", (part) => part.cluster], ["State", (part) => state(part.state ?? "preparing")],
    ["Processes", (part) => String(Object.values(part.nodes).reduce((a, b) => a + b, 0)), true],
    ["Link", (part) => record.link_gbps?.[part.cluster] ? `${figure(record.link_gbps[part.cluster], 3)} Gb/s` : "–", true],
    ["Started", (part) => clock(part.started), true], ["Ended", (part) => clock(part.ended), true],
    ["Exit", (part) => String(part.exit_code ?? "–"), true],
    ["Nodes", (part) => folded(Object.keys(part.nodes))],
  ], record.parts));
  const members = details ? [...details.tasks, ...details.pieces] : [];
  if (members.length) out.push(table("Tasks and pieces", [
    ["Id", (one) => jobLink(one.id)], ["Name", (one) => one.task ?? `chunks from ${one.first}`],
    ["State", (one) => state(one.state)], ["Start", (one) => clock(one.started ?? one.start_estimate), true],
    ["Run", (one) => one.started ? span((one.ended ?? now) - one.started) : "–", true],
    ["Nodes", (one) => folded(Object.keys(one.nodes))],
  ], members.slice(0, 500)));
  out.push(table("History", [
    ["When", (event) => clock(event.time), true], ["What", (event) => event.kind.replaceAll("_", " ")],
    ["Details", (event) => Object.entries(event.fields).filter(([, value]) => value !== "" && value !== null).map(([name, value]) => `${name.replaceAll("_", " ")} ${shown(value)}`).join(", ")],
  ], found.events, "older than what is kept"));
  return out;
}

function shown(value) {
  if (value && typeof value === "object" && !Array.isArray(value)) return folded(Object.keys(value));
  return Array.isArray(value) ? value.join(" + ") : String(value ?? "–");
}
