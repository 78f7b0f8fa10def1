"""Replay by the daemon's own core, in virtual time, under any policy.

Notes
-----
The same `Coordinator` as in the daemon gets the submissions, the readings and the executors'
statements, and asks for plans. What is simulated is around it: the clock, the policy called where
the daemon's solver stands, executors that are ready at once, and the end of every job.

- A job ends when its real base time, stretched by the weakest node it got, is over; the plan knew
  only the estimate.
- What happens at one instant (ends before arrivals) is handed in before a round is due. Instants
  closer than `SAME_INSTANT_S` are one, the latest of them.
- Rounds are due when a job arrives or ends, and when the latest plan starts something; the
  daemon's minimum interval between rounds and its margin for overrunning jobs are zero here.
- Powers are those of the platform file, not rounded to steps.
- A workflow is one job of the core, which starts its tasks in rounds and along the plan between
  them; in the result each task is a run of its own (`flow_runs`).
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from math import inf
from typing import Any

from coalloc.adapters.formats.swf_jobs import LoggedJob
from coalloc.core.base.composites import flow_of
from coalloc.core.base.effects import Reply, SaveStartError, SendOrder, Solve, Wake
from coalloc.core.base.events import (
    CoreEvent,
    Requested,
    SingleEvent,
    Solved,
    StatementReceived,
    Ticked,
    TimerFired,
    Together,
)
from coalloc.core.base.messages import SHAPES, Hello, Order, Prepare, Read, Report, Start
from coalloc.core.base.requests import Refused, Submit, SubmitWorkflow
from coalloc.core.base.start_intervals import StartError
from coalloc.core.base.state_tables import Learning
from coalloc.core.coordinator import Coordinator, StoredState
from coalloc.core.learning.estimates import UserProgram, remembered
from coalloc.model.cost import run_time
from coalloc.model.formats.job_json import write_job
from coalloc.model.plan import Objective, Plan, Reason, Status
from coalloc.model.settings import (
    ClusterConfig,
    Config,
    DaemonConfig,
    PowerConfig,
    ReadingsConfig,
    RoundsConfig,
    StartConfig,
    TriggerConfig,
)
from coalloc.model.sites.parts import Launch, PartState
from coalloc.model.sites.reading import ClusterReading, NodeReading
from coalloc.simulation.flow_runs import runs_of
from coalloc.simulation.trace import Outcome
from coalloc.simulation.workload import SlotMap, Workload

SAME_INSTANT_S = 1e-6
TRIGGERS = (
    TriggerConfig(kind="timer", every_s=inf),
    TriggerConfig(kind="queue_length"),
    TriggerConfig(kind="job_finished"),
)
WAKE_UP = 0
"""Index of the timer, which stands for the start times of the latest plan."""
MOST_IDLE_ROUNDS = 1000
"""Rounds in a row that start nothing while nothing runs; then the queue is given up."""
SET_BY_DAEMON = ("id", "submitted", "earliest")
LINKS = ("link_gbps", "intra_gbps", "link_latency_s", "intra_latency_s")

Solver = Callable[[Solve], Plan]
"""From what the core asks for to a plan."""


NO_SHARES: Mapping[str, Any] = {}
"""Settings of projects, users and priorities, where a replay has none."""


@dataclass(slots=True)
class GeneralResult:
    """Result of the replay, by index of the run: a job, or a task of a workflow."""

    start: list[float]
    """Seconds; meaningless where the job did not run."""
    end: list[float]
    outcome: list[Outcome]
    nodes: list[Mapping[str, int]]
    reasons: dict[int, str] = field(default_factory=dict)
    """Why it did not run."""
    rounds: int = 0
    start_errors: list[StartError] = field(default_factory=list)
    """Of every expected start that a job was given which then started, in the order of starts."""


def replay_general(
    workload: Workload,
    slot_map: SlotMap,
    solve: Solver,
    on_progress: Callable[[int], None] | None = None,
    policy: str = "replayed",
    sharing: Mapping[str, Any] = NO_SHARES,
) -> GeneralResult:
    """Replay a workload.

    `solve` makes a plan of what the core asks for; plans carry the name `policy`, and notes are
    kept under it. Progress is the number of runs that have ended or were refused.
    """
    tell = on_progress or (lambda _: None)
    return _Replay(workload, slot_map, solve, tell, _settings(slot_map, policy, sharing)).run()


class _Replay:
    """One replay: the coordinator, and the world around it."""

    def __init__(
        self,
        workload: Workload,
        slot_map: SlotMap,
        solve: Solver,
        on_progress: Callable[[int], None],
        settings: Config,
    ) -> None:
        self.jobs = workload.jobs
        self.runs = runs_of(workload).jobs
        counts = [1 if one.flow is None else len(one.flow.tasks) for one in workload.jobs]
        self.first_run = list(accumulate(counts, initial=0))
        count = len(self.runs)
        self.slot_map = slot_map
        self.solve = solve
        self.on_progress = on_progress
        nodes = [node for cluster in slot_map.platform.clusters for node in cluster.nodes]
        self.power = {node.name: node.power for node in nodes}
        self.core = Coordinator(
            settings, StoredState(learning=Learning(ratios=known_ratios(workload.earlier)))
        )
        self.index: dict[str, int] = {}
        self.parts: dict[str, list[tuple[str, Prepare]]] = {}
        self.ends: list[tuple[float, str]] = []
        self.arrived = 0
        self.wake_up = inf
        self.wakes: list[float] = []
        self.idle_rounds = 0
        self.done = 0
        self.result = GeneralResult(
            start=[0.0] * count,
            end=[0.0] * count,
            outcome=[Outcome.WAITING] * count,
            nodes=[{}] * count,
        )

    def run(self) -> GeneralResult:
        self._connect(self.jobs[0].job.submitted if self.jobs else 0.0)
        while (now := self._next_instant()) < inf:
            # All of an instant is known before its round, whose daemon would debounce it.
            events: list[SingleEvent] = []
            while self.ends and self.ends[0][0] <= now:
                events += self._finished(heapq.heappop(self.ends)[1], now)
            while self.arrived < len(self.jobs) and self._arrival() <= now:
                events.append(self._submitted())
            if self.wake_up <= now:
                events.append(TimerFired(trigger=WAKE_UP))
            self.wake_up = inf
            while self.wakes and self.wakes[0] <= now:
                heapq.heappop(self.wakes)
            self._handle(Together(events=(*events, Ticked())), now)
            self.on_progress(self.done)
        self._explain_waiting()
        return self.result

    def _arrival(self) -> float:
        return self.jobs[self.arrived].job.submitted if self.arrived < len(self.jobs) else inf

    def _next_instant(self) -> float:
        """Return the next time at which anything happens, or the last of several close ones."""
        woken = self.wakes[0] if self.wakes else inf
        first = min(self.ends[0][0] if self.ends else inf, self._arrival(), self.wake_up, woken)
        limit = first + SAME_INSTANT_S
        others = (self._arrival(), self.wake_up, woken)
        now = max((t for t in others if t <= limit), default=first)
        if self.ends and self.ends[0][0] <= limit:
            now = max(now, *(t for t, _ in self.ends if t <= limit))
        return now

    def _connect(self, now: float) -> None:
        """Every executor says hello, and its cluster is read."""
        for cluster in self.slot_map.platform.clusters:
            hello = Hello(cluster=cluster.name, abilities=(SHAPES,))
            self._handle(StatementReceived(statement=hello), now)
            nodes = tuple(map(NodeReading.of, cluster.nodes))
            reading = ClusterReading(cluster=cluster.name, nodes=nodes, resources=cluster.resources)
            self._handle(
                StatementReceived(statement=Read(cluster=cluster.name, reading=reading)), now
            )

    def _submitted(self) -> Requested:
        logged = self.jobs[self.arrived]
        body = {
            key: value
            for key, value in write_job(logged.flow or logged.moldable or logged.job).items()
            if key not in SET_BY_DAEMON
        }
        number = self.arrived
        self.arrived += 1
        user, program = _whose(logged)
        launch, kind = Launch(argv=(program,)), Submit if logged.flow is None else SubmitWorkflow
        command = kind(token=str(number), job=body, launch=launch)
        return Requested(origin=number, user=user, uid=-1, gid=-1, operator=False, command=command)

    def _finished(self, job: str, now: float) -> list[StatementReceived]:
        started = self.result.start[self._run_of(job)]
        self.done += 1
        return [
            self._report(
                cluster, order, PartState.FINISHED, started=started, ended=now, exit_code=0
            )
            for cluster, order in self.parts.pop(job)
        ]

    def _run_of(self, job: str) -> int:
        """Number of the run of a job, or of a task."""
        flow, task = flow_of(job)
        return self.first_run[self.index[flow or job]] + (int(task) - 1 if task else 0)

    def _runs_of(self, number: int) -> range:
        return range(self.first_run[number], self.first_run[number + 1])

    def _report(
        self, cluster: str, order: Prepare, state: PartState, **fields: Any
    ) -> StatementReceived:
        part = order.key.report(state, **fields)
        acked = self.core.state.clusters[cluster].next_seq - 1
        return StatementReceived(statement=Report(cluster=cluster, last_seq=acked, parts=(part,)))

    def _handle(self, event: CoreEvent, now: float) -> None:
        """Hand in an event and carry out its effects; plans are made after everything else."""
        effects = deque(self.core.handle(event, now))
        while effects:
            match effects.popleft():
                case Reply(origin=int(number), answer=answer):
                    if isinstance(answer, Refused):
                        self._refuse(number, answer.message)
                    else:
                        self.index[answer.body["job"]] = number
                case SaveStartError(error=error):
                    self.result.start_errors.append(error)
                case SendOrder(cluster=cluster, order=order):
                    self._order(cluster, order, now)
                case Solve() as asked:
                    solved = Solved(round=asked.round, plan=self._plan(asked), solve_s=0.0)
                    effects += self.core.handle(solved, now)
                case Wake(at=at) if at <= now:
                    effects += self.core.handle(Ticked(), now)
                case Wake(at=at) if len(self.runs) > len(self.jobs) and at < inf:
                    heapq.heappush(self.wakes, at)  # For data of tasks that are on their way.
                case _:
                    pass

    def _plan(self, asked: Solve) -> Plan:
        snapshot = asked.snapshot
        if not snapshot.queue:
            objective = Objective(name="makespan", value=0.0)
            return Plan(policy="plain", status=Status.HEURISTIC, objective=objective)
        self.result.rounds += 1
        plan = self.solve(asked)
        later = [p.start for p in plan.placements if p.start > snapshot.time + SAME_INSTANT_S]
        self.idle_rounds = (
            0 if self.ends or len(later) < len(plan.placements) else self.idle_rounds + 1
        )
        idle_for_ever = self.idle_rounds > MOST_IDLE_ROUNDS and self.arrived == len(self.jobs)
        self.wake_up = inf if idle_for_ever else min(later, default=inf)
        return plan

    def _refuse(self, number: int, reason: str) -> None:
        for run in self._runs_of(number):
            self.result.outcome[run] = Outcome.REFUSED
            self.result.reasons[run] = reason
            self.done += 1

    def _order(self, cluster: str, order: Order, now: float) -> None:
        """Be an executor that does at once what it is told."""
        match order:
            case Prepare():
                self.parts.setdefault(order.job, []).append((cluster, order))
                self._handle(self._report(cluster, order, PartState.READY), now)
            case Start(job=job):
                mine = next(part for home, part in self.parts[job] if home == cluster)
                self._handle(self._report(cluster, mine, PartState.RUNNING, started=now), now)
                if cluster == self.parts[job][-1][0]:
                    self._run(job, mine.all_nodes, now)
            case _:
                pass

    def _run(self, job: str, nodes: Mapping[str, int], now: float) -> None:
        """All parts run: fix when the job ends."""
        number = self._run_of(job)
        logged = self.runs[number]
        weakest = min(self.power[name] for name in nodes)
        planned = self.core.state.jobs[job].planned
        # Where the estimate is exact, so is the end: the sum of the same numbers.
        real = logged.real_time(sum(nodes.values()))
        length = (
            planned if logged.is_exact else min(planned, run_time(real, logged.job.sigma, weakest))
        )
        end = now + length
        result = self.result
        result.start[number], result.end[number] = now, end
        result.nodes[number] = nodes
        result.outcome[number] = Outcome.KILLED if logged.killed else Outcome.COMPLETED
        heapq.heappush(self.ends, (end, job))

    def _explain_waiting(self) -> None:
        """Tell what is left in the queue, which nothing can ever change."""
        for job in self.core.state.waiting:
            number, outlook = self.index[job], self.core.state.findings.outlook.get(job)
            reason = outlook.reason if outlook else ""
            detail = (outlook.detail if outlook else "") or reason or "no round placed it"
            never = reason == Reason.INFEASIBLE
            for run in self._runs_of(number):
                if self.result.outcome[run] == Outcome.WAITING:
                    self.result.outcome[run] = Outcome.REFUSED if never else Outcome.WAITING
                    self.result.reasons[run] = detail


def _whose(logged: LoggedJob) -> tuple[str, str]:
    """User and program of a job of a log."""
    return logged.user or "replay", logged.application or "replayed"


def known_ratios(ended: Iterable[LoggedJob]) -> dict[str, tuple[float, ...]]:
    """History of these jobs as a daemon would have it, by rising end: real by planned run times."""
    out: dict[str, tuple[float, ...]] = {}
    for logged in ended:
        user, command = _whose(logged)
        for key in UserProgram(user=user, command=command).history_keys:
            # Taken out and put back: the newest is last.
            out[key] = remembered(out.pop(key, ()), logged.run_s / logged.job.base_time)
    return out


def _settings(slot_map: SlotMap, policy: str, sharing: Mapping[str, Any]) -> Config:
    """Return the settings of a daemon that never waits and trusts its readings for ever."""
    return Config(
        clusters=tuple(
            ClusterConfig(name=cluster.name, **{name: getattr(cluster, name) for name in LINKS})
            for cluster in slot_map.platform.clusters
        ),
        rounds=RoundsConfig(
            policy=policy,
            fallbacks=(),
            trigger=TRIGGERS,
            min_interval_s=0.0,
            commit_first_incumbent=False,
        ),
        power=PowerConfig(step=0.0),
        readings=ReadingsConfig(max_age_s=inf),
        start=StartConfig(overrun_s=0.0),
        daemon=DaemonConfig(max_jobs_per_user=0, keep_ended=0),
        **sharing,
    )
