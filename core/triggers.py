"""When a round starts: timers, queue length, finished jobs, returned clusters, operators.

Rules
-----
- A queue that stays above N does not spin: its trigger fires once, and again only after a
  round has placed something or a job has arrived.
- Two rounds start at least `min_interval_s` apart; what happens in between causes one
  round, not several.
- What happens during a solve causes one following round.
- A plan of workflows that has become inaccurate is made again, but tasks start along the old one
  meanwhile: such rounds take at most a fifth of the time.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from coalloc.core.settings import Trigger

OUTDATED = "plan_outdated"
"""A task ended earlier or later than planned, or failed."""
PLANNING_SHARE = 0.2
"""The most of all time that is spent on rounds for nothing but an outdated plan."""


@dataclass(slots=True)
class RoundControl:
    """Decides when a round is due; knows nothing of jobs or clusters."""

    triggers: tuple[Trigger, ...]
    min_interval_s: float
    paused: bool = False
    blocked: bool = False
    """Nothing can be written: no round, whoever asks."""
    is_solving: bool = False
    last_start: float | None = None
    last_length_s: float = 0.0
    wanted: str = ""
    wanted_policy: str = ""
    armed: dict[int, bool] = field(default_factory=dict)

    def job_arrived(self, jobs: int, procs: int) -> None:
        """A job joined the queue, which now holds so many jobs and processes."""
        self.rearm()
        self.queue_changed(jobs, procs)

    def rearm(self) -> None:
        """Queue-length triggers may fire again."""
        self.armed.clear()

    def queue_changed(self, jobs: int, procs: int) -> None:
        """Look at the queue-length triggers."""
        for index, trigger in enumerate(self.triggers):
            if trigger.kind != "queue_length" or not self.armed.get(index, True):
                continue
            if (procs if trigger.count == "procs" else jobs) >= trigger.at_least:
                self.armed[index] = False
                self.want("queue_length", trigger.policy)

    def timer_fired(self, index: int) -> None:
        """A timer of the configuration is due."""
        if index < len(self.triggers) and self.triggers[index].kind == "timer":
            self.want("timer", self.triggers[index].policy)

    def happened(self, kind: str) -> None:
        """Something that the triggers of this kind, if there are any, wait for."""
        for trigger in self.triggers:
            if trigger.kind == kind:
                self.want(kind, trigger.policy)

    def outdated(self) -> None:
        """The plan is followed still, but no longer what it should be."""
        self.want(OUTDATED)

    def want(self, why: str, policy: str = "") -> None:
        """Ask for a round; the first asker names it."""
        if not self.wanted or (self.wanted == OUTDATED and why != OUTDATED):
            self.wanted, self.wanted_policy = why, policy

    def due_at(self) -> float | None:
        """When the wanted round may start; None if none is wanted or possible."""
        if (
            not self.wanted
            or self.is_solving
            or self.blocked
            or (self.paused and self.wanted != "operator")
        ):
            return None
        if self.last_start is None:
            return 0.0
        pause = self.last_length_s / PLANNING_SHARE if self.wanted == OUTDATED else 0.0
        return self.last_start + max(self.min_interval_s, pause)

    def take(self, now: float) -> tuple[str, str]:
        """Begin the wanted round; returns its trigger and policy."""
        why, policy = self.wanted, self.wanted_policy
        self.wanted = self.wanted_policy = ""
        self.is_solving = True
        self.last_start = now
        return why, policy

    def finished(self, now: float, *, placed: bool, jobs: int, procs: int) -> None:
        """A round ended; if it placed something, queue-length triggers look again."""
        self.is_solving = False
        self.last_length_s = 0.0 if self.last_start is None else max(0.0, now - self.last_start)
        if placed:
            self.rearm()
            self.queue_changed(jobs, procs)
