"""Users and operators: they ask, ask again, change their minds, and remember what was answered."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from coalloc.core.base.events import Requested
from coalloc.core.base.records import JobState
from coalloc.core.base.requests import (
    Cancel,
    Command,
    Done,
    Drain,
    Hold,
    PauseRounds,
    Refused,
    Release,
    Reserve,
    Resume,
    ResumeRounds,
    SetPriority,
    Submit,
    SubmitWorkflow,
    Unreserve,
    Update,
)
from coalloc.daemon.store.recall import drained_of
from coalloc.model.sites.parts import Launch
from tests.simulation.bounded import Bounded
from tests.simulation.disk import Disk
from tests.simulation.shaped import Shaped
from tests.simulation.wider import Wider
from tests.support.core_site import workflow

RETRY_S = 5.0
SHAPES = (
    ("a b c d e", "a>b a>c b>d c>d d>e"),
    ("a b c d e f", "a>d b>d b>e c>f"),
    ("a b c d", "a>b b>c c>d"),
    ("a b c d e f g h", ""),
)
"""Tasks and edges of workflows."""


@dataclass
class Wish:
    """A request that is repeated until it is answered."""

    command: Command
    asked: float = -1e9
    user: str = "u"


@dataclass
class Users:
    """All clients of one site.

    Attributes
    ----------
    acknowledged : dict of token to job number
    refused : dict of token to the last refusal's code
    needs : dict of token to what was asked to end before
    cancelled : set of job
        Cancels that were acknowledged.
    """

    dice: random.Random
    most: int
    clusters: tuple[str, ...]
    wider: Wider | None = None
    """What they ask for beside the plain commands; None: nothing."""
    bounded: Bounded | None = None
    """The same of throttles and deadlines."""
    shaped: Shaped | None = None
    """The same of shapes."""
    wishes: dict[str, Wish] = field(default_factory=dict)
    needs: dict[str, tuple[tuple[str, str], ...]] = field(default_factory=dict)
    acknowledged: dict[str, str] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    cancelled: set[str] = field(default_factory=set)
    held: set[str] = field(default_factory=set)
    drained: set[str] = field(default_factory=set)
    paused: bool = False
    members: int = 2
    """Of each array."""
    made: int = 0
    asked: int = 0
    requests: dict[str, Command] = field(default_factory=dict)
    """What was submitted, by token."""
    owners: dict[str, str] = field(default_factory=dict)
    """Tokens of all job numbers that were ever acknowledged."""
    on_wish: Callable[[Command], None] = lambda _: None

    def want(self, *, calm: bool) -> None:
        """Think of something new; once calm, only new jobs and undoing."""
        dice = self.dice
        if self.made < self.most and (calm or dice.random() < 0.5):
            self._submit()
            return
        if calm:
            self._undo()
            return
        if any(
            not isinstance(wish.command, Submit | SubmitWorkflow) for wish in self.wishes.values()
        ):
            return  # one change of mind at a time
        jobs = list(self.acknowledged.values())
        match dice.randrange(8):
            case 0 if jobs:
                self._wish(Cancel(job=dice.choice(jobs)))
            case 1 if jobs:
                job = dice.choice(jobs)
                self.held.add(job)
                self._wish(Hold(job=job))
            case 2 if self.held:
                self.held.remove(job := min(self.held))  # a set pops what its hashes say
                self._wish(Release(job=job))
            case 3:
                target = dice.choice(self.clusters)
                self.drained.add(target)
                self._wish(Drain(target=target))
            case 4 if self.drained:
                self._wish(Resume(target=self.drained.pop()))
            case 5 if dice.random() < 0.3:
                self.paused = True
                self._wish(PauseRounds())
            case 6 if self.paused:
                self.paused = False
                self._wish(ResumeRounds())
            case _:
                pass

    def want_more(self) -> None:
        """Think of one of the wider commands, one at a time."""
        if self.wider is None or any(
            isinstance(wish.command, Update | SetPriority | Reserve | Unreserve)
            for wish in self.wishes.values()
        ):
            return
        command = self.wider.think(list(self.acknowledged.values()))
        if command is not None:
            self.wider.asked(command)
            self._wish(command)

    def want_bounds(self, now: float) -> None:
        """Think of a throttle or a deadline, one at a time.

        Parameters
        ----------
        now : float
            By the daemon's clock.
        """
        if self.bounded is None:
            return
        self.bounded.now = now
        if any(isinstance(wish.command, Update) for wish in self.wishes.values()):
            return
        command = self.bounded.think(self.acknowledged)
        if command is not None:
            self.bounded.asked(command)
            self._wish(command)

    def ask_for(self, command: Command) -> None:
        """Ask for something beside what users think of."""
        self._wish(command)

    def restored(self, disk: Disk) -> None:
        """The daemon's store is an older copy: ask only for what it has, submit some again.

        Clients end with their daemon, and changes of mind that they had not heard of with them.
        """
        jobs = disk.jobs
        self.wishes = {name: w for name, w in self.wishes.items() if isinstance(w.command, Submit)}
        for token, job in list(self.acknowledged.items()):
            if job not in jobs and f"{job}_1" not in jobs:
                del self.acknowledged[token]
                if self.dice.random() < 0.5:
                    user = "u" if self.wider is None else self.wider.owners[token]
                    self.wishes[token] = Wish(self.requests[token], user=user)
        records = {job: jobs.get(job) or jobs.get(f"{job}_") for job in self.cancelled}
        self.cancelled = {
            job
            for job, record in records.items()
            if record is None or record.is_ended or record.cancelled_by
        }
        self.held = {job for job, record in jobs.items() if record.state is JobState.HELD}
        self.drained = set(drained_of(disk.meta.get("drained", "")))
        self.paused = False
        if self.wider is not None:
            self.wider.restored(disk)
        if self.bounded is not None:
            self.bounded.throttles.clear()

    def _undo(self) -> None:
        """Nothing is left held, drained or paused."""
        if any(wish for wish in self.wishes.values()):
            return
        for job in sorted(self.held):
            self._wish(Release(job=job))
        for target in sorted(self.drained):
            self._wish(Resume(target=target))
        if self.paused:
            self._wish(ResumeRounds())
        if self.wider is not None:
            for command in self.wider.undo():
                self._wish(command)
        self.held.clear()
        self.drained.clear()
        self.paused = False

    def _submit(self) -> None:
        dice = self.dice
        token = f"t{self.made}"
        self.made += 1
        kind = dice.random()
        if kind < 0.4:
            self.needs[token] = ()
            made = self._workflow(token) if kind < 0.25 else self._divisible(token)
            self._want(token, made)
            return
        job: dict[str, object] = {
            "kind": "rigid",
            "procs": dice.choice([1, 1, 2, 2, 3, 3, 4, 5]),
            "base_time": dice.choice([1.0, 5.0, 30.0]),
            "proc_gbps": dice.choice([0.0, 0.2, 0.3]),
        }
        needs: tuple[tuple[str, str], ...] = ()
        known = list(self.acknowledged.values())
        if known and dice.random() < 0.2:
            needs = ((dice.choice(["afterok", "afterany"]), dice.choice(known)),)
        self.needs[token] = needs
        is_many = self.members > 2
        is_array = dice.random() < (0.8 if is_many else 0.3)
        array = tuple(range(1, self.members + 1)) if is_array else ()
        if array and is_many:
            job |= {"procs": 1, "proc_gbps": 0.0}
        launch = Launch(argv=("work",))
        self._want(token, Submit(token=token, job=job, launch=launch, needs=needs, array=array))

    def _want(self, token: str, command: Submit) -> None:
        user = "u"
        if self.wider is not None:
            user, command = self.wider.widened(token, command, self.acknowledged)
            self.needs[token] = command.needs
        if self.bounded is not None:
            command = self.bounded.bound(token, command)
        if self.shaped is not None:
            command = self.shaped.shaped(command)
        self.requests[token] = command
        self.wishes[token] = Wish(command, user=user)

    def _workflow(self, token: str) -> SubmitWorkflow:
        dice = self.dice
        tasks, edges = dice.choice(SHAPES)
        retries, keep_going = dice.choice([0, 0, 1, 2]), dice.random() < 0.5
        return workflow(token, tasks, edges, retries=retries, keep_going=keep_going)

    def _divisible(self, token: str) -> Submit:
        dice = self.dice
        chunks, retries = dice.choice([1, 4, 9, 20]), dice.choice([0, 1, 3])
        job = {"kind": "divisible", "work": float(chunks), "chunk_s": 1.0}
        keep_going = dice.random() < 0.5
        launch = Launch(argv=("work",))
        return Submit(token=token, job=job, launch=launch, retries=retries, keep_going=keep_going)

    def _wish(self, command: Command) -> None:
        self.asked += 1
        self.on_wish(command)
        self.wishes[f"w{self.asked}"] = Wish(command)

    def ask(self, now: float) -> Requested | None:
        """The next request to go out, if its answer is overdue."""
        for origin, wish in self.wishes.items():
            if now - wish.asked >= RETRY_S:
                wish.asked = now
                return Requested(
                    origin=origin,
                    user=wish.user,
                    uid=1,
                    gid=1,
                    operator=True,
                    command=wish.command,
                )
        return None

    def hear(self, origin: object, answer: object) -> None:
        """An answer has arrived; it may be the second to the same request.

        Raises
        ------
        AssertionError
            If a token has become another job.
        """
        name = str(origin)
        wish = self.wishes.get(name)
        match answer:
            case Done(body=body) if name.startswith("t"):
                job = str(body["job"])
                owner = self.owners.setdefault(job, name)
                assert owner == name, f"job {job} was {owner}, and is {name} now"
                before = self.acknowledged.setdefault(name, job)
                assert before == job, f"{name} was job {before}, and is job {job} now"
                self.wishes.pop(name, None)
            case Done(body=body) if wish is not None:
                if self.wider is not None:
                    self.wider.granted(wish.command, body)
                if self.bounded is not None:
                    self.bounded.granted(wish.command, body)
                if isinstance(wish.command, Cancel):
                    self.cancelled.add(wish.command.job)
                del self.wishes[name]
            case Refused(code="storage" | "busy"):
                pass  # asked again later
            case Refused(code=code) if wish is not None:
                self.refused[name] = code
                del self.wishes[name]
            case _:
                pass

    def needs_of(self, job: str) -> tuple[tuple[str, str], ...]:
        """What the users asked to end before this job; nothing before they know its number."""
        number = job.partition("_")[0]
        if self.wider is not None and number in self.wider.redirected:
            return ()
        return next((self.needs[t] for t, j in self.acknowledged.items() if j == number), ())

    def is_calm(self) -> bool:
        """Every wish was answered, and nothing stays held, drained or paused."""
        undone = not (self.held or self.drained or self.paused)
        undone = undone and (self.wider is None or not self.wider.reserved)
        return self.made >= self.most and not self.wishes and undone
