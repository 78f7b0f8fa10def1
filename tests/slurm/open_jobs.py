"""Jobs of open streams: drawn with their own arrival times, for our users and for local ones."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import exp, log

SLOTS = {"alpha": 6, "beta": 6}
SPAN_S = 380.0
"""In which the jobs of a stream at full scale come."""
OURS = {1: 22, 2: 20, 3: 18, 4: 10, 5: 6, 6: 8, 7: 8, 8: 8}
"""Jobs by number of processes, at full scale; those of 7 and 8 fit in neither cluster."""
OUR_MEAN_S, LOCAL_MEAN_S = 4.5, 5.0
SPREAD = 0.8
"""Of the logarithm of run times."""
LOCAL_WIDTHS = {1: 40, 2: 27, 3: 18, 4: 15}
LOCAL_LIMITS_MIN = (1, 2, 3)
QOS = ("few", "small")
"""What limits the jobs that run at one time; a job waits for it as for nodes."""
LIMITED = 0.3
"""Of our narrow jobs that are in such a QOS."""
LONG_S, LONG_LIMIT_MIN = 14.0, 0.15
"""Run time and limit of the jobs that only an extension lets complete."""
PER_STREAM = 0.25
"""Of our jobs that are such."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One job.

    Attributes
    ----------
    at : float
        When it is submitted, seconds after the beginning.
    clusters : tuple of str
        Of a local job; of ours the random ones of the plain twin, two where it is too wide for one.
    """

    name: str
    is_ours: bool
    at: float
    width: int
    run_s: float
    limit_min: float
    clusters: tuple[str, ...]
    qos: str = ""

    @property
    def is_wide(self) -> bool:
        """Whether no cluster can hold it alone."""
        return self.width > max(SLOTS.values())

    @property
    def kind(self) -> str:
        """Its row in the tables."""
        return ("wide" if self.is_wide else "single") if self.is_ours else "local"


def drawn(load: float, *, seed: int, scale: float = 1.0, pace: float = 1.0) -> list[Item]:
    """Both streams, in the order in which they come.

    Parameters
    ----------
    load : float
        Offered by both together, of all slots; ours are 35 % of it all.
    scale : float
        Of the number of jobs and of the time in which they come.
    pace : float
        Of that time and of run times: less than one has more jobs, and shorter ones, in a minute.
    """
    draw, span = random.Random(seed), SPAN_S * scale * pace
    widths = [width for width, count in OURS.items() for _ in range(count)]
    draw.shuffle(widths)
    widths = [widths[n % len(widths)] for n in range(max(1, round(len(widths) * scale)))]
    times = _times(draw, OUR_MEAN_S * pace, widths)
    ours = []
    for number, (width, run_s) in enumerate(zip(widths, times, strict=True)):
        names = draw.sample(list(SLOTS), 2 if width > max(SLOTS.values()) else 1)
        ours.append(
            Item(
                name=f"o{number}",
                is_ours=True,
                at=draw.uniform(0.0, span),
                width=width,
                run_s=run_s,
                limit_min=1,
                clusters=tuple(names),
            )
        )
    used = sum(item.width * item.run_s for item in ours)
    left = load * span * sum(SLOTS.values()) - used
    local = _locals(draw, left, span, LOCAL_MEAN_S * pace)
    return sorted([*ours, *local], key=lambda item: item.at)


def _locals(draw: random.Random, slot_s: float, span: float, mean_s: float) -> Iterator[Item]:
    """Jobs of the clusters' own users that need so many slot-seconds together."""
    for cluster in SLOTS:
        mean = sum(w * n for w, n in LOCAL_WIDTHS.items()) / sum(LOCAL_WIDTHS.values())
        count = max(1, round(slot_s / len(SLOTS) / mean_s / mean))
        widths = draw.choices(list(LOCAL_WIDTHS), list(LOCAL_WIDTHS.values()), k=count)
        times = _times(draw, slot_s / len(SLOTS) / sum(widths), widths)
        for number, (width, run_s) in enumerate(zip(widths, times, strict=True)):
            yield Item(
                name=f"{cluster[0]}{number}",
                is_ours=False,
                at=draw.uniform(0.0, span),
                width=width,
                run_s=run_s,
                limit_min=draw.choice(LOCAL_LIMITS_MIN),
                clusters=(cluster,),
            )


def _times(draw: random.Random, mean_s: float, widths: Sequence[int]) -> list[float]:
    """Run times, lognormal; their mean by slots is exactly this, so that every seed offers it."""
    middle = log(mean_s) - SPREAD**2 / 2
    times = [min(30.0, max(0.3, exp(draw.gauss(middle, SPREAD)))) for _ in widths]
    ratio = mean_s * sum(widths) / sum(w * t for w, t in zip(widths, times, strict=True))
    return [round(min(45.0, t * ratio), 2) for t in times]


def with_limits(items: Sequence[Item], seed: int) -> list[Item]:
    """The jobs, a few of ours among them in a QOS whose limit keeps them waiting."""
    draw = random.Random(seed)
    return [
        replace(item, qos=draw.choice(QOS))
        if item.is_ours and item.width <= 2 and draw.random() < LIMITED
        else item
        for item in items
    ]


def with_long(items: Sequence[Item], seed: int) -> list[Item]:
    """The jobs, a few of ours among them with limits that end them too soon."""
    draw = random.Random(seed)
    return [
        replace(item, run_s=LONG_S, limit_min=LONG_LIMIT_MIN, width=min(2, item.width))
        if item.is_ours and not item.is_wide and draw.random() < PER_STREAM
        else item
        for item in items
    ]


def is_long(item: Item) -> bool:
    """Whether its limit ends it too soon."""
    return item.is_ours and item.run_s > 60.0 * item.limit_min
