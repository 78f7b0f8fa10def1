"""One run: the streams of a site through plain sbatch, or through coalloc's own core.

The daemon's core is the real one, and so are the executors' cores and the policy. Around them are
virtual Slurm clusters (`queue`), latencies (`executor`) and a solver that takes `SOLVE_S`.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from math import inf

from tests.support.settings import core_settings

from benchmarks.lab import executor as runners
from benchmarks.lab.clock import Clock
from benchmarks.lab.executor import Claim, LabExecutor
from benchmarks.lab.queue import Backfill, Priority, QueuedJob, SlurmQueue, minutes
from benchmarks.lab.streams import Site, Stream, Work
from coalloc.core.base.effects import (
    AppendEvent,
    AskHello,
    Effect,
    Reply,
    SendOrder,
    SendWelcome,
    Solve,
    Wake,
)
from coalloc.core.base.events import (
    CoreEvent,
    Requested,
    Solved,
    StatementReceived,
    Ticked,
    TimerFired,
)
from coalloc.core.base.messages import Numbered, Ping, Statement, Welcome
from coalloc.core.base.requests import Done, Submit
from coalloc.core.coordinator import Coordinator
from coalloc.model.plan import Objective, Plan, Status
from coalloc.model.settings import ClusterConfig, Config, TriggerConfig
from coalloc.model.sites.parts import Launch
from coalloc.model.values import replace
from coalloc.policies.base import Budget
from coalloc.policies.options import read_options
from coalloc.policies.registry import lookup

NET_S, SOLVE_S, COMMAND_S, BEAT_S = 0.003, 0.03, 0.05, 2.0
SETTLED_S = 40.0
"""The run is over when nothing has ended for so many spans of the stream; never reached."""


@dataclass(frozen=True, kw_only=True)
class Begun:
    """A job of ours, or the lower bound of two: when it was submitted, and its first line."""

    at: float
    width: int
    started: float
    is_wide: bool


@dataclass(kw_only=True)
class Found:
    """Result of a run.

    Attributes
    ----------
    held_s, idle_s : (all, co-allocated)
        Node-seconds that our claims had, and those before their processes ran.
    """

    ours: list[Begun] = field(default_factory=list)
    local: dict[str, list[float]] = field(default_factory=dict)
    over_s: float = 0.0
    held_s: list[float] = field(default_factory=lambda: [0.0, 0.0])
    idle_s: list[float] = field(default_factory=lambda: [0.0, 0.0])
    kinds: dict[str, int] = field(default_factory=dict)
    rounds: int = 0


def queues_of(site: Site, priority: Priority, backfill: Backfill) -> dict[str, SlurmQueue]:
    return {
        name: SlurmQueue(
            name=name, node_count=s.nodes, cpus=s.cpus, priority=priority, backfill=backfill
        )
        for name, s in site.shapes.items()
    }


class Run:
    """Local streams over clusters; a subclass adds ours."""

    def __init__(
        self, site: Site, stream: Stream, priority: Priority, backfill: Backfill, seed: int
    ) -> None:
        self.site, self.stream = site, stream
        self.clock = Clock()
        self.dice = random.Random(f"run {seed}")
        self.queues = queues_of(site, priority, backfill)
        self.found = Found(local={name: [] for name in self.queues})
        self.left = len(stream.ours) + sum(map(len, stream.local.values()))
        for name, works in stream.local.items():
            for work in works:
                self.clock.at(self.clock.now + work.at, partial(self._local, name, work))
        for number, work in enumerate(stream.ours):
            self.clock.at(self.clock.now + work.at, partial(self.submit, number, work))
        self.clock.at(self.clock.now, self._backfill)

    def run(self) -> Found:
        while self.left and self.clock.step():
            if self.clock.now > self.clock.began + SETTLED_S * self.stream.span_s:
                raise RuntimeError(f"{self.left} jobs never end")
        self.found.over_s = self.clock.now - self.clock.began
        return self.found

    def _backfill(self) -> None:
        for queue in self.queues.values():
            queue.look(self.clock.now)
        self.clock.after(1.0, self._backfill)

    def submit(self, number: int, work: Work) -> None:
        raise NotImplementedError

    def _local(self, name: str, work: Work) -> None:
        def begun(now: float) -> None:
            self.found.local[name].append(now - submitted)
            self.waited(name, now - submitted, work.width)

        submitted = self.clock.now
        self.plain(name, work.width, work, begun)

    def waited(self, name: str, seconds: float, width: int) -> None:
        """A local job has begun."""

    def plain(self, name: str, width: int, work: Work, begun, is_last: bool = True) -> None:  # type: ignore[no-untyped-def]
        """Submit a job as sbatch does, and have it run."""
        queue, clock = self.queues[name], self.clock

        def granted(now: float, _: Mapping[str, int]) -> None:
            clock.after(runners.BEFORE_S, lambda: begun(clock.now))
            clock.after(runners.BEFORE_S + work.run_s + runners.LEAVE_S, end)

        def end() -> None:
            queue.end(job, clock.now)
            self.left -= is_last

        job = QueuedJob(
            number=0,
            width=width,
            limit_s=minutes(work.limit_s),
            submitted=clock.now + runners.SUBMIT_S,
            on_start=granted,
        )
        clock.after(runners.SUBMIT_S, lambda: queue.submit(job, clock.now))


class PlainRun(Run):
    """Ours by sbatch to a random cluster that can hold each; the wide as unrelated jobs.

    A wide one is cut into as even parts as the clusters can hold, and begins with the last.
    """

    def submit(self, number: int, work: Work) -> None:
        names = list(self.queues)
        able = [name for name in names if self.queues[name].slots >= work.width]
        parts = {self.dice.choice(able): work.width} if able else self._parts(work.width)
        at, starts = self.clock.now, []

        def begun(now: float) -> None:
            starts.append(now)
            if len(starts) == len(parts):
                wide = not able
                self.found.ours.append(Begun(at=at, width=work.width, started=now, is_wide=wide))

        for turn, (name, width) in enumerate(parts.items()):
            self.plain(name, width, work, begun, is_last=turn == 0)

    def _parts(self, width: int) -> dict[str, int]:
        """Over two clusters drawn among those that can hold it together, in proportion."""
        names = list(self.queues)
        pairs = [
            (a, b)
            for a in names
            for b in names
            if a < b and self.queues[a].slots + self.queues[b].slots >= width
        ]
        a, b = self.dice.choice(pairs)
        total = self.queues[a].slots + self.queues[b].slots
        first = min(self.queues[a].slots, round(width * self.queues[a].slots / total))
        return {a: first, b: width - first}


class CoallocRun(Run):
    """Ours through the daemon's core."""

    def __init__(
        self,
        site: Site,
        stream: Stream,
        priority: Priority,
        backfill: Backfill,
        seed: int,
        *,
        policy: str,
        extra_s: float = 0.0,
        **given: object,
    ) -> None:
        super().__init__(site, stream, priority, backfill, seed)
        self.settings = settings_of(site, policy, **given)
        self.core = Coordinator(self.settings)
        self.numbers: dict[str, int] = {}
        self.at: dict[str, float] = {}
        self.events: list[tuple[float, AppendEvent]] = []
        self._wakes: set[float] = set()
        self._solve, self._options = lookup(policy).solve, {}
        self._options = read_options({}, lookup(policy).options)
        self.executors = {
            name: LabExecutor(queue, self.clock, self._heard, self._run_s, site.interval_s, extra_s)
            for name, queue in self.queues.items()
        }
        for each in self.executors.values():
            each.boot()
        self._beat()
        self._timer()

    def submit(self, number: int, work: Work) -> None:
        job = {
            "kind": "rigid",
            "procs": work.width,
            "base_time": self._estimate(work),
            "time_limit": work.limit_s,
        }
        command = Submit(token=str(number), job=job, launch=Launch(argv=("work",)))
        request = Requested(
            origin=number, user="ann", uid=1, gid=1, operator=False, command=command
        )
        self.at[str(number)] = self.clock.now
        self.clock.after(COMMAND_S, lambda: self.handle(request))

    def _estimate(self, work: Work) -> float:
        """Run time as users give it: nothing but the limit."""
        return work.limit_s

    def _run_s(self, job: str) -> float:
        return self.stream.ours[self.numbers[job]].run_s

    def waited(self, name: str, seconds: float, width: int) -> None:
        nodes = -(-width // self.queues[name].cpus)
        self.executors[name].waited.append((seconds, nodes))

    def _heard(self, statement: Statement) -> None:
        event = StatementReceived(statement=statement, peer=statement.cluster)
        self.clock.after(NET_S, lambda: self.handle(event))

    def handle(self, event: CoreEvent) -> None:
        """Hand in an event, and carry out what follows."""
        for effect in self.core.handle(event, self.clock.now):
            self._carry_out(effect)

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case SendOrder(cluster=cluster, seq=seq, order=order):
                self._tell(cluster, Numbered(epoch=1, seq=seq, order=order))
            case SendWelcome(cluster=cluster, base_seq=base):
                lease = self.settings.start.lease_s
                self._tell(cluster, Welcome(store="s", epoch=1, base_seq=base, lease_s=lease))
            case AskHello(cluster=cluster):
                self._tell(cluster, Ping(epoch=1, known=False))
            case Reply(origin=int(number), answer=answer):
                assert isinstance(answer, Done), answer
                self.numbers[str(answer.body["job"])] = number
            case Solve():
                self.clock.after(SOLVE_S, partial(self._plan, effect))
            case Wake(at=at) if at not in self._wakes and at < inf:
                self._wakes.add(at)
                self.clock.at(at, partial(self._woken, at))
            case AppendEvent():
                self._event(effect)
            case _:
                pass

    def _event(self, event: AppendEvent) -> None:
        kind, now = str(event.kind), self.clock.now
        self.found.kinds[kind] = self.found.kinds.get(kind, 0) + 1
        self.events.append((now, event))
        if kind == "job_started":
            number = self.numbers[event.job]
            work = self.stream.ours[number]
            started = self.core.state.jobs[event.job].started or now
            wide = work.width > max(queue.slots for queue in self.queues.values())
            self.found.ours.append(
                Begun(at=self.at[str(number)], width=work.width, started=started, is_wide=wide)
            )
        if kind == "job_ended":
            assert event.fields["state"] == "completed", event
            self.left -= 1

    def _tell(self, cluster: str, message: Numbered | Welcome | Ping) -> None:
        self.clock.after(NET_S, lambda: self.executors[cluster].hear(message))

    def _plan(self, asked: Solve) -> None:
        snapshot = asked.snapshot
        if snapshot.queue:
            self.found.rounds += 1
            budget = Budget(
                work=2000, live=True, bounds=False, notes=asked.notes, history=asked.history
            )
            plan = self._solve(snapshot, self._options, budget)
        else:
            nothing = Objective(name="makespan", value=0.0)
            plan = Plan(policy="plain", status=Status.HEURISTIC, objective=nothing)
        self.handle(Solved(round=asked.round, plan=plan, solve_s=SOLVE_S))

    def _woken(self, at: float) -> None:
        self._wakes.discard(at)
        self.handle(Ticked())

    def _beat(self) -> None:
        for name in self.queues:
            self._tell(name, Ping(epoch=1))
        self.clock.after(BEAT_S if self.site.interval_s < 10.0 else 20.0, self._beat)

    def _timer(self) -> None:
        self.handle(TimerFired(trigger=0))
        self.clock.after(30.0, self._timer)

    def run(self) -> Found:
        found = super().run()
        wide = max(queue.slots for queue in self.queues.values())
        for name, executor in self.executors.items():
            for claim in executor.claims:
                self._count(claim, claim.size > wide, self.queues[name].cpus)
        return found

    def _count(self, claim: Claim, is_wide: bool, cpus: int) -> None:
        """Add up what a claim had, in nodes."""
        nodes, until = claim.width / cpus, claim.started or claim.freed
        idle = nodes * (until - claim.granted)
        run = nodes * self._run_s(claim.job) if claim.started else 0.0
        for kind in (0, 1) if is_wide else (0,):
            self.found.held_s[kind] += idle + run
            self.found.idle_s[kind] += idle


def settings_of(site: Site, policy: str, **given: object) -> Config:
    """The daemon's settings: the defaults, but for what the clusters are."""
    settings = Config()
    rounds = replace(
        settings.rounds,
        policy=policy,
        trigger=(
            TriggerConfig(kind="timer"),
            TriggerConfig(kind="queue_length"),
            TriggerConfig(kind="job_finished"),
            TriggerConfig(kind="cluster_returned"),
        ),
    )
    settings = replace(settings, rounds=rounds)
    clusters = tuple(ClusterConfig(name=name) for name in site.shapes)
    return core_settings(
        settings,
        clusters=clusters,
        keep_ended=100_000,
        max_age_s=max(30.0, 3.0 * site.interval_s),
        **given,
    )
