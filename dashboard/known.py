"""The daemon's newest answers, for all browsers: pure, filled by `coalloc.dashboard.polling`.

It belongs to one thread. What the daemon said last stays when it does not answer, with the time
when it was heard: unreachable is not empty.
"""

from __future__ import annotations

import secrets
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice

import msgspec
from msgspec.structs import asdict, replace

from coalloc.dashboard.answers import Bar, Change, Round
from coalloc.model.cost import link_loads
from coalloc.model.plan import gap_of
from coalloc.wire.answers import NodesAnswer, PlanAnswer, QueueAnswer, RunningRow, ServiceStatus
from coalloc.wire.job_rows import QueueRow
from coalloc.wire.share_answers import AccountRow

ROUNDS_KEPT = 2_000
WAITING = frozenset({"pending", "held"})
ON_NODES = frozenset({"preparing", "starting", "running"})
ENDED = frozenset({"completed", "failed", "cancelled", "timeout", "lost"})
OF_ACCOUNTS = (
    *("id", "name", "user", "project", "state", "procs", "submitted", "started", "ended"),
    *("exit_code", "detail", "nodes"),
)
"""Fields that rows of ended jobs have from their accounts."""
OF_ROUND = ("round", "policy", "status", "objective", "value", "bound")
"""Fields that a round has from the daemon's state."""


class Known:
    """The site as last heard; so many ended jobs are remembered."""

    def __init__(self, keep_jobs: int = 100_000) -> None:
        self.keep_jobs = keep_jobs
        self.reset()

    def reset(self) -> None:
        """Begin anew, as for another site."""
        self.instance = secrets.token_hex(8)
        self.revision = self.live = 0
        """Ended jobs in all, which rises with each; and what rises with every other change."""
        self.reachable, self.loaded = False, False
        self.heard: float | None = None
        """When the daemon last answered, by its clock."""
        self.fault = "not asked yet"
        self.status: ServiceStatus | None = None
        self.nodes = NodesAnswer(clusters=())
        self.plan: PlanAnswer | None = None
        self.rows: dict[str, QueueRow] = {}
        """Jobs that have not ended."""
        self.ended: dict[str, QueueRow] = {}
        """By their end."""
        self._forgotten_until = 0.0
        self.rounds: deque[Round] = deque(maxlen=ROUNDS_KEPT)
        self.bars: tuple[Bar, ...] = ()
        self.lanes: list[tuple[str, str, int]] = []
        self._lane_of: dict[str, int] = {}
        """Lanes stay where they are: browsers know them by number."""
        self._loads: dict[str, dict[str, float]] = {}

    # What is heard

    def unanswered(self, fault: str) -> None:
        if self.reachable or fault != self.fault:
            self.live += 1
        self.reachable, self.fault = False, fault

    def take_status(self, status: ServiceStatus) -> None:
        self.reachable, self.fault = True, ""
        self.heard, self.status = status.time, status
        last = status.last_round
        if last is None:
            return
        if not self.rounds or self.rounds[-1].round != last.round:
            self.rounds.append(_NO_ROUND)
        # the later plan of one round replaces the earlier
        self.rounds[-1] = replace(
            self.rounds[-1],
            **{name: getattr(last, name) for name in OF_ROUND},
            heard=last.time,
            gap=None if last.bound is None else gap_of(last.value, last.bound),
        )
        self._finish_round()

    def take_queue(self, answer: QueueAnswer) -> None:
        self.rows = {row.id: row for row in answer.jobs}
        self.loaded = True
        self.live += 1

    def take_accounts(self, accounts: Iterable[AccountRow]) -> None:
        """Take jobs in that have ended, by their end; those that are known already are left out."""
        for account in accounts:
            old = self.ended.get(account.id)
            is_new = old is None or old.ended != account.ended
            if is_new and account.ended > self._forgotten_until:
                self.ended.pop(account.id, None)
                self.ended[account.id] = _ended(account)
                self.revision += 1
        while len(self.ended) > self.keep_jobs:
            oldest = next(iter(self.ended))
            self._forgotten_until = self.ended.pop(oldest).ended or 0.0
            self._loads.pop(oldest, None)

    def take_nodes(self, answer: NodesAnswer) -> None:
        self.nodes = answer
        for cluster in answer.clusters:
            for node in cluster.nodes:
                if node.name not in self._lane_of:
                    self._lane_of[node.name] = len(self.lanes)
                    self.lanes.append((cluster.cluster, node.name, node.slots))

    def take_plan(self, answer: PlanAnswer) -> None:
        self.plan = answer
        self.bars = tuple(self._bars(answer))
        for bar in self.bars:
            if bar.kind == "running" and bar.link_gbps:
                self._loads[bar.job] = bar.link_gbps
        self._finish_round()
        self.live += 1

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

    def row(self, job: str) -> QueueRow | None:
        return self.ended.get(job) or self.rows.get(job)

    def jobs(self) -> Iterator[QueueRow]:
        """All jobs; tasks and pieces count with what they belong to."""
        for name, row in self.rows.items():
            if "." not in name and name not in self.ended:
                yield row
        for name, row in self.ended.items():
            if "." not in name:
                yield row

    def on_node(self) -> dict[str, list[str]]:
        out: dict[str, list[str]] = {}
        for bar in self.bars:
            if bar.kind != "planned":
                for node in bar.nodes:
                    out.setdefault(node, []).append(bar.job)
        return out

    def ended_since(self, revision: int, limit: int) -> tuple[list[QueueRow], int, bool]:
        """Ended jobs behind a revision, the revision of the last, and whether there are more."""
        forgotten = self.revision - len(self.ended)
        first = min(max(0, revision - forgotten), len(self.ended))
        rows = list(islice(self.ended.values(), first, first + limit))
        last = forgotten + first + len(rows)
        return rows, last, last < self.revision

    def lanes_of(self, nodes: Mapping[str, int]) -> list[int]:
        """Lane and slots, for each node that is known, in one list."""
        out = []
        for node, slots in nodes.items():
            lane = self._lane_of.get(node)
            if lane is not None:
                out += [lane, slots]
        return out

    def loads_of(self, job: str) -> Mapping[str, float]:
        """Load of a job on the links while it ran, as far as that was seen."""
        return self._loads.get(job, {})

    # Inside

    def _bars(self, answer: PlanAnswer) -> Iterator[Bar]:
        for run in answer.running:
            kind = "local" if self.row(run.job) is None and run.task is None else "running"
            yield self._bar(answer, kind, run)
        planned = answer.plan.plan.get("placements", ())
        for place in msgspec.convert(planned, tuple[RunningRow, ...]):
            row = self.row(place.job)
            # A plan is older than the present: what it started, runs or has ended.
            if row is None or row.state in ENDED or (row.state in ON_NODES and place.task is None):
                continue
            if place.task is None or place.start >= answer.plan.time:
                yield self._bar(answer, "planned", place)

    def _bar(self, answer: PlanAnswer, kind: str, work: RunningRow) -> Bar:
        inside: Counter[str] = Counter()
        for node, count in work.nodes.items():
            inside[answer.node_clusters.get(node, "")] += count
        need = answer.proc_gbps.get(work.job, 0.0) if work.task is None else 0.0
        row = self.row(work.job)
        return Bar(
            **asdict(work),
            kind=kind,
            clusters=tuple(inside),
            link_gbps=link_loads(need, inside) if need and len(inside) > 1 else {},
            name="" if row is None else row.name,
            user="" if row is None else row.user,
        )

    def _finish_round(self) -> None:
        """Add to the rounds what the newest plan, and the newest costs of rules, say of them."""
        if self.plan is None:
            return
        plan, costs = self.plan.plan.plan, self.plan.rule_costs
        for index, known in enumerate(self.rounds):
            if known.round == self.plan.plan.round:
                self.rounds[index] = known = replace(
                    known,
                    placed=len(plan.get("placements", ())),
                    deferred=dict(Counter(item["reason"] for item in plan.get("deferred", ()))),
                    phases_s={
                        key.removesuffix("_s"): float(value)
                        for key, value in plan.get("stats", {}).items()
                        if key.endswith("_s") and isinstance(value, int | float)
                    },
                )
            if costs is not None and known.round == costs.round:
                self.rounds[index] = replace(known, rule_costs=costs.rules)


_NO_ROUND = Round(round=0, heard=0.0, policy="", status="", objective="", value=0.0)


def _ended(account: AccountRow) -> QueueRow:
    same = {name: getattr(account, name) for name in OF_ACCOUNTS}
    return QueueRow(**same, clusters=tuple(account.clusters))
