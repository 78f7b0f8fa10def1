"""Intervals in which waiting jobs start, learnt from how wrong expected starts have been.

When a round gives a waiting job an expected start, that is a *promise*. It is kept for the first
round that plans the job, and again whenever the lead time has fallen into a lower class. When the
job starts, the error of each of its promises is learnt, relative to the lead time.

A lead time is what lies between now, or a later begin that the job itself asks for, and the
expected start; at least `LEAST_LEAD_S`. Its class is its binary logarithm. The interval of a job
lies between the quantiles alpha / 2 and 1 - alpha / 2 of the newest errors of its class, laid at
its expected start and stretched to hold it. Where a class has fewer than `ENOUGH` errors, those of
the two classes next to it count too; where all together have fewer, there is no interval.

A *burst* is what was promised to one user's jobs within `BURST_S`: an array, or a loop of submits.
It is one sample of each kind and class, with the error of its newest start, so that one user's
thousand short jobs do not decide what others are told. An interval is *shown* only where those of
its class have held (`LEAST_HELD`); those that are not shown are judged all the same.

Notes
-----
alpha begins at `MISSES` and follows, after every start with an interval, adaptive conformal
inference (1): it rises by `STEP` times `MISSES` when the interval held, and falls by `STEP` times
1 - `MISSES` when it did not. In the long run, a share 1 - `MISSES` of the intervals holds, whatever
the errors are like and however they change. First promises and later ones are two kinds, each
with its own errors and alpha: what is promised at the submit is less certain.

Deviations: where alpha is below 0, (1) answers with the whole line; here the interval has all
errors that are remembered, and is `WIDER` times as wide for each 0.1 below. An error is known only
when the job starts, so that alpha lags.

The constants were chosen on the first halves of replays of KTH-SP2-1996 and SDSC-BLUE-2000.

References
----------
(1) I. Gibbs, E. Candes, "Adaptive conformal inference under distribution shift", NeurIPS 2021,
equation 2.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from math import ceil, floor, frexp
from typing import NamedTuple

from msgspec import Struct

MISSES = 0.1
"""Share of the starts that may lie outside of their intervals."""
LEAST_LEAD_S = 60.0
"""Shorter lead times count as this long, seconds."""
KEPT = 200
"""Errors kept of each kind and class, the newest."""
ENOUGH = 20
"""Errors from which an interval is made."""
BURST_S = 600.0
"""Promises to one user within so many seconds are one burst."""
LEAST_HELD, TRUST = 0.75, 10.0
"""Intervals are shown while at least this share of their class has held; beforehand each class is
trusted as if 1 - `MISSES` of so many had."""
STEP = 0.02
"""How fast alpha follows."""
LEAST_ALPHA, MOST_ALPHA = -0.3, 0.5
WIDER = 2.0
"""See the module's notes."""
FIRST, LATER = "first", "later"
"""Kinds of promises: of the first round that planned a job, and of those after it."""


class Interval(NamedTuple):
    """A job starts in [early, late] nine times of ten; whole seconds since the epoch."""

    early: float
    late: float


class Promise(Struct, frozen=True, array_like=True, gc=False):
    """An expected start that a waiting job was given."""

    made: float
    """When it was given, seconds since the epoch."""
    expected: float
    """The start that was expected, seconds since the epoch."""
    lead_s: float
    """See the module's summary."""
    kind: str
    """``first`` or ``later``."""
    early: float | None = None
    """Where the interval begins; None: too little was known."""
    late: float | None = None
    """Where it ends."""


class StartError(NamedTuple):
    """Error of a promise whose job has started."""

    number: int
    """Counted from 1, over all."""
    kind: str
    lead_s: float
    late_s: float
    """The start less the expected one; below 0: it was earlier."""
    width_s: float | None
    """Of its interval."""
    held: bool | None
    """The start was in its interval; None: it had none."""
    alpha: float
    """Of its kind, after it."""
    burst: str = ""
    """User and time of the promise; an error takes the place of its burst's former one."""

    @property
    def relative(self) -> float:
        """The error by the lead time."""
        return self.late_s / self.lead_s


Group = tuple[str, int]
"""Kind and class of the lead time."""


def lead_class(lead_s: float) -> int:
    """Binary logarithm of a lead time by the least one, rounded down."""
    return frexp(max(lead_s, LEAST_LEAD_S) / LEAST_LEAD_S)[1] - 1


@dataclass(slots=True)
class Calibration:
    """The newest errors of each kind and class, and what follows from them."""

    errors: dict[Group, deque[StartError]] = field(default_factory=dict)
    alphas: dict[str, float] = field(default_factory=dict)
    last: int = 0
    """Number of the newest error."""
    _spans: dict[Group, tuple[float, float] | None] = field(
        default_factory=dict, compare=False, repr=False
    )

    @classmethod
    def of(cls, errors: Iterable[StartError]) -> Calibration:
        """Calibration by former errors, in the order of their numbers."""
        made = cls()
        for error in errors:
            made._take(error)
        return made

    def interval(
        self, expected: float, now: float, kind: str, not_before: float = 0.0
    ) -> Interval | None:
        """Interval of the real start of a job with this expected one, to be shown.

        The kind is ``first`` or ``later``; the job itself asks for no start before `not_before`.
        None: too few starts were seen, or what was said of such starts did not hold. Times are
        seconds since the epoch.
        """
        begin = max(now, not_before)
        group = kind, lead_class(expected - begin)
        judged = [e.held for e in self.errors.get(group, ()) if e.held is not None]
        held = sum(judged) + TRUST * (1.0 - MISSES)
        is_trusted = held >= LEAST_HELD * (len(judged) + TRUST)
        return self._around(expected, begin, group) if is_trusted else None

    def promise(self, expected: float, now: float, kind: str, not_before: float = 0.0) -> Promise:
        """An expected start with its interval, shown or not, to be remembered."""
        begin = max(now, not_before)
        lead_s = max(expected - begin, LEAST_LEAD_S)
        found = self._around(expected, begin, (kind, lead_class(lead_s)))
        early, late = (None, None) if found is None else found
        return Promise(now, expected, lead_s, kind, early, late)

    def learn(
        self, promise: Promise, start: float, user: str
    ) -> tuple[StartError, StartError | None]:
        """Take in the start of a job that was promised one; returns what is learnt, and forgotten.

        Forgotten is that of the same burst, or the oldest one where there were `KEPT`.
        """
        held = width_s = None
        burst = f"{user} {promise.made // BURST_S:.0f}"
        alpha = self.alphas.get(promise.kind, MISSES)
        if promise.early is not None and promise.late is not None:
            held = promise.early <= start <= promise.late
            width_s = promise.late - promise.early
            if self._of_burst((promise.kind, lead_class(promise.lead_s)), burst) is None:
                alpha = min(max(alpha + STEP * (MISSES - (not held)), LEAST_ALPHA), MOST_ALPHA)
        error = StartError(
            number=self.last + 1,
            kind=promise.kind,
            lead_s=promise.lead_s,
            late_s=start - promise.expected,
            width_s=width_s,
            held=held,
            alpha=alpha,
            burst=burst,
        )
        return error, self._take(error)

    def newest(self) -> list[StartError]:
        """The errors that are remembered, of all kinds and classes."""
        return [error for kept in self.errors.values() for error in kept]

    def _take(self, error: StartError) -> StartError | None:
        self.last = error.number
        self.alphas[error.kind] = error.alpha
        group = error.kind, lead_class(error.lead_s)
        kept = self.errors.setdefault(group, deque())
        former = self._of_burst(group, error.burst)
        if former is not None:
            kept.remove(former)
        elif len(kept) == KEPT:
            former = kept.popleft()
        kept.append(error)
        self._spans.clear()
        return former

    def _of_burst(self, group: Group, burst: str) -> StartError | None:
        """The error of a burst that is remembered in a class."""
        return next((e for e in reversed(self.errors.get(group, ())) if e.burst == burst), None)

    def _around(self, expected: float, begin: float, group: Group) -> Interval | None:
        """Interval of a start that is expected so, and cannot be before the begin."""
        span = self._span(group)
        if span is None:
            return None
        lead_s = max(expected - begin, LEAST_LEAD_S)
        low, high = (expected + part * lead_s for part in span)
        early = max(min(floor(low), floor(expected)), floor(begin))
        return Interval(float(early), float(max(ceil(high), ceil(expected), ceil(begin))))

    def _span(self, group: Group) -> tuple[float, float] | None:
        """The interval of a class around an expected start of 0, by the lead time."""
        if group not in self._spans:
            kind, wanted = group
            near = [error.relative for error in self.errors.get(group, ())]
            if len(near) < ENOUGH:
                beside = ((kind, wanted - 1), (kind, wanted + 1))
                near += (e.relative for other in beside for e in self.errors.get(other, ()))
            alpha = self.alphas.get(kind, MISSES)
            self._spans[group] = between(near, alpha) if len(near) >= ENOUGH else None
        return self._spans[group]


def between(values: Iterable[float], alpha: float) -> tuple[float, float]:
    """Return an interval that holds one more value than there are with probability 1 - alpha.

    Half of alpha lies on either side; below 0 it widens the whole range.
    """
    ordered = sorted(values)
    count = len(ordered)
    aside = max(alpha, 0.0) / 2.0 * (count + 1)
    low = ordered[max(floor(aside) - 1, 0)]
    high = ordered[min(ceil(count + 1 - aside) - 1, count - 1)]
    further = (WIDER ** (10.0 * max(-alpha, 0.0)) - 1.0) * (high - low) / 2.0
    return low - further, high + further
