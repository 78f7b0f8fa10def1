"""Plans that are right, late, out of date, cut short, or do not come at all."""

from __future__ import annotations

import random

from coalloc.core.base.effects import Solve
from coalloc.core.base.events import IncumbentFound, Solved, SolveFailed
from coalloc.core.jobs.suitable_nodes import laid_out
from coalloc.model.cost import link_loads
from coalloc.model.jobs import RigidJob
from coalloc.model.plan import Placement, Plan
from coalloc.model.shape import ONE_SLOT, most_procs
from coalloc.model.snapshot import Snapshot
from coalloc.model.values import replace
from tests.support.core_site import first_fit

Answer = Solved | IncumbentFound | SolveFailed


class Planner:
    """The solver's process: it answers after a while, or fails."""

    def __init__(self, dice: random.Random) -> None:
        self._dice = dice
        self._due: list[tuple[float, Answer]] = []
        self.faults = 0.0
        self.slow: random.Random | None = None
        """Decides which rigid jobs get nodes on which they take longer."""

    def forget(self) -> None:
        """The daemon that asked is gone."""
        self._due = []

    def ask(self, solve: Solve, now: float) -> None:
        dice = self._dice
        if dice.random() < 0.5 * self.faults:
            failed = SolveFailed(round=solve.round, policy=solve.policy, why="killed", solve_s=1.0)
            self._due.append((now + 1.0, failed))
            return
        plan = first_fit(solve.snapshot)
        plan = ahead(carried(plan, solve.snapshot), solve.snapshot)
        if solve.snapshot.reservations and dice.random() < 0.7:
            plan = beside(plan, solve.snapshot)
        if self.slow is not None:
            plan = slowed(plan, self.slow)
        takes = dice.choice([0.0, 0.0, 0.2, 3.0]) if self.faults else 0.0
        if dice.random() < 0.5:
            # Another order, other nodes: the final plan says something else of both.
            queue = list(solve.snapshot.queue)
            dice.shuffle(queue)
            other = replace(solve.snapshot, queue=tuple(queue))
            first = carried(first_fit(other), other)
            some = first.placements[: dice.randrange(len(first.placements) + 1)]
            first = replace(first, placements=some)
            self._due.append((now + 0.5 * takes, IncumbentFound(round=solve.round, plan=first)))
        self._due.append((now + takes, Solved(round=solve.round, plan=plan, solve_s=takes)))

    def answer(self, now: float) -> Answer | None:
        """The next answer that is there by now."""
        for n, (at, answer) in enumerate(self._due):
            if at <= now:
                del self._due[n]
                return answer
        return None


def slowed(plan: Plan, dice: random.Random) -> Plan:
    """With some jobs that take longer than they would on full-speed nodes."""
    placements = []
    for placement in plan.placements:
        factor = dice.choice([1.0, 4.0, 20.0])
        if placement.task is None and placement.chunks is None:
            end = placement.start + factor * (placement.end - placement.start)
            placement = replace(placement, end=end)
        placements.append(placement)
    return replace(plan, placements=tuple(placements))


def ahead(plan: Plan, snapshot: Snapshot) -> Plan:
    """With a later placement, on whatever nodes there are, for each rigid job without any."""
    placed = {placement.job for placement in plan.placements}
    up = [
        (cluster.name, node)
        for cluster, node in snapshot.nodes()
        if node.state == "up" and not cluster.stale
    ]
    later = []
    for job in snapshot.queue:
        if not isinstance(job, RigidJob) or job.id in placed or job.held or job.after:
            continue
        named = [n for name, n in up if job.clusters is None or name in job.clusters]
        is_plain = job.shape == ONE_SLOT
        each_mb = job.memory_mb_per_proc
        most = {n.name: n.slots if is_plain else most_procs(job.shape, each_mb, n) for n in named}
        nodes = laid_out(job.shape, job.procs, most)
        if sum(nodes.values()) == job.procs:
            start = snapshot.time + 60.0
            later.append(Placement(job=job.id, start=start, end=start + 60.0, nodes=nodes))
    return replace(plan, placements=(*plan.placements, *later))


def beside(plan: Plan, snapshot: Snapshot) -> Plan:
    """Without the placements on nodes that are kept for other jobs then."""
    kept = [
        placement
        for placement in plan.placements
        if not any(
            one.start < placement.end
            and one.end > placement.start
            and placement.job not in one.jobs
            and placement.nodes.keys() & set(one.nodes)
            for one in snapshot.reservations
        )
    ]
    return replace(plan, placements=tuple(kept))


def carried(plan: Plan, snapshot: Snapshot) -> Plan:
    """Without the placements that the links cannot carry beside what runs."""
    home = {node.name: cluster.name for cluster, node in snapshot.nodes()}
    left = {cluster.name: cluster.link_gbps for cluster in snapshot.clusters}
    for running in snapshot.running:
        for name, load in running.link_gbps.items():
            left[name] -= load
    jobs = {job.id: job for job in snapshot.queue}
    kept = []
    for placement in plan.placements:
        job = jobs[placement.job]
        if not isinstance(job, RigidJob):
            kept.append(placement)
            continue
        inside: dict[str, int] = {}
        for node, count in placement.nodes.items():
            inside[home[node]] = inside.get(home[node], 0) + count
        loads = link_loads(job.proc_gbps, inside)
        if all(load <= left[name] + 1e-9 for name, load in loads.items()):
            for name, load in loads.items():
                left[name] -= load
            kept.append(placement)
    return replace(plan, placements=tuple(kept))
