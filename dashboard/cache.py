"""The cache between the daemon and all browsers: pure, fed by `coalloc.dashboard.feed`.

It belongs to one thread. What the daemon said last stays when it does not answer, with the time
when it was heard: unreachable is not empty.
"""

from __future__ import annotations

import bisect
import secrets
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from msgspec import ValidationError, convert

from coalloc.dashboard.answers import Bar, Change, Round
from coalloc.dashboard.history import ENDED, ON_NODES, row_after
from coalloc.model.cost import link_loads
from coalloc.model.values import replace
from coalloc.wire.answers import Event, NodesAnswer, PlanAnswer, ServiceStatus
from coalloc.wire.job_rows import QueueRow
from coalloc.wire.rule_rows import RuleCostsRow

EVENTS_KEPT = 20_000
ROUNDS_KEPT = 2_000
WAITING = frozenset({"pending", "held"})


class Cache:
    """The site as last heard.

    Parameters
    ----------
    keep_jobs : int
        Ended jobs remembered.

    Attributes
    ----------
    instance : str
        Of this run.
    revision : int
        Rises with every change of an ended job.
    live : int
        Rises with every change of all else.
    heard : float or None
        When the daemon last answered, by its clock.
    last_seq : int
        Number of the newest event.
    """

    def __init__(self, keep_jobs: int = 100_000) -> None:
        self.keep_jobs = keep_jobs
        self.reset()

    def reset(self) -> None:
        """Begin anew, as for another site."""
        self.instance = secrets.token_hex(8)
        self.revision = self.live = self.last_seq = 0
        self.reachable, self.loaded = False, False
        self.heard: float | None = None
        self.fault = "not asked yet"
        self.rows: dict[str, QueueRow] = {}
        self.events: deque[Event] = deque(maxlen=EVENTS_KEPT)
        self.rounds: deque[Round] = deque(maxlen=ROUNDS_KEPT)
        self.status: ServiceStatus | None = None
        self.nodes = NodesAnswer(clusters=())
        self.plan: PlanAnswer | None = None
        self.bars: tuple[Bar, ...] = ()
        self.lanes: list[tuple[str, str, int]] = []
        self._lane_of: dict[str, int] = {}
        """Lanes stay where they are: browsers know them by number."""
        self._revision_of: dict[str, int] = {}
        self._log: list[tuple[int, str]] = []
        self._loads: dict[str, dict[str, float]] = {}

    # What is heard

    def answered(self, status: ServiceStatus) -> None:
        """The daemon has answered."""
        self.reachable, self.fault = True, ""
        self.heard, self.status = status.time, status
        last = status.last_round
        # One that was published before the feed listened.
        if last is not None and (not self.rounds or self.rounds[-1].round < last.round):
            self._add_round(
                Round(
                    round=last.round,
                    heard=last.time,
                    policy=last.policy,
                    status=last.status,
                    objective=last.objective,
                    value=last.value,
                    bound=last.bound,
                    gap=_gap(last.value, last.bound),
                )
            )

    def unanswered(self, fault: str) -> None:
        """The daemon does not answer."""
        if self.reachable or fault != self.fault:
            self.live += 1
        self.reachable, self.fault = False, fault

    def happened(self, events: Iterable[Event]) -> list[Event]:
        """Take events in; returns those that are new."""
        new = [event for event in events if event.seq > self.last_seq]
        for event in new:
            self.last_seq = event.seq
            self.events.append(event)
            row = row_after(self.rows.get(event.job), event)
            if row is not None:
                self._put(row)
        if new:
            self.live += 1
        return new

    def queued(self, rows: Iterable[QueueRow], *, everything: bool) -> None:
        """Take all jobs in that have not ended, or all that the daemon remembers.

        A job that is no longer there has ended; an event tells how, or has told.
        """
        named = set()
        for row in rows:
            named.add(row.id)
            self._put(row)
        gone = [
            name
            for name, row in self.rows.items()
            if row.state not in ENDED and name not in named and "." not in name
        ]
        for name in gone if everything else ():
            del self.rows[name]
        self.loaded = True
        self.live += 1

    def read_nodes(self, answer: NodesAnswer) -> None:
        """Take the clusters in."""
        self.nodes = answer
        for cluster in answer.clusters:
            for node in cluster.nodes:
                if node.name not in self._lane_of:
                    self._lane_of[node.name] = len(self.lanes)
                    self.lanes.append((cluster.cluster, node.name, node.slots))

    def planned(self, answer: PlanAnswer) -> None:
        """Take the newest plan and what runs in."""
        self.plan = answer
        self.bars = tuple(self._bars(answer))
        for bar in self.bars:
            if bar.kind == "running" and bar.link_gbps:
                self._loads[bar.job] = bar.link_gbps
        self._finish_round(answer)
        self.live += 1

    def round_ended(self, body: Mapping[str, Any], now: float) -> None:
        """Take a publication of a round in."""
        objective = body.get("objective") or {}
        value, bound = objective.get("value"), objective.get("bound")
        if not isinstance(value, int | float) or not isinstance(body.get("round"), int):
            return
        number = bound if isinstance(bound, int | float) else None
        self._add_round(
            Round(
                round=body["round"],
                heard=now,
                policy=str(body.get("policy", "")),
                status=str(body.get("status", "")),
                objective=str(objective.get("name", "")),
                value=float(value),
                bound=number,
                gap=_gap(float(value), number),
            )
        )
        self.live += 1

    def costed(self, body: Mapping[str, Any]) -> None:
        """Take a publication of what rules cost in a round in."""
        try:
            found = convert(dict(body), RuleCostsRow)
        except ValidationError:
            return
        for index in range(len(self.rounds) - 1, -1, -1):
            if self.rounds[index].round == found.round:
                self.rounds[index] = replace(self.rounds[index], rule_costs=found.rules)
                self.live += 1
                return

    # What is told

    def change(self) -> Change:
        """Version of its content, for watchers to compare with theirs."""
        return Change(
            revision=self.revision,
            live=self.live,
            reachable=self.reachable,
            heard=self.heard,
            fault=self.fault,
        )

    def states(self) -> Counter[str]:
        """Number of jobs in each state; tasks and pieces count with what they belong to."""
        return Counter(row.state for name, row in self.rows.items() if "." not in name)

    def reasons(self) -> Counter[str]:
        """Reasons for which jobs wait."""
        return Counter(
            row.reason or "next_round"
            for name, row in self.rows.items()
            if row.state in WAITING and "." not in name
        )

    def on_node(self) -> dict[str, list[str]]:
        """The jobs on each node."""
        out: dict[str, list[str]] = {}
        for bar in self.bars:
            if bar.kind != "planned":
                for node in bar.nodes:
                    out.setdefault(node, []).append(bar.job)
        return out

    def ended_since(self, revision: int, limit: int) -> tuple[list[QueueRow], int, bool]:
        """Ended jobs by rising revision, the revision of the last, and whether there are more."""
        out: list[QueueRow] = []
        last = revision
        for number, name in self._log[bisect.bisect_right(self._log, (revision, "\U0010ffff")) :]:
            if self._revision_of.get(name) != number:
                continue
            if len(out) >= limit:
                return out, last, True
            out.append(self.rows[name])
            last = number
        return out, max(last, self.revision), False

    def lanes_of(self, nodes: Mapping[str, int]) -> list[int]:
        """Lane and slots, for each node that is known, in one list."""
        out = []
        for node, slots in nodes.items():
            lane = self._lane_of.get(node)
            if lane is not None:
                out += [lane, slots]
        return out

    def clusters_of(self, nodes: Iterable[str]) -> tuple[str, ...]:
        """The clusters of some nodes, once each."""
        known = (self._lane_of.get(node) for node in nodes)
        return tuple(dict.fromkeys(self.lanes[i][0] for i in known if i is not None))

    def loads_of(self, job: str) -> Mapping[str, float]:
        """Load of a job on the links while it ran, as far as that was seen."""
        return self._loads.get(job, {})

    # Inside

    def _put(self, row: QueueRow) -> None:
        old = self.rows.get(row.id)
        if old == row:
            return
        if old is not None and old.state in ENDED and row.state in ENDED and not row.nodes:
            return  # the daemon has forgotten where it ran
        if old is not None and not row.procs:
            row = replace(row, procs=old.procs)
        self.rows[row.id] = row
        if row.state in ENDED:
            self._note(row.id)

    def _note(self, name: str) -> None:
        self.revision += 1
        self._revision_of[name] = self.revision
        self._log.append((self.revision, name))
        if len(self._log) > 2 * self.keep_jobs + 1000:
            self._log = [
                (number, job) for number, job in self._log if self._revision_of.get(job) == number
            ]
        while len(self._revision_of) > self.keep_jobs:
            oldest = next(iter(self._revision_of))
            del self._revision_of[oldest]
            self.rows.pop(oldest, None)
            self._loads.pop(oldest, None)

    def _bars(self, answer: PlanAnswer) -> Iterator[Bar]:
        for run in answer.running:
            row = self.rows.get(run.job)
            kind = "local" if row is None and run.task is None else "running"
            yield self._bar(answer, kind, run.job, run.task, run.start, run.end, run.nodes)
        for place in answer.plan.plan.get("placements", ()):
            row = self.rows.get(place["job"])
            task = place.get("task")
            # A plan is older than the present: what it started, runs or has ended.
            if row is None or row.state in ENDED or (row.state in ON_NODES and task is None):
                continue
            start, end = place["start"], place["end"]
            if start < answer.plan.time and task is not None:
                continue
            yield self._bar(answer, "planned", place["job"], task, start, end, place["nodes"])

    def _bar(
        self,
        answer: PlanAnswer,
        kind: str,
        job: str,
        task: str | None,
        start: float,
        end: float,
        nodes: Mapping[str, int],
    ) -> Bar:
        inside: Counter[str] = Counter()
        for node, count in nodes.items():
            inside[answer.node_clusters.get(node, "")] += count
        need = answer.proc_gbps.get(job, 0.0) if task is None else 0.0
        row = self.rows.get(job)
        return Bar(
            job=job,
            kind=kind,
            start=start,
            end=end,
            nodes=dict(nodes),
            clusters=tuple(inside),
            link_gbps=link_loads(need, inside) if need and len(inside) > 1 else {},
            task=task,
            name="" if row is None else row.name,
            user="" if row is None else row.user,
        )

    def _add_round(self, ended: Round) -> None:
        """Take a round in; the later plan of one round replaces the earlier."""
        if self.rounds and self.rounds[-1].round == ended.round:
            ended = replace(ended, rule_costs=self.rounds.pop().rule_costs)
        self.rounds.append(ended)

    def _finish_round(self, answer: PlanAnswer) -> None:
        """Add to the round what its plan says beyond the publication."""
        plan = answer.plan.plan
        for index in range(len(self.rounds) - 1, -1, -1):
            known = self.rounds[index]
            if known.round == answer.plan.round and known.placed is None:
                self.rounds[index] = replace(
                    known,
                    placed=len(plan.get("placements", ())),
                    deferred=dict(Counter(item["reason"] for item in plan.get("deferred", ()))),
                    phases_s={
                        key.removesuffix("_s"): float(value)
                        for key, value in plan.get("stats", {}).items()
                        if key.endswith("_s") and isinstance(value, int | float)
                    },
                )
                return


def _gap(value: float, bound: float | None) -> float | None:
    if bound is None or bound <= 0.0:
        return None
    return max(0.0, (value - bound) / bound)
