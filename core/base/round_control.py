"""Rounds: when one is due, and the search for the jobs with which a policy fails.

Rules
-----
- A queue that stays above N does not spin: its trigger fires once, and again only after a
  round has placed something or a job has arrived.
- Two rounds start at least `min_interval_s` apart; what happens in between causes one
  round, not several.
- What happens during a solve causes one following round.
- A plan that has become inaccurate is made again, but jobs and tasks start along the old one
  meanwhile: rounds for nothing but that, and for what such starts have answered, take at most a
  fifth of the time.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Literal

from msgspec import Struct

from coalloc.model.settings import TriggerConfig

OUTDATED = "plan_outdated"
"""A task ended earlier or later than planned, or failed."""
OPERATOR = "operator"
"""Somebody asked for this round; neither a pause nor a cluster that is away puts it off."""
PLANNING_SHARE = 0.2
"""The most of all time that is spent on rounds for nothing but an outdated plan."""
ANSWERED = frozenset({"job_finished", "queue_length"})
"""Reasons that may have been answered between rounds."""
PAUSE_FIRST_S, PAUSE_MAX_S = 60.0, 3600.0
"""For how long a policy is not asked again that did not plan in time; doubled each time."""
SAME_LENGTH = 0.5
"""A queue longer than this share of one that was not planned in time is as long as that."""
Attempt = Literal["without", "beginning", "again"]


class Overrun(Struct, frozen=True, kw_only=True):
    """A policy that did not plan a queue within the time limit."""

    queued: int
    """Jobs of that queue."""
    pause_s: float
    until: float
    """When a queue as long may be given to it again, seconds."""


@dataclass(slots=True)
class RoundControl:
    """Decides when a round is due; knows nothing of jobs or clusters."""

    triggers: tuple[TriggerConfig, ...]
    min_interval_s: float
    paused: bool = False
    blocked: bool = False
    """Nothing can be written: no round, whoever asks."""
    is_solving: bool = False
    costs_wanted: bool = False
    """The next round is to say what the site's rules cost."""
    last_start: float | None = None
    last_length_s: float = 0.0
    wanted: str = ""
    wanted_policy: str = ""
    urgent: set[str] = field(default_factory=set)
    """The reasons of the wanted round but an outdated plan."""
    armed: dict[int, bool] = field(default_factory=dict)
    overruns: dict[str, Overrun] = field(default_factory=dict)
    """By policy."""

    def overran(self, policy: str, queued: int, now: float) -> None:
        """Note that a policy did not plan so long a queue in time."""
        before = self.overruns.get(policy)
        pause_s = PAUSE_FIRST_S if before is None else min(2.0 * before.pause_s, PAUSE_MAX_S)
        self.overruns[policy] = Overrun(queued=queued, pause_s=pause_s, until=now + pause_s)

    def was_in_time(self, policy: str, queued: int) -> None:
        """Forget an overrun that a policy has made good."""
        if self._is_as_long(policy, queued):
            del self.overruns[policy]

    def in_time(self, chain: list[str], queued: int, now: float) -> list[str]:
        """The policies of a chain that may plan so long a queue in time; the last in any case."""
        return [
            policy
            for policy in chain
            if policy == chain[-1]
            or not (self._is_as_long(policy, queued) and now < self.overruns[policy].until)
        ]

    def _is_as_long(self, policy: str, queued: int) -> bool:
        known = self.overruns.get(policy)
        return known is not None and queued > SAME_LENGTH * known.queued

    def job_arrived(self, jobs: int, procs: int) -> None:
        """A job joined the queue, which now holds so many jobs and processes."""
        self.rearm()
        self.queue_changed(jobs, procs)

    def rearm(self) -> None:
        """Queue-length triggers may fire again."""
        self.armed.clear()

    def queue_changed(self, jobs: int, procs: int) -> None:
        for index, trigger in enumerate(self.triggers):
            if trigger.kind != "queue_length" or not self.armed.get(index, True):
                continue
            if (procs if trigger.count == "procs" else jobs) >= trigger.at_least:
                self.armed[index] = False
                self.want("queue_length", trigger.policy)

    def timer_fired(self, index: int) -> None:
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

    def answered(self, before: Collection[str], *, is_empty: bool) -> None:
        """Let a round wait: along the plan all was answered that has just ended or arrived.

        `before`: what was urgent before that; `is_empty`: nothing is left to plan, and no round
        is wanted for that.
        """
        self.urgent.difference_update(ANSWERED.difference(before))
        if is_empty and not self.urgent and self.wanted in ANSWERED:
            self.wanted = self.wanted_policy = ""

    def want(self, why: str, policy: str = "") -> None:
        """Ask for a round; the first asker names it."""
        if why != OUTDATED:
            self.urgent.add(why)
        if not self.wanted or (self.wanted == OUTDATED and why != OUTDATED):
            self.wanted, self.wanted_policy = why, policy

    def due_at(self) -> float | None:
        """Time at which the wanted round may start; None if none is wanted or possible."""
        if (
            not self.wanted
            or self.is_solving
            or self.blocked
            or (self.paused and self.wanted != OPERATOR)
        ):
            return None
        if self.last_start is None:
            return 0.0
        pause = 0.0 if self.urgent else self.last_length_s / PLANNING_SHARE
        return self.last_start + max(self.min_interval_s, pause)

    def take(self, now: float) -> tuple[str, str]:
        """Begin the wanted round; returns its trigger and policy."""
        why, policy = self.wanted, self.wanted_policy
        self.wanted = self.wanted_policy = ""
        self.urgent.clear()
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


class Aside(Struct, frozen=True, kw_only=True):
    """Reason for which rounds leave a job out, see `core.rounds.isolation`."""

    reason: str
    detail: str
    seen: object
    """The job and the clusters as they were: other ones make it worth a try."""


@dataclass(slots=True)
class Isolation:
    """The search for the jobs with which one policy fails in one round."""

    queue: list[str]
    """The jobs of the round, in arrival order."""
    why: str
    """How the policy failed first."""
    causes: dict[str, None] = field(default_factory=dict)
    """What is taken for a cause so far."""
    attempt: Attempt = "without"
    """Under way: all jobs ``without`` the causes, a ``beginning`` of them, or all ``again``."""
    low: int = 0
    """Of the jobs that are no causes: the length of a beginning that is planned."""
    high: int = 0
    """Of the same: the length of a beginning that is not."""
    confirmed: bool = False
    """A beginning of `high` jobs has failed in an attempt of its own."""
    attempts: int = 0

    @property
    def others(self) -> list[str]:
        """Jobs that are no cause, in arrival order."""
        return [job for job in self.queue if job not in self.causes]

    def begin(self, named: Collection[str]) -> bool:
        """Choose the first attempt; False if there is none to be made."""
        return self._without(named) or self._halve(0)

    def failed(self, named: Collection[str]) -> bool:
        """Choose the next attempt after one that failed; False if there is none to be made."""
        self.attempts += 1
        match self.attempt:
            case "without":
                return self._without(named) or self._halve(0)
            case "beginning":
                self.high, self.confirmed = (self.low + self.high) // 2, True
                return self._narrow()
            case _:
                self.confirmed = True
                return self._narrow()

    def planned(self) -> bool:
        """Choose the next attempt after one that gave a plan; False if that is the round's."""
        self.attempts += 1
        if self.attempt != "beginning":
            return False
        self.low = (self.low + self.high) // 2
        return self._narrow()

    def left_out(self) -> list[str]:
        """The jobs that the attempt goes without."""
        if self.attempt != "beginning":
            return list(self.causes)
        return [*self.causes, *self.others[(self.low + self.high) // 2 :]]

    def _without(self, named: Collection[str]) -> bool:
        new = [job for job in self.queue if job in named and job not in self.causes]
        if not new or len(self.causes) + len(new) == len(self.queue):
            return False
        self.causes.update(dict.fromkeys(new))
        self.attempt = "without"
        return True

    def _halve(self, low: int) -> bool:
        self.low, self.high, self.confirmed = low, len(self.others), False
        if self.high == 1:
            self.causes.update(dict.fromkeys(self.others))
            self.attempt = "without"
            return True
        return self.high > 1 and self._narrow()

    def _narrow(self) -> bool:
        if self.high - self.low > 1:
            self.attempt = "beginning"
            return True
        if not self.confirmed:
            self.attempt = "again"
            return True
        return self._without(self.others[self.high - 1 : self.high])
