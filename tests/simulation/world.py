"""A site under a seeded scheduler: each step lets one thing happen, somewhere."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial

from coalloc.core.base.messages import Prepare
from coalloc.core.base.requests import Cancel
from coalloc.core.jobs import arrays
from coalloc.core.sharing import limits
from coalloc.core.sharing.priority import project_of
from coalloc.model.settings import ClusterConfig, Config, TriggerConfig
from coalloc.model.values import replace
from tests.simulation import promises
from tests.simulation.batch import Batch
from tests.simulation.bounded import Bounded
from tests.simulation.daemon import DaemonHost
from tests.simulation.executors import ExecutorHost
from tests.simulation.guests import OVER
from tests.simulation.network import Network
from tests.simulation.restoring import Restorations
from tests.simulation.shaped import Shaped, equipped
from tests.simulation.siblings import Strays
from tests.simulation.troubles import Troubles
from tests.simulation.users import Users
from tests.simulation.wider import PRIORITY, PROJECTS, Wider
from tests.support.core_site import reading
from tests.support.settings import core_settings

SITE = {"a": (2, 1, 1.0), "b": (2, 2, 0.5), "c": (1, 2, 0.4)}
"""Nodes, slots of each and link capacity in Gbit/s, by cluster."""
LEASE_S = 20.0
JOBS = 10
GUESTS = 3
"""Jobs submitted in each batch system itself."""
MEMBERS = 12
"""Of each array, in worlds where members are taken ahead of others."""
PACK_S = 1000.0
"""Work that is taken ahead there, seconds."""
CALM_S = 2.0 * LEASE_S
"""What was lost or late is made good this long after the last fault, seconds."""
SETTLED_S = 14_400.0
"""Everything has ended this long after the last fault: clocks may be set back twice, seconds."""


class UnsettledError(AssertionError):
    """Faults have ceased, and something never ends."""


def drawn_settings(seed: int, *, queues: bool, is_wider: bool, has_packs: bool) -> Config:
    """The daemon's settings in the world of this seed."""
    settings = core_settings(
        clusters=tuple(ClusterConfig(name=n, link_gbps=SITE[n][2]) for n in SITE),
        trigger=(
            TriggerConfig(kind="timer"),
            TriggerConfig(kind="queue_length"),
            TriggerConfig(kind="job_finished"),
            TriggerConfig(kind="cluster_returned"),
        ),
        fallbacks=("plain",),
        min_interval_s=0.2,
        prepare_timeout_s=8.0,
        lease_s=LEASE_S,
        max_waiting=4,
        max_wait_s=300.0,
        max_idle_node_s=10.0,
        backoff_first_s=0.5,
        backoff_max_s=4.0,
        keep_ended=10_000,
        members_s=PACK_S if has_packs else 0.0,
    )
    if is_wider:
        settings = core_settings(settings, projects=PROJECTS, priority=PRIORITY)
    return settings


class World:
    """Daemon, executors, users, and everything between them.

    Parameters
    ----------
    seed : int
        Decides everything that happens.
    faults : float
        How often things go wrong: 0 is never, .15 is a bad day.
    tell : callable, optional
        Receives a line for each step.
    """

    def __init__(
        self,
        seed: int,
        faults: float = 0.15,
        tell: Callable[[str], None] | None = None,
        *,
        restores: bool = True,
    ) -> None:
        self.dice = random.Random(seed)
        self.now = 1_000_000.0
        self.tell = tell
        names = tuple(SITE)
        self.network = Network(names, self.dice)
        wider = Wider(seed, names) if random.Random(f"wider {seed}").random() < 0.5 else None
        queues = random.Random(f"queues {seed}").random() < 0.5
        has_packs = random.Random(f"packs {seed}").random() < 1.0 / 3.0
        settings = drawn_settings(
            seed, queues=queues, is_wider=wider is not None, has_packs=has_packs
        )
        # in half of the worlds an array is too long for the queue
        arrays.WINDOW = 1 if random.Random(f"long {seed}").random() < 0.5 else MEMBERS
        self.capacity = {name: SITE[name][2] for name in names}
        self.daemon = DaemonHost(settings, self.network, self.dice, self._committed)
        bounds = random.Random(f"bounds {seed}").random() < 1.0 / 3.0
        bounded = Bounded(seed, self.now) if bounds else None
        has_shapes = random.Random(f"shapes {seed}").random() < 1.0 / 3.0
        shaped = Shaped(seed) if has_shapes else None
        self.users = Users(self.dice, JOBS, names, wider, bounded, shaped)
        self.users.members = MEMBERS if has_packs else 2
        self.daemon.planner.slow = random.Random(f"slow {seed}") if bounds else None
        self._are_full = queues and random.Random(f"full {seed}").random() < 0.6
        self.batches: dict[str, Batch] = {}
        self.executors: dict[str, ExecutorHost] = {}
        self._set_up(seed, queues=queues, preempts=wider is not None, has_shapes=has_shapes)
        self.restorations = Restorations(
            seed if restores else None, self.daemon, self.executors, self.batches, self.users
        )
        self._ticks = dict.fromkeys(names, 0.0)
        self._strays = Strays()
        self.steps = 0
        self._calm = False
        self._calm_since = float("inf")
        self._looked_at = -1
        self._back: dict[str, float] = {}
        """When who is down comes back, s."""
        self.set_faults(faults)
        self.daemon.boot(self.now)
        for executor in self.executors.values():
            executor.boot(self.now)

    def _set_up(self, seed: int, *, queues: bool, preempts: bool, has_shapes: bool) -> None:
        """Make each cluster's batch system and its executor."""
        readied: dict[tuple[str, int], dict[int, int]] = {}
        starts: dict[str, dict[int, set[int]]] = {}
        for name, (nodes, slots, _) in SITE.items():
            read = replace(reading(name, nodes, slots=slots), queues=queues)
            read = equipped(read) if has_shapes else read
            batch = Batch(
                {node.name: node for node in read.nodes},
                self.dice,
                readied,
                starts,
                partial(self._started, name),
                waits=random.Random(f"waits {seed} {name}"),
                queues=queues,
                is_strict=queues,  # it grants what the daemon does not know of yet
                preempts=random.Random(f"preempts {seed} {name}") if preempts else None,
                on_claim=partial(self._claimed, name),
                is_older=has_shapes and random.Random(f"older {seed} {name}").random() < 0.2,
            )
            self.batches[name] = batch
            self.executors[name] = ExecutorHost(
                name, batch, self.network, read, Troubles(f"{seed} {name}")
            )

    def set_faults(self, faults: float) -> None:
        """How often things go wrong from now on."""
        self.faults = faults
        self.network.faults = self.daemon.faults = self.daemon.planner.faults = faults
        for batch in self.batches.values():
            batch.faults = faults
        for executor in self.executors.values():
            executor.troubles.faults = faults

    def _committed(self) -> None:
        touched = self.restorations.touched
        promises.at_commit(self.daemon, self.capacity, touched, self.batches)

    def _claimed(self, cluster: str, order: Prepare) -> None:
        promises.claimed_together(self.batches, cluster, order)

    def _started(self, cluster: str, order: Prepare) -> None:
        if not self.restorations.is_former(cluster, order):
            promises.at_start(self.daemon, self.batches, cluster, self.users, order)
            promises.nodes_known(self.batches, order)

    def step(self) -> None:
        """One thing happens.

        Raises
        ------
        AssertionError
            If a promise is broken.
        """
        self.steps += 1
        dice = self.dice
        happening = dice.randrange(20)
        if happening < 12:
            for _ in range(dice.choice([1, 1, 3, 10, 30])):
                what = self._deliver()
        elif happening < 14:
            what = self._cluster_moves()
        elif happening < 16:
            what = self._users_move()
        elif happening < 17:
            what = self._guests_move()
        else:
            self.now += dice.choice([0.01, 0.1, 0.1, 1.0])
            what = "time passes"
        if self.faults and dice.random() < 0.15 * self.faults:
            what = self._fail()
        what = self._restorations() or what
        self._mend()
        self._fill()
        self._timers()
        self.daemon.step(self.now)
        while self.daemon.answers:
            origin, answer = self.daemon.answers.pop(0)
            if dice.random() >= 0.5 * self.faults:
                self.users.hear(origin, answer)
        promises.at_step(self.daemon, self.batches, self.users)
        if self.now - self._calm_since > CALM_S:
            promises.hastened(self.batches, self.now)
            self._strays.look(self.daemon.disk, self.batches, self.now)
        if self.tell is not None:
            self.tell(f"{self.now:10.2f}  {what}")

    def _restorations(self) -> str:
        """A backup, a restoration, and what an operator does about it."""
        if self.faults and (done := self.restorations.fail(self.now)):
            if self.daemon.core is None:
                self._back["daemon"] = self.now + self.dice.choice([2.0, 2.0 * LEASE_S])
            return done
        return self.restorations.operate(self.now)

    def _deliver(self) -> str:
        if self.dice.random() < 0.5:
            found = self.network.take_down(self.now)
            if found is None:
                return "nothing to deliver"
            name, message = found
            executor = self.executors[name]
            if executor.is_up(self.now):
                executor.hear(message, self.now)
            elif executor.core is not None:
                self.network.links[name].down.insert(0, message)
            return f"{name} hears {message}"
        statement = self.network.take_up(self.now)
        if statement is None:
            return "nothing to deliver"
        self.daemon.hear(statement, self.executors[statement.cluster].identity, self.now)
        return f"daemon hears {type(statement).__name__} of {statement.cluster}"

    def _cluster_moves(self) -> str:
        name = self.dice.choice(list(self.batches))
        self.batches[name].move(self.now)
        if self.executors[name].is_up(self.now):
            self.executors[name].look(self.now)
        return f"{name}'s batch system moves"

    def _users_move(self) -> str:
        if self.dice.random() < 0.3:
            self.users.want(calm=self._calm)
        if not self._calm:
            self.users.want_more()
            self.users.want_bounds(self.now + self.daemon.offset)
        request = self.users.ask(self.now)
        if request is None:
            return "users wait"
        if self.dice.random() >= 0.5 * self.faults:
            self.daemon.offer(request)
            if self.dice.random() < 0.1 * self.faults:
                self.daemon.disk.is_full = True
        return f"users ask for {request.command}"

    def _guests_move(self) -> str:
        """Somebody does something in a batch system itself, or here to one of its jobs."""
        dice = self.dice
        name = dice.choice(list(self.batches))
        batch, jobs = self.batches[name], self.batches[name].guests.jobs
        if len(jobs) < GUESTS and (self._calm or dice.random() < 0.2):
            batch.guests.submit(dice.choice([1, 2]), self.now)
            return f"a user of {name} submits there"
        if self._calm or not jobs or dice.random() > 2.0 * self.faults:
            return "guests wait"
        guest = dice.choice(list(jobs.values()))
        if guest.state in OVER:
            return "guests wait"
        match dice.randrange(3):
            case 0:
                guest.state, guest.is_unwanted = "cancelled", True
                batch.end_guest(guest.id, "cancelled_there", self.now)
            case 1 if guest.state == "running":
                guest.state, guest.submitted = "waiting", self.now
                guest.requeued += 1
                batch.end_guest(guest.id, "requeued", self.now)
            case 2:
                for record in self.daemon.disk.jobs.values():
                    if (record.origin, record.foreign) == (name, guest.id) and not record.is_ended:
                        guest.is_unwanted = True
                        self.users.ask_for(Cancel(job=record.id))
            case _:
                pass
        return f"guest {guest.id} of {name} is {guest.state}"

    def _fill(self) -> None:
        """In some worlds others keep every cluster full until our own jobs are over."""
        if self._are_full:
            jobs = self.daemon.disk.jobs.values()
            are_over = all(job.is_ended for job in jobs if not job.origin)
            for batch in self.batches.values():
                batch.is_full = not (self._calm and are_over)

    def _timers(self) -> None:
        for name, executor in self.executors.items():
            if self.now - self._ticks[name] >= 1.0 and executor.is_up(self.now):
                self._ticks[name] = self.now
                executor.tick(self.now)

    def _fail(self) -> str:
        """Something breaks."""
        dice = self.dice
        name = dice.choice(list(self.executors))
        executor = self.executors[name]
        until = self.now + dice.choice([0.5, 2.0, 8.0, 2.0 * LEASE_S])
        match dice.randrange(8):
            case 0:
                self.daemon.crash()
                self._back["daemon"] = until
                return "the daemon is killed"
            case 1:
                self._back[name] = until
                if dice.random() < 0.2:
                    executor.lose_state()
                    self.restorations.lost_state(name)
                    return f"{name}'s executor is killed, and its state is gone"
                executor.crash()
                return f"{name}'s executor is killed"
            case 2:
                self.network.cut(name, until)
                return f"{name} is cut off"
            case 3:
                self.daemon.frozen_until = until
                return "the daemon stands still"
            case 4:
                executor.frozen_until = until
                return f"{name}'s executor stands still"
            case 5:
                self.daemon.disk.is_full = True
                return "the disk is full"
            case 6:
                self.daemon.offset += dice.choice([-3600.0, -5.0, 0.5, 5.0, 3600.0])
                return f"the daemon's clock is {self.daemon.offset:+} s off"
            case _:
                batch = self.batches[name]
                batch.offset += dice.choice([-3600.0, -5.0, 0.5, 5.0, 3600.0])
                return f"the clock of {name} is {batch.offset:+} s off"

    def _mend(self) -> None:
        """Whoever was down comes back when its time has come; without faults, at once."""
        calm = self.faults == 0.0
        if calm:
            self.network.heal()
        if self.daemon.core is None and (calm or self._back.get("daemon", 0.0) <= self.now):
            self.daemon.boot(self.now)
        if self.daemon.disk.is_full and (calm or self.dice.random() < 0.02):
            self.daemon.disk.is_full = False
        for name, executor in self.executors.items():
            if executor.core is None and (calm or self._back.get(name, 0.0) <= self.now):
                executor.boot(self.now, rolled_back=self.dice.random() < self.faults)

    def settle(self, within_s: float = SETTLED_S) -> None:
        """Faults stop, and everything comes to an end within so many seconds.

        Raises
        ------
        UnsettledError
        """
        self.set_faults(0.0)
        self._calm = True
        for name, batch in self.batches.items():
            if batch.is_older:
                batch.is_older = False
                self.executors[name].crash()
        began = self._calm_since = self.now
        while not self.is_over():
            self._give_up_in_vain()
            self.step()
            if self.now - began > within_s:
                states = {job: str(r.state) for job, r in self.daemon.disk.jobs.items()}
                raise UnsettledError(f"not settled: {states}, wishes {list(self.users.wishes)}")
        promises.at_end(self.daemon, self.batches, self.restorations.touched)

    def _give_up_in_vain(self) -> None:
        """Cancel what limits never allow: it was taken in while no cluster had been read."""
        if self.daemon.core is None or self.users.wishes or self._looked_at == self.daemon.turns:
            return
        self._looked_at = self.daemon.turns
        state = self.daemon.core.state
        for job in state.findings.limited:
            record = state.jobs.get(job)
            if record is not None and not record.is_ended:
                owner = project_of(state, record), record.user
                if limits.never_fits(state, *owner, record.job):
                    self.users.ask_for(Cancel(job=job))
                    return

    def is_over(self) -> bool:
        """Every wish was answered, every job has ended, no executor keeps anything."""
        disk = self.daemon.disk
        guests = [batch.guests for batch in self.batches.values()]
        return (
            self.users.is_calm()
            and not any(batch.parts for batch in self.batches.values())
            and not any(disk.outbox.values())
            and all(len(guest.jobs) == GUESTS and guest.are_over() for guest in guests)
            and all(record.is_ended for record in disk.jobs.values())
            and self.restorations.is_over()
        )
