"""The rule of a start, in rounds and between, and the starts of one turn along the plan.

A start fits what is free now beside what has started before it (`core.jobs.occupation`), no
operator keeps its nodes for others, it ends by its deadline, no limit holds it, and where jobs of
others go first it takes its turn behind them.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import isfinite

from coalloc.core.base.composites import WorkflowState
from coalloc.core.base.effects import Wake
from coalloc.core.base.plan_order import Entry, PlanOrder, first_of
from coalloc.core.base.records import JobRecord, JobState
from coalloc.core.base.state import State
from coalloc.core.commands.reservations import is_kept_from
from coalloc.core.jobs import deadlines
from coalloc.core.jobs.dependencies import delayed
from coalloc.core.jobs.occupation import SlotsInUse, misfit
from coalloc.core.sharing import limits
from coalloc.core.starts import queued_claims as queueing
from coalloc.core.starts.free_places import FreePlaces, cheaper
from coalloc.core.starts.packs import is_on_trial
from coalloc.core.starts.placements import Commitment, place, startable
from coalloc.model.cost import edge_delay
from coalloc.model.jobs import MoldableJob, RigidJob
from coalloc.model.plan import Placement
from coalloc.model.platform import Cluster
from coalloc.model.shape import ONE_SLOT
from coalloc.model.values import replace


def starts_jobs(state: State) -> bool:
    """Whether jobs start between rounds, not only tasks."""
    return state.settings.rounds.commit_first_incumbent


def waits(state: State, entry: Entry) -> bool:
    """A placement has not been started, and still may be."""
    job, task = entry
    if not task:
        record = state.jobs.get(job)
        return record is not None and record.state is JobState.PENDING
    flow = state.composites.get(job)
    return isinstance(flow, WorkflowState) and task in flow.open


class StartRule(Commitment):
    """Starts of one turn along one plan, each beside those before it."""

    def __init__(
        self, state: State, now: float, policy: str, round: int, nodes: Iterable[str] | None = None
    ) -> None:
        super().__init__(state, now, policy, round, nodes)
        self.places: FreePlaces | None = None
        """Where a start may move to if that is charged less."""
        self._between = nodes is not None

    def obstacle(self, record: JobRecord, placement: Placement, until: float) -> str:
        """Reason why a placement cannot start now and stay until then; empty if it can.

        A plan knows of reservations, but its clock may have been set forward since.
        """
        why = misfit(placement, record, self.view)
        state, now = self.state, self.now
        if not why and is_kept_from(state, record.user, placement.nodes, now, until):
            why = "one of its nodes is reserved for others"
        return why

    def begin(self, record: JobRecord, placement: Placement) -> JobRecord | None:
        """Start what no obstacle keeps, unless its deadline, a limit or others' turns do."""
        state, now = self.state, self.now
        placement = queueing.gathered(self, record, placement)
        self.view.see(placement.nodes)
        if self.places is not None:
            placement = cheaper(state, self.places, record, placement)
        if deadlines.misses(record, now, placement.end - placement.start):
            deadlines.withhold(state, record.id)
            return None
        asked = limits.start_of(state, record, placement)
        if self._between and self.book.why_not(record, *asked):
            return None  # A round looks at it again; many of these are looked at between two.
        if limits.holds(state, self.book, record, placement, now):
            return None
        queued = queueing.may_wait(self, record, placement)
        if not record.foreign and queueing.must_wait(self, placement):
            (name, *_) = queueing.clusters_of(self, placement)
            if not queued or is_on_trial(state, record, name, now):
                return None  # As many claims as may wait there already, and others go first.
        chosen = place(self, record, placement, queued=queued)
        self.book.take(record, *asked)
        return chosen


class Turn(StartRule):
    """The starts of one turn along the plan."""

    def __init__(self, state: State, order: PlanOrder, now: float) -> None:
        super().__init__(state, now, order.policy, order.round, ())
        self.order, self.kept = order, set[str]()
        """And nodes that wait for others, so that what comes next there can start."""

    def line(self, count: int) -> list[str]:
        """The first jobs of the plan's order that wait."""
        return first_of(self.order.line, count, lambda job: waits(self.state, (job, "")))

    def start(self, entry: Entry, placement: Placement, *, is_early: bool = False) -> bool:
        """Start a placement now, if nothing is in its way; `is_early`: where it is not planned."""
        state, now = self.state, self.now
        record = startable(state, placement, now)
        if record is None or entry[0] in state.findings.aside:
            return False
        self.view.see(placement.nodes)
        end = now + placement.end - placement.start
        if not entry[1]:
            if max(record.opens(now), delayed(state, record)) > now:
                return False
            if not is_early and placement.start > now and not self._may_be_early(record, entry):
                return False
            placement = replace(placement, start=now, end=end)
            end = max(end, now + (record.run_limit or 0.0))
        is_kept = self._is_reserved(record, placement, end)
        if is_kept or self.obstacle(record, placement, end):
            self.kept.update(placement.nodes)
            return False
        if entry[1] and (arrives := _arrival(state, placement, self.view, now)) > now:
            if isfinite(arrives):
                state.schedule.later[entry] = arrives
                state.out.append(Wake(at=arrives))
            return False
        if self.begin(record, placement) is None:
            return False
        state.schedule.begun += 1
        if state.round is not None:
            state.round.taken.update(placement.nodes)
        return True

    def _may_be_early(self, record: JobRecord, entry: Entry) -> bool:
        """Not where it may take more than slots, which others are planned to have before it."""
        job = record.job
        is_plain = isinstance(job, RigidJob | MoldableJob) and not job.proc_gbps
        return (is_plain and job.shape == ONE_SLOT) or self.line(1) == [entry[0]]

    def _is_reserved(self, record: JobRecord, placement: Placement, end: float) -> bool:
        """A batch system, or the plan, keeps one of the nodes for others while it would run.

        The plan has it after such a time; what starts earlier must end before it.
        """
        cluster_of, clusters = self.view.cluster_of, self.state.clusters
        kept = [each for node in placement.nodes for each in self.order.kept.get(node, ())]
        for name in dict.fromkeys(cluster_of[n] for n in placement.nodes if n in cluster_of):
            reading = clusters[name].reading
            for each in () if reading is None else reading.reservations:
                is_own = each.id == f"{name}:{record.batch.reservation}"
                if not is_own and any(node in placement.nodes for node in each.nodes):
                    kept.append(each)
        job = placement.job
        return any(k.start < end and k.end > self.now and job not in k.jobs for k in kept)


def _arrival(state: State, placement: Placement, view: SlotsInUse, now: float) -> float:
    """Arrival of the data of a task's parents on the clusters it is planned on, seconds."""
    assert placement.task is not None
    flow = state.composites[placement.job]
    assert isinstance(flow, WorkflowState)
    there = {view.cluster_of[node] for node in placement.nodes}
    latest = float("-inf")
    for edge in flow.parents[placement.task]:
        parent = state.jobs[flow.job_of(edge.parent)]
        places = {part.cluster for part in parent.parts if part.cluster in state.clusters}
        if not places or places == there or parent.ended is None:
            continue
        links = {}
        for name in places | there:  # as far as data that move are concerned
            site = state.clusters[name].settings
            gbps, latency_s = site.link_capacity_gbps, site.link_latency_s
            links[name] = Cluster(name=name, nodes=(), link_gbps=gbps, link_latency_s=latency_s)
        latest = max(latest, min(parent.ended, now) + edge_delay(edge, places, there, links))
    return latest
