"""The daemon's state machine: `handle(event, now) -> effects`.

No clock, no I/O: the shell around it owns sockets, the store, timers and the solver, and
`simulate` runs the same object in virtual time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct, field

from coalloc.core.base.clusters import ClusterState
from coalloc.core.base.composites import WorkflowState
from coalloc.core.base.effects import Effect, Reply, SaveMeta, Wake
from coalloc.core.base.events import (
    ClockSet,
    CoreEvent,
    CostsWanted,
    Disconnected,
    IncumbentFound,
    Reconfigured,
    Requested,
    SingleEvent,
    Solved,
    SolveFailed,
    SolverWarm,
    StatementReceived,
    StorageLost,
    StorageReturned,
    Ticked,
    TimerFired,
    Together,
    TokenRecalled,
)
from coalloc.core.base.projects import ProjectTree
from coalloc.core.base.records import JobRecord, JobState
from coalloc.core.base.requests import (
    Cancel,
    CommandAnswer,
    Hold,
    Refused,
    Release,
    RequestError,
    Submit,
    Update,
)
from coalloc.core.base.round_control import RoundControl
from coalloc.core.base.state import State, arrival, forget_tokens
from coalloc.core.base.state_tables import LastNumbers, Learning, Maintenance, Presence, Sharing
from coalloc.core.clusters import presence
from coalloc.core.commands import operators as operating
from coalloc.core.commands import queue
from coalloc.core.commands import reservations as reserving
from coalloc.core.commands import updates as updating
from coalloc.core.jobs import after_restore, arrays, deadlines
from coalloc.core.learning import promises
from coalloc.core.rounds import dispatch
from coalloc.core.rounds import round as rounds
from coalloc.core.sharing import accounting
from coalloc.core.starts import requeue as requeueing
from coalloc.core.starts import siblings
from coalloc.model.errors import InputError
from coalloc.model.settings import ClusterConfig, Config


class StoredState(Struct, frozen=True, kw_only=True):
    """The state that the store gives back at a start; its groups become the coordinator's own."""

    jobs: Iterable[JobRecord] = ()
    """All that have not ended, and the newest that have."""
    tokens: Mapping[tuple[str, str], str] = field(default_factory=dict)
    """By user and token: the number of the job."""
    seqs: Mapping[str, int] = field(default_factory=dict)
    """By cluster: the next number of its orders."""
    unacked: Mapping[str, int] = field(default_factory=dict)
    """By cluster: the lowest number still in its outbox."""
    paused: bool = False
    epoch: int = 1
    store: str = ""
    last: LastNumbers = field(default_factory=LastNumbers)
    clock_set_s: float = 0.0
    maintenance: Maintenance = field(default_factory=Maintenance)
    presence: Presence = field(default_factory=Presence)
    learning: Learning = field(default_factory=Learning)
    sharing: Sharing = field(default_factory=Sharing)


def tree_of(settings: Config) -> ProjectTree:
    """The projects, with the limits of users."""
    return ProjectTree(settings.projects, settings.users, settings.priority.others_share)


class Coordinator:
    """Queue, rounds and starts of all clusters."""

    def __init__(self, settings: Config, remembered: StoredState | None = None) -> None:
        past = remembered or StoredState()
        control = RoundControl(
            triggers=settings.rounds.trigger, min_interval_s=settings.rounds.min_interval_s
        )
        control.paused = past.paused
        state = self.state = State(
            settings=settings,
            rounds=control,
            epoch=past.epoch,
            store=past.store,
            tokens=dict(past.tokens),
            last=past.last,
            clock_set_s=past.clock_set_s,
            maintenance=past.maintenance,
            presence=past.presence,
            learning=past.learning,
            sharing=past.sharing,
        )
        state.presence.numbers = {
            n: (seq, past.unacked.get(n, seq) - 1) for n, seq in past.seqs.items()
        }
        state.sharing.tree = tree_of(settings)
        self._now: float | None = None
        state.index_all(sorted(past.jobs, key=lambda r: arrival(r.id)))
        self._take_clusters(settings)
        if state.waiting:
            control.want("restart")

    def handle(self, event: CoreEvent, now: float) -> list[Effect]:
        """Take in one event, at a wall-clock time; the caller carries out the effects, in order."""
        state = self.state
        state.out = []
        self._look_at_clock(now)
        urgent, was_solving = frozenset(state.rounds.urgent), state.rounds.is_solving
        for each in event.events if isinstance(event, Together) else (event,):
            self._take(each, now)
        deadlines.end_due(state, now)
        requeueing.settle_packs(state, now)
        if dispatch.carry_on(state, now):
            is_empty = not (state.waiting or state.composites)
            state.rounds.answered(urgent, is_empty=is_empty)
        arrays.follow(state, now)
        has_committed = was_solving and not state.rounds.is_solving
        rounds.begin_if_due(state, now, has_committed=has_committed)
        if state.schedule.unseen and isinstance(event, Ticked):
            state.out.append(Wake(at=now))
            rounds.look_ahead(state)
        self._forget_oldest()
        accounting.close_accounts(state)
        promises.settle(state)
        state.forget_together()
        out, state.out = state.out, []
        return out

    def _take(self, event: SingleEvent, now: float) -> None:
        state = self.state
        match event:
            case Requested():
                self._requested(event, now)
                forget_tokens(state)
            case StatementReceived():
                presence.stated(state, event, now)
            case Disconnected(cluster=name):
                presence.lost(state, name, now, "not heard of")
            case TimerFired(trigger=index):
                state.rounds.timer_fired(index)
            case Ticked():
                self._ticked(now)
            case IncumbentFound():
                rounds.incumbent(state, event, now)
            case Solved():
                rounds.solved(state, event, now)
            case SolveFailed():
                rounds.failed(state, event, now)
            case StorageLost(jobs=jobs):
                state.rounds.blocked = True
                self._take_back(jobs)
            case StorageReturned():
                state.rounds.blocked = False
                state.rounds.want("store_returned")
            case ClockSet(seconds=seconds):
                state.clock_set_s += seconds
                state.out.append(SaveMeta(key="clock_set_s", value=repr(state.clock_set_s)))
            case SolverWarm():
                if state.rounds.last_start is not None and state.waiting:
                    state.rounds.want("solver_warm")
            case CostsWanted():
                state.rounds.costs_wanted = True
            case TokenRecalled(user=user, token=token, job=job):
                state.tokens[user, token] = job
            case Reconfigured(settings=settings):
                self._reconfigure(settings, now)

    def _take_back(self, jobs: tuple[str, ...]) -> None:
        """Submits that could not be written were none; a resend is a new one."""
        if not jobs:
            return
        state = self.state
        for job in jobs:
            promises.withdraw(state, job)
            state.remove(job)
        lost = {job.partition("_")[0] for job in jobs}
        state.tokens = {key: job for key, job in state.tokens.items() if job not in lost}

    def _look_at_clock(self, now: float) -> None:
        if self._now is None:
            after_restore.after_restart(self.state, now)
            self.state.presence.gathers_until = now + presence.GATHERING_S
        elif now < self._now:
            after_restore.set_back(self.state, now, self._now - now)
        self._now = now

    def take_partial(self) -> list[Effect]:
        """The effects of an event whose handling broke off."""
        out, self.state.out = self.state.out, []
        return out

    def _reconfigure(self, settings: Config, now: float) -> None:
        self.state.settings = settings
        self.state.sharing.tree = tree_of(settings)
        self.state.rounds.triggers = settings.rounds.trigger
        self.state.rounds.min_interval_s = settings.rounds.min_interval_s
        self.state.rounds.rearm()
        self.state.findings.aside.clear()
        self._take_clusters(settings)
        self._leave_drained(now)

    def _leave_drained(self, now: float) -> None:
        """Take what waits in queues of clusters that get no new work out of them."""
        for name, cluster in self.state.clusters.items():
            if cluster.drained:
                siblings.leave(self.state, name, now)

    def _take_clusters(self, settings: Config) -> None:
        """Configured clusters in their order, then those that still run something."""
        state = self.state
        old = state.clusters
        sites = {site.name: site for site in settings.clusters}
        busy = {part.cluster for record in state.placed_records() for part in record.parts}
        state.clusters = {}
        for name in (*sites, *sorted(busy - set(sites))):
            cluster = old.pop(name, None)
            if cluster is None:
                cluster = ClusterState(settings=ClusterConfig(name=name))
                # An executor that was here before goes on counting where it stood.
                cluster.next_seq, cluster.acked_seq = state.presence.numbers.pop(name, (1, 0))
                cluster.identity = state.presence.identities.pop(name, "")
            cluster.settings = sites.get(name, cluster.settings)
            cluster.verdicts.clear()
            cluster.configured = name in sites
            cluster.drained = name in state.maintenance.drained or not cluster.configured
            state.clusters[name] = cluster
        for name, cluster in old.items():
            state.presence.numbers[name] = (cluster.next_seq, cluster.acked_seq)
            state.presence.identities[name] = cluster.identity
        state.presence.unknown.clear()
        state.suitable.clear()

    def _requested(self, event: Requested, now: float) -> None:
        try:
            answer = self._answer(event, now)
        except RequestError as error:
            answer = error.refused
        except InputError as error:
            answer = Refused(code="bad_request", message=str(error))
        self.state.out.append(Reply(origin=event.origin, answer=answer))

    def _answer(self, event: Requested, now: float) -> CommandAnswer:
        state = self.state
        match event.command:
            case Submit() as command:
                return queue.submit(state, event, command, now)
            case Cancel() as command:
                answer = queue.cancel(state, event, command, now)
            case Hold(job=job):
                answer = queue.switch(state, event, job, now, JobState.HELD)
            case Release() as command:
                return queue.release(state, event, command, now)
            case Update() as command:
                answer = updating.update(state, event, command, now)
            case _:
                answer = operating.operated(state, event, now)
                self._leave_drained(now)
                return answer
        flows = state.composites.values()
        if state.schedule.order is not None and any(
            isinstance(flow, WorkflowState) for flow in flows
        ):
            state.rounds.outdated()  # jobs that the plan has next may have gone from the queue
        return answer

    def _ticked(self, now: float) -> None:
        state = self.state
        requeueing.give_up_late(state, now)
        reserving.end_due(state, now)
        dispatch.return_due(state, now)
        ready = [
            record.not_before
            for record in (state.jobs[job] for job in state.marked.backing_off)
            if record.state is JobState.PENDING
        ]
        if any(at <= now for at in ready):
            state.rounds.want("backed_off")
        state.marked.backing_off = {
            job
            for job in state.marked.backing_off
            if state.jobs[job].is_waiting and state.jobs[job].not_before > now
        }
        following = [at for at in ready if at > now]
        if following:
            state.out.append(Wake(at=min(following)))

    def _forget_oldest(self) -> None:
        state = self.state
        while len(state.ended) > state.settings.daemon.keep_ended:
            oldest = next((job for job in state.ended if job not in state.dependents), None)
            if oldest is None:
                return
            state.remove(oldest)
