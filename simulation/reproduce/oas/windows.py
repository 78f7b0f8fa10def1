"""Windows of real job logs, replayed on line with the real run times.

Notes
-----
The rule. A window is `jobs` consecutive jobs of a log; the first job of window n stands at
(n - 1/2) / `MOST` of it (97 jobs further on for each step of the seed). The jobs are those of
`simulate`: the user's estimate is what planning sees, the run time of the log is when a job ends,
all processing and no communication. Times between submissions are scaled so that work arrives
`LOAD` times as fast as the machine can do it: whole logs leave the queue empty most of the time,
and where nothing waits there is nothing to order. The machine starts empty and runs until the
last job has ended.

The history that policies see is what a daemon would have: of each user the ratios run time by
estimate of the last jobs before the window, as many as the daemon keeps.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from coalloc.adapters.formats.platforms import Platform
from coalloc.adapters.formats.swf_jobs import LoggedJob
from coalloc.core.base.effects import Solve
from coalloc.core.learning.estimates import history_for, remembered
from coalloc.model.history import NO_HISTORY, History
from coalloc.model.plan import Plan
from coalloc.model.platform import Cluster, Node
from coalloc.model.snapshot import Snapshot
from coalloc.model.values import replace
from coalloc.policies.base import Budget
from coalloc.policies.checking.check import check
from coalloc.policies.options import read_options
from coalloc.policies.registry import lookup
from coalloc.simulation.general import replay_general
from coalloc.simulation.metrics import TAU_S
from coalloc.simulation.online.pieces import LOGS as KNOWN
from coalloc.simulation.online.pieces import Log, find_data, read_log
from coalloc.simulation.reproduce.solving import NotAllowedError
from coalloc.simulation.trace import Outcome
from coalloc.simulation.workload import Workload, map_slots

MOST = 3
"""Windows that fit side by side into a log."""
LOAD = 3.0
"""Work that arrives by what the machine can do."""


LOGS = (KNOWN["KTH-SP2"], KNOWN["HPC2N"])


def halves(log: Log) -> Platform:
    """The machine of a log as two equal clusters."""
    nodes = range(log.nodes // 2)
    return Platform(
        name=log.name,
        clusters=tuple(
            Cluster(
                name=f"c{k}",
                nodes=tuple(Node(name=f"c{k}n{n}", slots=log.slots) for n in nodes),
            )
            for k in range(2)
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """Some jobs of a log, and what is known before the first of them."""

    log: Log
    first: int
    """Number of the first job among the usable ones of the log."""
    workload: Workload
    ratios: Mapping[str, tuple[float, ...]]


def windows(log: Log, count: int, jobs: int, seed: int) -> list[Window]:
    """Cut windows out of a log, by the rule of this module.

    Raises `NoDataError`, and `InputError` if the log cannot be read.
    """
    usable, capacity = read_log(log, find_data()).jobs, log.nodes * log.slots
    step = (len(usable) - jobs) / MOST
    out = []
    for n in range(count):
        first = int((n + 0.5) * step + 97 * seed) % (len(usable) - jobs)
        ratios: dict[str, tuple[float, ...]] = {}
        for logged in usable[:first]:
            ratio = logged.run_s / logged.job.base_time
            ratios[logged.user] = remembered(ratios.pop(logged.user, ()), ratio)
        chosen = _compressed(usable[first : first + jobs], capacity)
        workload = Workload(name=f"{log.name}@{first}", jobs=chosen)
        out.append(Window(log=log, first=first, workload=workload, ratios=ratios))
    return out


def _compressed(jobs: Sequence[LoggedJob], capacity: int) -> tuple[LoggedJob, ...]:
    """The jobs with their submissions scaled to the load."""
    work = sum(logged.run_s * logged.job.procs for logged in jobs)
    begin, end = jobs[0].job.submitted, jobs[-1].job.submitted
    scale = work / (LOAD * capacity) / max(end - begin, 1.0)
    return tuple(
        replace(logged, job=replace(logged.job, submitted=at, earliest=at))
        for logged in jobs
        for at in [(logged.job.submitted - begin) * scale]
    )


@dataclass(kw_only=True)
class _Caller:
    """The policy as a replay calls it, with time taken and every plan checked."""

    window: Window
    policy: str
    options: Mapping[str, Any]
    work: int
    seed: int
    cpu: list[float] = field(default_factory=list)
    queued: list[int] = field(default_factory=list)
    promised: list[float] = field(default_factory=list)
    previous: tuple[str, ...] = ()

    def history(self, snapshot: Snapshot) -> History:
        """History of the users of these jobs; the replay numbers jobs from 1."""
        if not self.options.get("scenarios"):
            return NO_HISTORY
        ids = [job.id for job in (*snapshot.queue, *snapshot.running)]
        keys = {job: self.window.workload.jobs[int(job) - 1].user for job in ids}
        return history_for(self.window.ratios, keys)

    def __call__(self, asked: Solve) -> Plan:
        snapshot = asked.snapshot
        budget = Budget(
            work=self.work,
            seed=self.seed,
            previous=self.previous,
            history=self.history(snapshot),
            live=True,
            notes=asked.notes,
        )
        began = time.process_time()
        plan = lookup(self.policy).solve(snapshot, self.options, budget)
        self.cpu.append(time.process_time() - began)
        self.queued.append(len(snapshot.queue))
        violations = check(snapshot, plan).violations
        if violations:
            raise NotAllowedError(f"{self.policy}: {violations[0]}")
        self.previous = tuple(
            dict.fromkeys(p.job for p in sorted(plan.placements, key=lambda p: p.start))
        )
        measure = f"scenario_{self.options.get('scenario_objective')}"
        if measure in plan.stats:
            before = plan.stats[measure.replace("scenario", "deterministic")]
            self.promised.append(1.0 - plan.stats[measure] / before)
        return plan


def replay_window(
    window: Window, policy: str, options: Mapping[str, Any], work: int, seed: int
) -> dict[str, Any]:
    """Replay a window under a policy, each of whose rounds has so much work; its measures, seconds.

    Raises `NotAllowedError` if a plan breaks a rule, or a job did not run.
    """
    complete = read_options(options, lookup(policy).options)
    caller = _Caller(window=window, policy=policy, options=complete, work=work, seed=seed)
    found = replay_general(window.workload, map_slots(halves(window.log)), caller)
    if max(found.outcome) > Outcome.KILLED:
        raise NotAllowedError(
            f"{policy}: {next(iter(found.reasons.values()), 'a job did not run')}"
        )
    start, end = np.array(found.start), np.array(found.end)
    wait = start - window.workload.submit
    slowdown = np.maximum(1.0, (wait + end - start) / np.maximum(end - start, TAU_S))
    return {
        "mean_wait_s": float(wait.mean()),
        "p95_wait_s": float(np.percentile(wait, 95)),
        "mean_bounded_slowdown": float(slowdown.mean()),
        "makespan_s": float(end.max() - window.workload.submit.min()),
        "rounds": len(caller.cpu),
        "queued": float(np.mean(caller.queued)),
        "cpu_s": float(np.mean(caller.cpu)),
        "most_cpu_s": float(np.max(caller.cpu)),
        "promised": float(np.mean(caller.promised)) if caller.promised else None,
    }
