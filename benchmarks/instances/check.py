"""Checks a plan: ``python check.py INSTANCE PLAN`` prints its makespan, or the faults.

Beside the makespan it prints a bound that anybody can work out.

Standard library only, and no code of any solver: it needs nothing but this file. It knows what the
library's instances use of the formats ``coalloc-snapshot/1`` and ``coalloc-plan/1``: rigid,
moldable (``times``) and divisible jobs, powers, links, CPUs, memory and counted resources.
"""

from __future__ import annotations

import json
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

SECONDS = 1e-6
"""Times that differ by less are equal."""
SHARE = 1e-9
"""So are loads of a link, by their share of it."""

Json = dict[str, Any]
Use = tuple[float, float, dict[str, float], float]
"""From, to, an amount of each thing that is used, and by how much a fault must exceed it."""


class Instance:
    """A snapshot, by the names in it."""

    def __init__(self, snapshot: Json) -> None:
        self.jobs: dict[str, Json] = {job["id"]: job for job in snapshot["queue"]}
        self.nodes: dict[str, Json] = {}
        self.home: dict[str, str] = {}
        self.room: dict[str, float] = {}
        """Of each thing that can be full."""
        for cluster in snapshot["clusters"]:
            self.room[f"link of {cluster['name']}"] = cluster["link_gbps"]
            for node in cluster["nodes"]:
                name = node["name"]
                self.nodes[name], self.home[name] = node, cluster["name"]
                self.room[f"slots of {name}"] = node.get("slots", 1)
                self.room[f"memory of {name}"] = node.get("memory_mb", float("inf"))
                for resource, count in node.get("resources", {}).items():
                    self.room[f"{resource} of {name}"] = count


def faults(snapshot: Json, plan: Json) -> list[str]:
    """Faults of a plan; none: it is feasible."""
    case = Instance(snapshot)
    found: list[str] = []
    placed: dict[str, list[Json]] = defaultdict(list)
    for placement in plan["placements"]:
        if placement["job"] not in case.jobs:
            found.append(f"job {placement['job']}: there is none")
        elif unknown := placement["nodes"].keys() - case.nodes.keys():
            found.append(f"job {placement['job']}: no node {min(unknown)}")
        else:
            placed[placement["job"]].append(placement)
    for name, job in case.jobs.items():
        found += [f"job {name}: {why}" for why in _job_faults(case, job, placed[name])]
    uses = [use for each in placed.values() for one in each for use in _uses(case, one)]
    return found or list(_overloads(case, uses))


def makespan(plan: Json) -> float:
    """The last end, seconds."""
    return float(max(placement["end"] for placement in plan["placements"]))


def elementary_bound(snapshot: Json) -> float:
    """No plan ends sooner, seconds: the longest job, or all work at the pace of all slots."""
    nodes = [node for cluster in snapshot["clusters"] for node in cluster["nodes"]]
    powers = [node.get("power", 1.0) for node in nodes]
    pace = sum(node.get("slots", 1) * power for node, power in zip(nodes, powers, strict=True))
    longest = work = 0.0
    for job in snapshot["queue"]:
        sigma = job.get("sigma", 1.0)
        each = sigma / max(powers) + 1.0 - sigma, sigma + (1.0 - sigma) * min(powers)
        slots = job.get("shape", {}).get("cpus_per_proc") or 1
        if job["kind"] == "divisible":
            shapes = [(1, job["chunk_s"], -(-job["work"] // job["chunk_s"]) * job["chunk_s"])]
        elif job["kind"] == "moldable":
            shapes = [(n, time, n * time) for n, time in enumerate(job["times"], 1)]
        else:
            shapes = [(job["procs"], job["base_time"], job["procs"] * job["base_time"])]
        longest = max(longest, min(time for _, time, _ in shapes) * each[0])
        work += slots * min(area for *_, area in shapes) * each[1]
    return float(max(longest, work / pace))


def _job_faults(case: Instance, job: Json, placements: list[Json]) -> Iterator[str]:
    if job["kind"] == "divisible":
        needed = -(-job["work"] // job["chunk_s"])
        got = sum(placement.get("chunks") or 0 for placement in placements)
        if got != needed:
            yield f"{got} chunks are placed, and it has {needed}"
    elif len(placements) != 1:
        yield f"is placed {len(placements)} times"
    for placement in placements:
        yield from _placement_faults(case, job, placement)


def _placement_faults(case: Instance, job: Json, placement: Json) -> Iterator[str]:
    counts = placement["nodes"].values()
    if any(type(count) is not int or count < 1 for count in counts) or not counts:
        yield "a node without a process"
        return
    procs, spread = sum(counts), _inside(case, placement)
    if job["kind"] == "rigid" and procs != job["procs"]:
        yield f"has {procs} processes instead of {job['procs']}"
    if job["kind"] == "moldable" and procs > len(job["times"]):
        yield f"has {procs} processes, and {len(job['times'])} at most"
    keeps = job.get("one_cluster") or (job["kind"] == "moldable" and "proc_gbps" not in job)
    if len(spread) > 1 and keeps:
        yield "is split, and may not be"
    if placement["start"] < -SECONDS:
        yield f"starts at {placement['start']}"
    if placement.get("sc", 1.0) != 1.0:
        yield "accepts a saturated link"
    end = placement["start"] + _run_time(case, job, placement)
    if abs(end - placement["end"]) > SECONDS:
        yield f"ends at {placement['end']} instead of {end}"


def _inside(case: Instance, placement: Json) -> Counter[str]:
    """Processes in each cluster."""
    spread: Counter[str] = Counter()
    for node, count in placement["nodes"].items():
        spread[case.home[node]] += count
    return spread


def _run_time(case: Instance, job: Json, placement: Json) -> float:
    """Seconds: the weakest node sets the pace of what is computed, not of what is sent."""
    power = min(case.nodes[node].get("power", 1.0) for node in placement["nodes"])
    procs = sum(placement["nodes"].values())
    if job["kind"] == "divisible":
        turns = -(-placement["chunks"] // procs)
        return float(turns * job["chunk_s"] / power)
    times = job.get("times", ())
    base = job["base_time"] if job["kind"] == "rigid" else times[min(procs, len(times)) - 1]
    sigma = job.get("sigma", 1.0)
    return float(base * (sigma / power + 1.0 - sigma))


def _uses(case: Instance, placement: Json) -> Iterator[Use]:
    """Amounts that a placement takes of nodes and links, as long as it runs."""
    job = case.jobs[placement["job"]]
    taken: dict[str, float] = {}
    shape = job.get("shape", {})
    for node, count in placement["nodes"].items():
        taken[f"slots of {node}"] = count * (shape.get("cpus_per_proc") or 1)
        if memory := job.get("memory_mb_per_proc"):
            taken[f"memory of {node}"] = count * memory
        for resource, each in shape.get("per_proc", {}).items():
            taken[f"{resource} of {node}"] = count * each
    yield placement["start"], placement["end"], taken, 0.0
    spread, rate = _inside(case, placement), job.get("proc_gbps") or 0.0
    procs = sum(spread.values())
    if len(spread) > 1:
        loads = {
            f"link of {cluster}": rate * count * (procs - count) / (procs - 1)
            for cluster, count in spread.items()
        }
        yield placement["start"], placement["end"], loads, SHARE


def _overloads(case: Instance, uses: list[Use]) -> Iterator[str]:
    """Whatever is used beyond its room at an instant, once each."""
    by_thing: dict[str, list[tuple[float, float, float]]] = defaultdict(list)
    slack: dict[str, float] = {}
    for start, end, taken, share in uses:
        for thing, amount in taken.items():
            by_thing[thing].append((start, end, amount))
            slack[thing] = share
    for thing, spans in by_thing.items():
        room = case.room.get(thing, 0.0)
        # Ends count a little earlier: what begins as another ends does not meet it.
        changes = sorted(
            change
            for start, end, amount in spans
            for change in ((start, amount), (max(start, end - 2.0 * SECONDS), -amount))
        )
        level = 0.0
        for at, amount in changes:
            level += amount
            if level > room * (1.0 + slack[thing]) + 1e-12:
                yield f"at {at:g} s {level:g} is used of the {room:g} {thing}"
                break


def main(arguments: list[str]) -> int:
    """Check one plan; 0: it is feasible, 1: it is not, 2: a file cannot be read."""
    if len(arguments) != 2:
        print("usage: python check.py INSTANCE PLAN", file=sys.stderr)
        return 2
    read: list[Json] = []
    for path in arguments:
        try:
            with open(path, encoding="utf-8") as file:
                read.append(json.load(file))
        except (OSError, ValueError) as error:
            print(f"error: {path}: {error}", file=sys.stderr)
            return 2
    snapshot, plan = read
    found = faults(snapshot, plan)
    if found:
        print("\n".join(found))
        return 1
    print(f"feasible, makespan {makespan(plan):.6f}, at least {elementary_bound(snapshot):.6f}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
