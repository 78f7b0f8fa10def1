"""An exact model of the scheduling problem in CP-SAT, for comparison with our own search.

``python -m tests.support.cpsat_oas`` reads one JSON object a line and writes one a line. It imports
nothing of coalloc (ortools and highspy do not go into one process), and is written from the
definition of the formats: one variable for each job and node, no classes, no patterns.

In: ``{"snapshot": {...}, "options": {...}, "objective": "makespan"}``; the snapshot names every
node by itself, and all times are multiples of a millisecond. Rigid jobs, and moldable ones with
``times``, and their shapes; no workflows.
Out: ``{"status": "optimal", "values": [makespan], "bounds": [makespan], "placed": [ids]}``, values
and bounds in the order of the objective; where time ran out in the last one, the status is ``open``
and its value and bound differ.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ortools.sat.python import cp_model

UNITS = 1000
"""Of time in a second."""
SHARES = 10**9
"""Of a link's capacity."""
LIMIT_S = 60.0
TENTHS = 10
"""Weights are multiples of 1 / 10."""
NODE = {"power": 1.0, "slots": 1, "features": [], "resources": {}, "cpus_per_core": 1}


def ticks(seconds: float) -> int:
    """Seconds in whole units; they must be whole."""
    units = round(seconds * UNITS)
    if abs(seconds * UNITS - units) > 1e-4:
        raise ValueError(f"{seconds} s is no multiple of 1/{UNITS} s")
    return units


@dataclass
class Site:
    """The usable nodes, with what holds them and the links."""

    now: float
    overrun: float
    nodes: dict[str, dict[str, Any]]
    clusters: list[dict[str, Any]]
    running: list[dict[str, Any]]
    reservations: list[dict[str, Any]]
    resources: dict[str, int]
    ends: dict[str, float] = field(default_factory=dict)


def read_site(snapshot: dict[str, Any]) -> Site:
    now, overrun = snapshot.get("time", 0.0), snapshot.get("overrun_s", 60.0)
    nodes = {}
    for cluster in snapshot["clusters"]:
        for node in cluster["nodes"]:
            if node.get("state", "up") == "up" and not cluster.get("stale", False):
                nodes[node["name"]] = {**NODE, **node}
                nodes[node["name"]]["cluster"] = cluster["name"]
    running = snapshot.get("running", [])
    ends = {job["id"]: max(job["end"], now + overrun) for job in running}
    return Site(
        now=now,
        overrun=overrun,
        nodes=nodes,
        clusters=snapshot["clusters"],
        running=running,
        reservations=snapshot.get("reservations", []),
        resources=snapshot.get("resources", {}),
        ends=ends,
    )


def allotments(job: dict[str, Any]) -> list[tuple[int, float]]:
    """Processes and base time of each choice."""
    if job["kind"] == "rigid":
        return [(job["procs"], job["base_time"])]
    return list(enumerate(job["times"], start=1))


def duration(job: dict[str, Any], base: float, power: float) -> int:
    """Te = base * (sigma / power + 1 - sigma)."""
    sigma = job.get("sigma", 1.0)
    return ticks(base * (sigma / power + (1.0 - sigma)))


def in_families(amounts: Mapping[str, int]) -> Counter[str]:
    """The amounts of types, by family."""
    out = Counter[str]()
    for name, count in amounts.items():
        if ":" in name:
            out[name.split(":")[0]] += count
    return out


def sizes(node: dict[str, Any]) -> dict[str, int]:
    """What a node has, each by its name; no memory where that is not counted."""
    out = {**node["resources"], **(Counter(node["resources"]) | in_families(node["resources"]))}
    memory = node.get("memory_mb")
    return {**out, "slots": node["slots"]} | ({} if memory is None else {"memory": memory})


def takes(job: dict[str, Any], node: dict[str, Any], procs: int) -> dict[str, int]:
    """What so many processes take of a node."""
    if not procs:
        return {}
    shape, has = job.get("shape", {}), sizes(node)
    out = Counter(slots=procs)
    if cpus := shape.get("cpus_per_proc", 0):
        whole = -(-procs * cpus // node["cpus_per_core"]) * node["cpus_per_core"]
        out["slots"] = -(-whole * node["slots"] // (node.get("cpus") or node["slots"]))
    for key, times in (("per_node", 1), ("per_proc", procs)):
        amounts = shape.get(key, {})
        for name, count in (Counter(amounts) + in_families(amounts)).items():
            out[name] += count * times
    if shape.get("exclusive"):
        out |= Counter(has)
    out["memory"] = job.get("memory_mb_per_proc", 0) * procs + shape.get("memory_mb_per_node", 0)
    if shape.get("all_memory"):
        out["memory"] = has.get("memory", 0)
    return {n: count for n, count in out.items() if count and (n != "memory" or n in has)}


def held(work: dict[str, Any], node: dict[str, Any]) -> dict[str, int]:
    """What running work holds of a node; what it tells of memory, or its share."""
    name, has = node["name"], sizes(node)
    named = work.get("resources", {}).get(name, {})
    share = has.get("memory", 0) * work["nodes"][name] // node["slots"]
    memory = work.get("memory_mb", {}).get(name, share)
    return {**(Counter(named) + in_families(named)), "slots": work["nodes"][name], "memory": memory}


def may_use(job: dict[str, Any], node: dict[str, Any]) -> bool:
    allowed = job.get("clusters")
    if allowed is not None and node["cluster"] not in allowed:
        return False
    return set(job.get("features", [])) <= set(node["features"])


def single_cluster(site: Site, job: dict[str, Any], options: dict[str, Any]) -> bool:
    """Whether the job must stay inside one cluster."""
    rule = options.get("coallocation", "sooner")
    if rule == "forbidden":
        return True
    known = job["kind"] == "rigid" or job.get("proc_gbps") is not None
    if not known and not options.get("coallocate_moldable", False):
        return True
    if rule != "needed":
        return False
    room: dict[str, int] = {}
    for node in site.nodes.values():
        if may_use(job, node):
            room[node["cluster"]] = room.get(node["cluster"], 0) + node["slots"]
    return min(n for n, _ in allotments(job)) <= max(room.values(), default=0)


class Program:
    """Variables and constraints for some of the jobs."""

    def __init__(
        self, site: Site, jobs: list[dict[str, Any]], options: dict[str, Any], empty: bool = False
    ) -> None:
        self.model = cp_model.CpModel()
        self.site, self.jobs, self.options = site, jobs, options
        running = [] if empty else site.running
        levels = {node["power"] for node in site.nodes.values()} or {1.0}
        longest = [
            max(duration(job, t, p) for _, t in allotments(job) for p in levels) for job in jobs
        ]
        events = [job.get("earliest", site.now) for job in jobs] + list(site.ends.values())
        events += [node.get("free_at", site.now) for node in site.nodes.values()]
        events += [kept["end"] for kept in site.reservations]
        self.horizon = ticks(max([site.now, *events])) + sum(longest)
        self.start: dict[str, Any] = {}
        self.end: dict[str, Any] = {}
        self.spans: list[Any] = []
        self.inside: dict[tuple[str, str], Any] = {}
        self.on: dict[tuple[str, str], Any] = {}
        for job in jobs:
            self._add_job(job)
        self._add_order()
        self._add_nodes(running)
        self._add_licences()
        self._add_links(running)
        if not empty:
            self._add_reservations()

    def _add_job(self, job: dict[str, Any]) -> None:
        model, site, name = self.model, self.site, job["id"]
        first = ticks(max(site.now, job.get("earliest", site.now)))
        start = self.start[name] = model.new_int_var(first, self.horizon, f"start {name}")
        end = self.end[name] = model.new_int_var(first, self.horizon, f"end {name}")
        powers = sorted({node["power"] for node in site.nodes.values()})
        choices = [
            (n, power, duration(job, base, power), model.new_bool_var(""))
            for n, base in allotments(job)
            for power in powers
        ]
        model.add_exactly_one(literal for *_, literal in choices)
        length = model.new_int_var(0, self.horizon, "")
        model.add(length == sum(seconds * literal for _, _, seconds, literal in choices))
        self.spans.append(model.new_interval_var(start, length, end, f"span {name}"))
        shape, used = job.get("shape", {}), []
        for node_name, node in site.nodes.items():
            count = self.on[name, node_name] = model.new_int_var(0, self._most(job, node), "")
            if shape:
                used.append(model.new_bool_var(""))
                model.add(count > 0).only_enforce_if(used[-1])
                model.add(count == 0).only_enforce_if(~used[-1])
            for _, power, _, literal in choices:
                if power > node["power"]:
                    model.add(count == 0).only_enforce_if(literal)
        if shape:
            nodes = shape.get("min_nodes", 1), shape.get("max_nodes") or len(used)
            model.add_linear_constraint(sum(used), *nodes)
        procs = sum(self.on[name, node] for node in site.nodes)
        model.add(procs == sum(n * literal for n, _, _, literal in choices))
        whole = []
        for cluster in site.clusters:
            here = sum(
                self.on[name, node]
                for node, n in site.nodes.items()
                if n["cluster"] == cluster["name"]
            )
            count = model.new_int_var(0, 1000, "")
            model.add(count == here)
            self.inside[name, cluster["name"]] = count
            inside = self.inside[name, f"used {cluster['name']}"] = model.new_bool_var("")
            model.add(count == 0).only_enforce_if(~inside)
            whole.append(inside)
        if single_cluster(site, job, self.options):
            model.add_at_most_one(whole)
        self._add_loads(job, choices)

    def _most(self, job: dict[str, Any], node: dict[str, Any]) -> int:
        """Processes that the empty node takes."""
        most, has = 0, sizes(node)
        highest = job.get("shape", {}).get("procs_per_node") or max(n for n, _ in allotments(job))
        while most < highest and may_use(job, node):
            if any(n > has.get(what, 0) for what, n in takes(job, node, most + 1).items()):
                break
            most += 1
        return most

    def _add_loads(self, job: dict[str, Any], choices: list[Any]) -> None:
        """BW = gbps * t * (n - t) / (n - 1) as a table over n and t."""
        gbps, name = job.get("proc_gbps") or 0.0, job["id"]
        procs = self.model.new_int_var(0, 1000, "")
        self.model.add(procs == sum(n * literal for n, _, _, literal in choices))
        for cluster in self.site.clusters:
            capacity = cluster.get("link_gbps")
            if capacity is None or gbps == 0.0:
                continue
            rows = []
            for n, _ in allotments(job):
                for t in range(n + 1):
                    load = gbps * t * (n - t) / (n - 1) if n > 1 else 0.0
                    share = load / capacity if load and capacity else 2.0 if load else 0.0
                    if share <= 1.5:
                        rows.append((n, t, round(share * SHARES)))
            load = self.model.new_int_var(0, 2 * SHARES, "")
            here = self.inside[name, cluster["name"]]
            self.model.add_allowed_assignments([procs, here, load], rows)
            self.inside[name, f"load {cluster['name']}"] = load

    def _add_order(self) -> None:
        for job in self.jobs:
            for other in job.get("after", []):
                if other in self.end:
                    self.model.add(self.start[job["id"]] >= self.end[other])
                elif other in self.site.ends:
                    self.model.add(self.start[job["id"]] >= ticks(self.site.ends[other]))

    def _add_nodes(self, running: list[dict[str, Any]]) -> None:
        site, model = self.site, self.model
        for name, node in site.nodes.items():
            for what, size in sizes(node).items():
                uses = [self._use(job, node, what) for job in self.jobs]
                spans = list(self.spans)
                for job in running:
                    if name in job["nodes"]:
                        spans.append(self._until(site.ends[job["id"]]))
                        uses.append(min(held(job, node).get(what, 0), size))
                model.add_cumulative(spans, uses, size)
            free_at = node.get("free_at", site.now)
            if free_at > site.now:
                for job in self.jobs:
                    late = model.new_bool_var("")
                    model.add(self.start[job["id"]] >= ticks(free_at)).only_enforce_if(late)
                    model.add(self.on[job["id"], name] == 0).only_enforce_if(~late)

    def _use(self, job: dict[str, Any], node: dict[str, Any], what: str) -> Any:
        """What a job takes of a resource of a node: a table over its processes there."""
        count, most = self.on[job["id"], node["name"]], self._most(job, node)
        rows = [(n, takes(job, node, n).get(what, 0)) for n in range(most + 1)]
        if all(n == amount for n, amount in rows):
            return count
        amount = self.model.new_int_var(0, max(amount for _, amount in rows), "")
        self.model.add_allowed_assignments([count, amount], rows)
        return amount

    def _add_licences(self) -> None:
        """Of each cluster that a job uses, and of the site."""
        pools = [(cluster["name"], cluster.get("resources", {})) for cluster in self.site.clusters]
        for job in self.jobs:
            for name in job.get("shape", {}).get("per_job", {}):
                for home, has in pools if name not in self.site.resources else ():
                    if name not in has:
                        self.model.add(self.inside[job["id"], home] == 0)
        for home, has in (*pools, ("", self.site.resources)):
            for name, size in has.items():
                uses = [job.get("shape", {}).get("per_job", {}).get(name, 0) for job in self.jobs]
                for i, job in enumerate(self.jobs):
                    if home and uses[i]:
                        uses[i] *= self.inside[job["id"], f"used {home}"]
                self.model.add_cumulative(self.spans, uses, size)

    def _until(self, end: float) -> Any:
        begin = ticks(self.site.now)
        return self.model.new_fixed_size_interval_var(begin, ticks(end) - begin, "")

    def _add_links(self, running: list[dict[str, Any]]) -> None:
        for cluster in self.site.clusters:
            key, capacity = f"load {cluster['name']}", cluster.get("link_gbps")
            spans, takes = [], []
            for job, span in zip(self.jobs, self.spans, strict=True):
                if (job["id"], key) in self.inside:
                    spans.append(span)
                    takes.append(self.inside[job["id"], key])
            if not spans:
                continue
            others = 0
            for job in running:
                gbps = job.get("link_gbps", {}).get(cluster["name"])
                if gbps:
                    share = min(round(gbps / capacity * SHARES), SHARES) if capacity else SHARES
                    spans.append(self._until(self.site.ends[job["id"]]))
                    takes.append(share)
                    others += share
            # what runs may overload a link by itself; nothing loads it beside that
            most = SHARES + len(spans)
            if others > most:
                raise ValueError("running work overloads a link: not modelled")
            self.model.add_cumulative(spans, takes, most)

    def _add_reservations(self) -> None:
        for kept in self.site.reservations:
            for job in self.jobs:
                if job["id"] in kept.get("jobs", []) or kept["end"] <= self.site.now:
                    continue
                name = job["id"]
                before, behind = self.model.new_bool_var(""), self.model.new_bool_var("")
                self.model.add(self.end[name] <= ticks(kept["start"])).only_enforce_if(before)
                self.model.add(self.start[name] >= ticks(kept["end"])).only_enforce_if(behind)
                for node in kept["nodes"]:
                    if node in self.site.nodes:
                        free = self.model.new_bool_var("")
                        self.model.add(self.on[name, node] == 0).only_enforce_if(free)
                        self.model.add_bool_or(before, behind, free)

    def makespan(self) -> Any:
        last = self.model.new_int_var(0, self.horizon, "last")
        self.model.add_max_equality(last, list(self.end.values()))
        return last - ticks(self.site.now)

    def completion(self) -> Any:
        now = ticks(self.site.now)
        tenths = {job["id"]: round(job.get("weight", 1.0) * TENTHS) for job in self.jobs}
        return sum(tenths[name] * (end - now) for name, end in self.end.items())

    def least(self, objective: Any) -> tuple[int, int]:
        """Minimise; value and bound, equal if proved in time."""
        self.model.minimize(objective)
        status, value, bound = self.solve()
        if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            raise TimeoutError("no plan found in time")
        return round(value), round(value if status == cp_model.OPTIMAL else bound)

    def solve(self) -> tuple[Any, float, float]:
        solver = cp_model.CpSolver()
        solver.parameters.num_workers = 1
        solver.parameters.max_time_in_seconds = LIMIT_S
        status = solver.solve(self.model)
        known = status in (cp_model.OPTIMAL, cp_model.FEASIBLE)
        return status, solver.objective_value if known else 0.0, solver.best_objective_bound


def placeable(site: Site, queue: list[dict[str, Any]], options: dict[str, Any]) -> list[Any]:
    """The jobs that fit on the empty usable nodes, and wait for none that does not."""
    names = {job["id"] for job in queue}
    good = set()
    for job in queue:
        if not job.get("held", False) and site.nodes:
            alone = {**job, "after": [], "earliest": site.now}
            if Program(site, [alone], options, empty=True).solve()[0] == cp_model.OPTIMAL:
                good.add(job["id"])
    while True:
        waits = {
            job["id"]
            for job in queue
            if job["id"] in good and (set(job.get("after", [])) & names) - good
        }
        if not waits:
            return [job for job in queue if job["id"] in good]
        good -= waits


def answer(case: dict[str, Any]) -> dict[str, Any]:
    site, options = read_site(case["snapshot"]), case.get("options", {})
    jobs = placeable(site, case["snapshot"]["queue"], options)
    placed = [job["id"] for job in jobs]
    if not jobs:
        return {"status": "optimal", "values": [], "bounds": [], "placed": placed}
    found: list[tuple[int, int]] = []
    if case["objective"] != "weighted_completion":
        program = Program(site, jobs, options)
        found.append(program.least(program.makespan()))
    if case["objective"] != "makespan":
        program = Program(site, jobs, options)
        if found:
            program.model.add(program.makespan() <= found[0][0])
        found.append(program.least(program.completion()))
    scales = {"makespan": [1], "weighted_completion": [TENTHS]}.get(case["objective"], [1, TENTHS])
    values, bounds = (
        [pair[x] / UNITS / scale for pair, scale in zip(found, scales, strict=True)] for x in (0, 1)
    )
    return {
        "status": "optimal" if values == bounds else "open",
        "values": values,
        "bounds": bounds,
        "placed": placed,
    }


def main() -> None:
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
