"""Rules by which stored rows judge what the papers' texts say of their figures.

A claim is *reproduced*, *in part* or *not*, by a rule that stands here; what was found is told in
numbers. The rules are about the text alone: no value is read off a plot. Where the text has a
number for a mean over workloads that are not published, `NEAR` says what counts as the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from statistics import fmean, median

from coalloc.simulation.reproduce.demt.claims import GRAHAM, PAPERS
from coalloc.simulation.reproduce.demt.ratios import MAKESPAN, REPAIRED, means, single
from coalloc.simulation.reproduce.demt.study import GANG, REACHED
from coalloc.simulation.reproduce.experiment import Row
from coalloc.simulation.reproduce.mbpc.dispersion import (
    RATIO,
    TO_BEST,
    dispersions,
    free_widths,
    mean_ratios,
)
from coalloc.simulation.reproduce.mbpc.study import plotted
from coalloc.simulation.reproduce.mbpc.times import savings
from coalloc.simulation.reproduce.mca import fig2 as mca_fig2
from coalloc.simulation.reproduce.mca.tables import PAPER_SPREAD
from coalloc.simulation.reproduce.oas import fig4 as oas_fig4
from coalloc.simulation.reproduce.oas.workloads import PLAIN
from coalloc.simulation.reproduce.rows import column, distinct, grouped, spread, where

Rows = Sequence[Row]
NEAR = 0.05
"""Share by which a value may be off and still be close."""
ALMOST = 0.95
"""Share of the runs that is almost all."""
STABLE = 1.2
"""Largest average by smallest, up to which a ratio is stable over the numbers of jobs."""


class Held(StrEnum):
    """Verdict on a claim."""

    YES = "reproduced"
    PARTLY = "in part"
    NO = "not reproduced"


Verdict = tuple[Held, str]


def _if(held: bool) -> Held:
    return Held.YES if held else Held.NO


def _of(held: Sequence[bool]) -> Held:
    return Held.YES if all(held) else Held.PARTLY if any(held) else Held.NO


def _percent(value: float) -> str:
    return f"{100.0 * value:.1f} %"


three = "{:.3f}".format
two = "{:.2f}".format


def _by_slot(rows: Rows, name: str) -> dict[str, dict[float, float]]:
    """Mean over the workloads of slots of each size, for each platform; slots rise."""
    out = {}
    for (platform,), group in grouped(where(rows, method="search", jobs=8), "platform").items():
        shares = sorted(distinct(group, "slot_share"))
        out[platform] = {
            share: fmean(column(where(group, slot_share=share), name)) for share in shares
        }
    return out


def makespan_rises(rows: Rows) -> Verdict:
    """Mean makespans rise with the slot on each platform."""
    found = _by_slot(rows, "over_oas")
    held = [list(own.values()) == sorted(own.values()) for own in found.values()]
    ends = "; ".join(f"{p}: {own[0.15]:.3f} to {own[2.5]:.3f}" for p, own in found.items())
    return _of(held), f"means by slot, over the continuous optimum: {ends}"


def half_is_near(rows: Rows) -> Verdict:
    """Slots of 50 % are close to those of 15 %."""
    found = _by_slot(rows, "over_oas")
    apart = {p: own[0.5] / own[0.15] - 1.0 for p, own in found.items()}
    held = [value <= NEAR for value in apart.values()]
    return _of(held), "50 % above 15 % slots by " + ", ".join(
        f"{_percent(value)} ({p})" for p, value in apart.items()
    )


def program_slows(rows: Rows) -> Verdict:
    """The least slot takes ten times as long as the largest, program and search."""
    mine = where(rows, method="mip")
    shares = sorted(distinct(mine, "slot_share"))
    times = [median(column(where(mine, slot_share=share), "elapsed_s")) for share in shares]
    flat = [
        median(column(where(rows, method="search", jobs=8, slot_share=share), "elapsed_s"))
        for share in (shares[0], shares[-1])
    ]
    told = f"medians at the least and largest slot: program {times[0]:.3g} and {times[-1]:.3g} s, "
    told += f"search {flat[0]:.2g} and {flat[1]:.2g} s"
    return _of([times[0] > 10.0 * times[-1], flat[0] > 10.0 * flat[1]]), told


def compaction_falls(rows: Rows) -> Verdict:
    """Mean compaction falls as slots grow on each platform."""
    found = _by_slot(rows, "compaction")
    held = [list(own.values()) == sorted(own.values(), reverse=True) for own in found.values()]
    ends = "; ".join(f"{p}: {own[0.15]:.2f} to {own[2.5]:.2f}" for p, own in found.items())
    return _of(held), f"means: {ends}"


def close_to_best(platform: str, policy: str) -> Callable[[Rows], Verdict]:
    """Slotted makespans are close to the best plain order's on one platform."""

    def judge(rows: Rows) -> Verdict:
        found = oas_fig4.standing(where(rows, platform=platform), policy).over_best
        close = [ratio <= 1.0 + NEAR for ratio in found]
        return (
            _of(close),
            f"{spread(found, three)} of the best plain order; within {_percent(NEAR)} on "
            f"{sum(close)} of {len(close)}",
        )

    return judge


def plain_orders_vary(rows: Rows) -> Verdict:
    """Each plain order is the best one somewhere and far from it elsewhere."""
    worst = {}
    for (policy,), group in grouped(rows, "policy").items():
        if policy not in PLAIN:
            continue
        ratios = []
        for row in group:
            others = where(rows, platform=row["platform"], workload=row["workload"])
            best = min(r["makespan_s"] for r in others if r["policy"] in PLAIN)
            ratios.append(row["makespan_s"] / best)
        worst[policy] = (min(ratios), max(ratios))
    held = [low <= 1.0 + 1e-9 and high > 1.0 + NEAR for low, high in worst.values()]
    return _of(held), "best and worst of each by the best: " + ", ".join(
        f"{policy} {low:.2f}, {high:.2f}" for policy, (low, high) in worst.items()
    )


def heavy_on_strong(rows: Rows) -> Verdict:
    """Processing and power correlate in slotted optima; below one half, in part."""
    found = median(column(where(rows, policy=oas_fig4.SLOTTED), "rho_mean"))
    return (Held.PARTLY if 0.0 < found < 0.5 else _if(found > 0.0)), f"rank correlation {found:.2f}"


def _widths(rows: Rows) -> dict[str, tuple[float, float]]:
    return dispersions(plotted(rows), TO_BEST)


def mbpc_within(limit: float) -> Callable[[Rows], Verdict]:
    """The mean dispersion of MBPC is within a limit."""

    def judge(rows: Rows) -> Verdict:
        mean, widest = _widths(rows)["mbpc"]
        more = f" (mean of the draws; {widest:.3f} at most)" if widest > mean + 1e-9 else ""
        return _if(mean <= limit), f"{mean:.3f}{more}"

    return judge


def mbpc_narrowest(rows: Rows) -> Verdict:
    """The dispersion of MBPC is below that of either other."""
    found = {policy: width for policy, (width, _) in _widths(rows).items()}
    held = [found["mbpc"] < found[other] - 1e-9 for other in ("cbs", "jpn")]
    return _of(held), ", ".join(f"{policy} {width:.3f}" for policy, width in found.items())


def others_rise_to(limit: float) -> Callable[[Rows], Verdict]:
    """The dispersions of CBS and JPN come near a limit in some draw or choice."""

    def judge(rows: Rows) -> Verdict:
        found = {policy: pair for policy, pair in _widths(rows).items() if policy != "mbpc"}
        held = [widest >= limit * (1.0 - NEAR) for _, widest in found.values()]
        told = ", ".join(
            f"{policy} {mean:.3f}"
            + (f" ({widest:.3f} in one draw)" if widest > mean + 1e-9 else "")
            for policy, (mean, widest) in found.items()
        )
        for low, high in free_widths(rows):
            told += f"; of all that JPN may choose {low:.3f} to {high:.3f}"
            held.append(high >= limit)
        return _of(held), told

    return judge


def lowest_processing(rows: Rows) -> Verdict:
    """No policy has a lower mean part of processing than MBPC."""
    means_of = {
        policy: fmean(row["processing"] for row in group)
        for (policy,), group in grouped(plotted(rows), "policy").items()
    }
    held = [means_of["mbpc"] <= value + 1e-9 for value in means_of.values()]
    return _if(all(held)), ", ".join(f"{p} {value:.4f}" for p, value in means_of.items())


def links(ordered: Callable[[Mapping[str, float]], Sequence[bool]]) -> Callable[[Rows], Verdict]:
    """Mean loads of links stand in some order."""

    def judge(rows: Rows) -> Verdict:
        found = mean_ratios(plotted(rows))
        told = ", ".join(f"{policy} {value:.3f}" for policy, value in found.items())
        return _of(ordered(found)), f"mean load by capacity: {told}"

    return judge


def low_dispersion(rows: Rows) -> Verdict:
    """The dispersion of loads to standing alone is at most a tenth, for each policy."""
    found = {policy: width for policy, (width, _) in dispersions(plotted(rows), RATIO).items()}
    told = ", ".join(f"{policy} {width:.3f}" for policy, width in found.items())
    return _of([width <= 0.1 for width in found.values()]), told


def no_saturation(rows: Rows) -> Verdict:
    """No SC is above 1."""
    most = max(column(rows, "sc"))
    return _if(most <= 1.0 + 1e-9), f"largest SC {most:.3f}"


def same_communication(rows: Rows) -> Verdict:
    """Mean communication times of all policies are equal."""
    found = {
        policy: sum(column(group, "communication")) / len(group)
        for (policy,), group in grouped(rows, "policy").items()
    }
    return _if(max(found.values()) - min(found.values()) < 1e-6), f"{max(found.values()):.4f} each"


def faster_by(cut: float) -> Callable[[Rows], Verdict]:
    """The total of MBPC is lower by about a share than that of CBS and of JPN."""

    def judge(rows: Rows) -> Verdict:
        found = savings(rows)
        cbs = fmean(found["cbs", None])
        jpn = [fmean(values) for (policy, _), values in found.items() if policy == "jpn"]
        near = 0.2 * cut
        held = [abs(cbs - cut) <= near, min(jpn) - near <= cut <= max(jpn) + near]
        return _of(
            held
        ), f"{_percent(cbs)} than CBS, {spread(jpn, _percent)} than JPN by its choice"

    return judge


def takes(job: str, most: str, also: str | None, whole: bool = False) -> Callable[[Rows], Verdict]:
    """A job has most of its processes on one cluster, and the rest of note on another."""

    def judge(rows: Rows) -> Verdict:
        mine = {row["cluster"]: row["processes"] for row in where(rows, policy="mbpc", job=job)}
        nodes = where(rows, policy="mbpc", job=job, cluster=most)[0]["nodes"]
        ranked = sorted(mine, key=lambda name: -mine[name])
        held = ranked[0] == most and (also is None or ranked[1] == also)
        held = held and (not whole or mine[most] == nodes)
        return _if(held), ", ".join(f"{n} on {name}" for name, n in mine.items() if n)

    return judge


def worst_but_gang(rows: Rows) -> Verdict:
    """The mean makespan of `demt` is above all but Gang's, at every size."""
    mine = means(rows, REACHED, MAKESPAN)
    held = [
        mine[jobs] > value
        for other in PAPERS
        if other != GANG
        for jobs, value in means(rows, other, MAKESPAN).items()
    ]
    return _of(held), f"makespan: `demt` {spread(list(mine.values()), two)}, behind in " + (
        f"{sum(held)} of {len(held)} comparisons"
    )


def demt_ahead(*others: str) -> Callable[[Rows], Verdict]:
    """The mean weighted completion of `demt` is below that of others, at every size."""

    def judge(rows: Rows) -> Verdict:
        mine = means(rows, REACHED, REPAIRED)
        behind = [
            f"`{other}` at {jobs} jobs"
            for other in others
            for jobs, value in means(rows, other, REPAIRED).items()
            if value <= mine[jobs]
        ]
        count = len(others) * len(mine)
        held = Held.YES if not behind else Held.PARTLY if len(behind) < count else Held.NO
        return held, "ahead throughout" if not behind else f"behind {', '.join(behind)}"

    return judge


def stable(*names: str) -> Callable[[Rows], Verdict]:
    """Mean weighted completions stay within `STABLE` over the numbers of jobs."""

    def judge(rows: Rows) -> Verdict:
        found = {}
        for name in names:
            values = means(rows, name, REPAIRED).values()
            found[name] = max(values) / min(values)
        told = ", ".join(f"`{name}` {value:.2f}" for name, value in found.items())
        return _of([value <= STABLE for value in found.values()]), f"largest by smallest: {told}"

    return judge


def saf_better(rows: Rows) -> Verdict:
    """SAF has a lower mean weighted completion than `demt`, at every size."""
    mine, saf = means(rows, REACHED, REPAIRED), means(rows, "list-saf", REPAIRED)
    held = [saf[jobs] < mine[jobs] for jobs in mine]
    return _of(held), f"at {sum(held)} of {len(held)} numbers of jobs"


def others_climb(rows: Rows) -> Verdict:
    """The two other lists rise by more than `STABLE` over the numbers of jobs."""
    found = {name: list(means(rows, name, REPAIRED).values()) for name in GRAHAM[:2]}
    held = [values[-1] > STABLE * values[0] for values in found.values()]
    return _of(held), ", ".join(
        f"`{name}` {values[0]:.2f} to {values[-1]:.2f}" for name, values in found.items()
    )


def at_most(names: tuple[str, str], limit: float, share: float = 1.0) -> Callable[[Rows], Verdict]:
    """At least this share of the runs is up to a limit."""

    def judge(rows: Rows) -> Verdict:
        each = single(where(rows, algorithm=REACHED), names)
        below = sum(value <= limit for value in each)
        return _if(
            below >= share * len(each)
        ), f"up to {limit:g} in {below} of {len(each)} runs, at most {max(each):.2f}"

    return judge


def below_two_seconds(rows: Rows) -> Verdict:
    """`demt` takes less than 2 s of processor time for 400 jobs."""
    most = max(column(where(rows, what="demt", jobs=400), "cpu_s"))
    return _if(most < 2.0), f"{1000.0 * most:.1f} ms at most for 400 jobs"


def paths_as_published(rows: Rows) -> Verdict:
    """Critical paths are close to the published ones."""
    off = max(abs(row["path_s"] / row["paper_path"] - 1.0) for row in rows)
    return _if(off <= NEAR), f"within {_percent(off)}"


def gains(policy: str) -> Callable[[Rows], Verdict]:
    """Mean gains on M-HEFT are within `NEAR` of the published ones, set by set."""

    def judge(rows: Rows) -> Verdict:
        found = {
            name: fmean(mca_fig2.gains(where(rows, set=name), policy, "m-heft"))
            for name in distinct(rows, "set")
        }
        held = [abs(found[name] - gain) <= NEAR for name, gain in mca_fig2.PAPER_GAINS.items()]
        return _of(held), ", ".join(f"{100.0 * value:+.1f} %" for value in found.values())

    return judge


def longer_path(rows: Rows) -> Verdict:
    """Gain and critical path correlate by more than one half, set by set."""
    found = [mca_fig2.correlation(where(rows, set=name)) for name in distinct(rows, "set")]
    return _of([value > 0.5 for value in found]), "correlation " + ", ".join(
        f"{value:+.2f}" for value in found
    )


def spread_falls(rows: Rows) -> Verdict:
    """The share of spread tasks falls from few to many tasks by level."""
    found = [
        fmean(column(where(rows, set=name, policy="mca-heft"), "spread")) for name in PAPER_SPREAD
    ]
    return _if(found == sorted(found, reverse=True)), ", ".join(map(_percent, found))


def talks_longer(rows: Rows) -> Verdict:
    """Tasks communicate longer under MCA-HEFT than under M-HEFT, set by set."""
    held, told = [], []
    for name in distinct(rows, "set"):
        mine, other = (
            fmean(column(where(rows, set=name, policy=policy), "comm_s"))
            for policy in ("mca-heft", "m-heft")
        )
        held.append(mine > other)
        told.append(f"{mine / other:.2f}")
    return _of(held), "by M-HEFT's: " + ", ".join(told)
