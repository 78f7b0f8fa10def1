"""The search for the jobs with which a policy fails: which attempt comes next."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Aside:
    """Why rounds leave a job out, see `core.isolating`.

    Attributes
    ----------
    seen : object
        The job and the clusters as they were: other ones make it worth a try. None: nothing does.
    """

    reason: str
    detail: str
    seen: object


Attempt = Literal["without", "beginning", "again"]


@dataclass(slots=True)
class Isolation:
    """The search for the jobs with which one policy fails in one round.

    Attributes
    ----------
    queue : list of str
        The jobs of the round, in arrival order.
    why : str
        How the policy failed first.
    causes : dict
        What is taken for a cause so far.
    attempt : str
        Under way: all jobs ``without`` the causes, a ``beginning`` of them, or all ``again``.
    low, high : int
        Of the jobs that are no causes: lengths of beginnings that are planned, and that are not.
    confirmed : bool
        A beginning of `high` jobs has failed in an attempt of its own.
    """

    queue: list[str]
    why: str
    causes: dict[str, None] = field(default_factory=dict)
    attempt: Attempt = "without"
    low: int = 0
    high: int = 0
    confirmed: bool = False
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
