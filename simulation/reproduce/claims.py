"""What the papers' texts say of their figures, claim by claim, judged by stored rows.

A claim is *reproduced*, *in part* or *not*, by a rule that stands here; what was found is told in
numbers. The rules are about the text alone: no value is read off a plot. Where the text has a
number for a mean over workloads that are not published, `NEAR` says what counts as the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import fmean, median

from coalloc.simulation.reproduce import mca_fig2, oas_fig4
from coalloc.simulation.reproduce.demt_claims import GRAHAM, PAPERS
from coalloc.simulation.reproduce.demt_ratios import MAKESPAN, REPAIRED, means, single
from coalloc.simulation.reproduce.demt_study import GANG, REACHED
from coalloc.simulation.reproduce.experiment import Row
from coalloc.simulation.reproduce.mbpc_dispersion import (
    TO_BEST,
    dispersions,
    free_widths,
    mean_ratios,
)
from coalloc.simulation.reproduce.mbpc_study import plotted
from coalloc.simulation.reproduce.mbpc_times import savings
from coalloc.simulation.reproduce.mca_tables import PAPER_SPREAD
from coalloc.simulation.reproduce.rows import column, distinct, grouped, spread, where

Rows = Sequence[Row]
NEAR = 0.05
"""Share by which a value may be off and still be close."""
ALMOST = 0.95
"""Share of the runs that is almost all."""
STABLE = 1.2
"""Largest average by smallest, up to which a ratio is stable over the numbers of jobs."""


class Held(StrEnum):
    """How a claim fares."""

    YES = "reproduced"
    PARTLY = "in part"
    NO = "not reproduced"


Verdict = tuple[Held, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One sentence of a paper.

    Attributes
    ----------
    figure : str
        Name of the experiment whose rows judge it.
    words : str
        The claim, shortened.
    judge : callable
        From rows to how it fares, and what was found.
    """

    figure: str
    words: str
    judge: Callable[[Rows], Verdict]


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


def _makespan_rises(rows: Rows) -> Verdict:
    found = _by_slot(rows, "over_oas")
    held = [list(own.values()) == sorted(own.values()) for own in found.values()]
    ends = "; ".join(f"{p}: {own[0.15]:.3f} to {own[2.5]:.3f}" for p, own in found.items())
    return _of(held), f"means by slot, over the continuous optimum: {ends}"


def _half_is_near(rows: Rows) -> Verdict:
    found = _by_slot(rows, "over_oas")
    apart = {p: own[0.5] / own[0.15] - 1.0 for p, own in found.items()}
    held = [value <= NEAR for value in apart.values()]
    return _of(held), "50 % above 15 % slots by " + ", ".join(
        f"{_percent(value)} ({p})" for p, value in apart.items()
    )


def _program_slows(rows: Rows) -> Verdict:
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


def _compaction_falls(rows: Rows) -> Verdict:
    found = _by_slot(rows, "compaction")
    held = [list(own.values()) == sorted(own.values(), reverse=True) for own in found.values()]
    ends = "; ".join(f"{p}: {own[0.15]:.2f} to {own[2.5]:.2f}" for p, own in found.items())
    return _of(held), f"means: {ends}"


def _close_to_best(platform: str, policy: str) -> Callable[[Rows], Verdict]:
    def judge(rows: Rows) -> Verdict:
        found = oas_fig4.standing(where(rows, platform=platform), policy).over_best
        close = [ratio <= 1.0 + NEAR for ratio in found]
        return (
            _of(close),
            f"{spread(found, three)} of the best plain order; within {_percent(NEAR)} on "
            f"{sum(close)} of {len(close)}",
        )

    return judge


def _plain_orders_vary(rows: Rows) -> Verdict:
    worst = {}
    for (policy,), group in grouped(rows, "policy").items():
        if policy not in oas_fig4.PLAIN:
            continue
        ratios = []
        for row in group:
            others = where(rows, platform=row["platform"], workload=row["workload"])
            best = min(r["makespan_s"] for r in others if r["policy"] in oas_fig4.PLAIN)
            ratios.append(row["makespan_s"] / best)
        worst[policy] = (min(ratios), max(ratios))
    held = [low <= 1.0 + 1e-9 and high > 1.0 + NEAR for low, high in worst.values()]
    return _of(held), "best and worst of each by the best: " + ", ".join(
        f"{policy} {low:.2f}, {high:.2f}" for policy, (low, high) in worst.items()
    )


def _heavy_on_strong(rows: Rows) -> Verdict:
    found = median(column(where(rows, policy=oas_fig4.SLOTTED), "rho_mean"))
    return (Held.PARTLY if 0.0 < found < 0.5 else _if(found > 0.0)), f"rank correlation {found:.2f}"


def _widths(rows: Rows) -> dict[str, tuple[float, float]]:
    return dispersions(plotted(rows), TO_BEST)


def _mbpc_within(limit: float) -> Callable[[Rows], Verdict]:
    def judge(rows: Rows) -> Verdict:
        mean, widest = _widths(rows)["mbpc"]
        more = f" (mean of the draws; {widest:.3f} at most)" if widest > mean + 1e-9 else ""
        return _if(mean <= limit), f"{mean:.3f}{more}"

    return judge


def _mbpc_narrowest(rows: Rows) -> Verdict:
    found = {policy: width for policy, (width, _) in _widths(rows).items()}
    held = [found["mbpc"] < found[other] - 1e-9 for other in ("cbs", "jpn")]
    return _of(held), ", ".join(f"{policy} {width:.3f}" for policy, width in found.items())


def _others_rise_to(limit: float) -> Callable[[Rows], Verdict]:
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


def _lowest_processing(rows: Rows) -> Verdict:
    means_of = {
        policy: fmean(row["processing"] for row in group)
        for (policy,), group in grouped(plotted(rows), "policy").items()
    }
    held = [means_of["mbpc"] <= value + 1e-9 for value in means_of.values()]
    return _if(all(held)), ", ".join(f"{p} {value:.4f}" for p, value in means_of.items())


def _links(ordered: Callable[[Mapping[str, float]], Sequence[bool]]) -> Callable[[Rows], Verdict]:
    def judge(rows: Rows) -> Verdict:
        found = mean_ratios(plotted(rows))
        told = ", ".join(f"{policy} {value:.3f}" for policy, value in found.items())
        return _of(ordered(found)), f"mean load by capacity: {told}"

    return judge


def _no_saturation(rows: Rows) -> Verdict:
    most = max(column(rows, "sc"))
    return _if(most <= 1.0 + 1e-9), f"largest SC {most:.3f}"


def _same_communication(rows: Rows) -> Verdict:
    found = {
        policy: sum(column(group, "communication")) / len(group)
        for (policy,), group in grouped(rows, "policy").items()
    }
    return _if(max(found.values()) - min(found.values()) < 1e-6), f"{max(found.values()):.4f} each"


def _faster_by(cut: float) -> Callable[[Rows], Verdict]:
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


def _takes(job: str, most: str, also: str | None, whole: bool = False) -> Callable[[Rows], Verdict]:
    """A job has most of its processes on one cluster, and the rest of note on another."""

    def judge(rows: Rows) -> Verdict:
        mine = {row["cluster"]: row["processes"] for row in where(rows, policy="mbpc", job=job)}
        nodes = where(rows, policy="mbpc", job=job, cluster=most)[0]["nodes"]
        ranked = sorted(mine, key=lambda name: -mine[name])
        held = ranked[0] == most and (also is None or ranked[1] == also)
        held = held and (not whole or mine[most] == nodes)
        return _if(held), ", ".join(f"{n} on {name}" for name, n in mine.items() if n)

    return judge


def _worst_but_gang(rows: Rows) -> Verdict:
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


def _demt_ahead(*others: str) -> Callable[[Rows], Verdict]:
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


def _stable(*names: str) -> Callable[[Rows], Verdict]:
    def judge(rows: Rows) -> Verdict:
        found = {}
        for name in names:
            values = means(rows, name, REPAIRED).values()
            found[name] = max(values) / min(values)
        told = ", ".join(f"`{name}` {value:.2f}" for name, value in found.items())
        return _of([value <= STABLE for value in found.values()]), f"largest by smallest: {told}"

    return judge


def _saf_better(rows: Rows) -> Verdict:
    mine, saf = means(rows, REACHED, REPAIRED), means(rows, "list-saf", REPAIRED)
    held = [saf[jobs] < mine[jobs] for jobs in mine]
    return _of(held), f"at {sum(held)} of {len(held)} numbers of jobs"


def _others_climb(rows: Rows) -> Verdict:
    found = {name: list(means(rows, name, REPAIRED).values()) for name in GRAHAM[:2]}
    held = [values[-1] > STABLE * values[0] for values in found.values()]
    return _of(held), ", ".join(
        f"`{name}` {values[0]:.2f} to {values[-1]:.2f}" for name, values in found.items()
    )


def _at_most(names: tuple[str, str], limit: float, share: float = 1.0) -> Callable[[Rows], Verdict]:
    """At least this share of the runs is up to a limit."""

    def judge(rows: Rows) -> Verdict:
        each = single(where(rows, algorithm=REACHED), names)
        below = sum(value <= limit for value in each)
        return _if(
            below >= share * len(each)
        ), f"up to {limit:g} in {below} of {len(each)} runs, at most {max(each):.2f}"

    return judge


def _below_two_seconds(rows: Rows) -> Verdict:
    most = max(column(where(rows, what="demt", jobs=400), "cpu_s"))
    return _if(most < 2.0), f"{1000.0 * most:.1f} ms at most for 400 jobs"


def _paths_as_published(rows: Rows) -> Verdict:
    off = max(abs(row["path_s"] / row["paper_path"] - 1.0) for row in rows)
    return _if(off <= NEAR), f"within {_percent(off)}"


def _gains(policy: str) -> Callable[[Rows], Verdict]:
    def judge(rows: Rows) -> Verdict:
        found = {
            name: fmean(mca_fig2.gains(where(rows, set=name), policy, "m-heft"))
            for name in distinct(rows, "set")
        }
        held = [abs(found[name] - gain) <= NEAR for name, gain in mca_fig2.PAPER_GAINS.items()]
        return _of(held), ", ".join(f"{100.0 * value:+.1f} %" for value in found.values())

    return judge


def _longer_path(rows: Rows) -> Verdict:
    found = [mca_fig2.correlation(where(rows, set=name)) for name in distinct(rows, "set")]
    return _of([value > 0.5 for value in found]), "correlation " + ", ".join(
        f"{value:+.2f}" for value in found
    )


def _spread_falls(rows: Rows) -> Verdict:
    found = [
        fmean(column(where(rows, set=name, policy="mca-heft"), "spread")) for name in PAPER_SPREAD
    ]
    return _if(found == sorted(found, reverse=True)), ", ".join(map(_percent, found))


def _talks_longer(rows: Rows) -> Verdict:
    held, told = [], []
    for name in distinct(rows, "set"):
        mine, other = (
            fmean(column(where(rows, set=name, policy=policy), "comm_s"))
            for policy in ("mca-heft", "m-heft")
        )
        held.append(mine > other)
        told.append(f"{mine / other:.2f}")
    return _of(held), "by M-HEFT's: " + ", ".join(told)


def _claims() -> tuple[Claim, ...]:
    table: Mapping[str, Sequence[tuple[str, Callable[[Rows], Verdict]]]] = {
        "oas-fig3": (
            ("the larger the slot, the larger the makespan", _makespan_rises),
            ("at 50 % slots the makespan is close to that of the least slot", _half_is_near),
            ("solving takes exponentially longer as slots shrink", _program_slows),
            ("compaction falls as slots grow", _compaction_falls),
        ),
        "oas-fig4": (
            (
                "at a near-optimal slot OAS is the best or close to it on all (extended)",
                _close_to_best(oas_fig4.EXTENDED, oas_fig4.NEAR),
            ),
            (
                "at 50 % slots OAS is the best or close to it on all (conference)",
                _close_to_best(oas_fig4.CONFERENCE, oas_fig4.SLOTTED),
            ),
            ("each plain order does well on some and badly on others", _plain_orders_vary),
            ("heavy jobs run on powerful nodes (extended)", _heavy_on_strong),
        ),
        "mbpc-fig3": (
            ("MBPC's dispersion is at most 5 %", _mbpc_within(0.05)),
            ("MBPC's dispersion is the lowest", _mbpc_narrowest),
            ("that of CBS and JPN rises to 15 %", _others_rise_to(0.15)),
            ("MBPC has the lowest processing slowdown", _lowest_processing),
        ),
        "mbpc-fig4": (
            ("MBPC's SC is lower than CBS's", _links(lambda f: [f["mbpc"] < f["cbs"]])),
            ("JPN's SC is lower than CBS's", _links(lambda f: [f["jpn"] < f["cbs"]])),
        ),
        "mbpc-fig5": (
            ("communication times are the same", _same_communication),
            ("MBPC's total is 5 % lower than the others'", _faster_by(0.05)),
        ),
        "mbpc-fig6": (
            ("C1 is wholly J1's", _takes("J1", "C1", None, whole=True)),
            ("J2 lies between C2 and C3", _takes("J2", "C2", "C3")),
            ("J3 is mostly on C4, also on C3", _takes("J3", "C4", "C3")),
        ),
        "mbpc-fig7": (
            ("MBPC's dispersion is at most 20 %", _mbpc_within(0.2)),
            ("MBPC's dispersion is the lowest", _mbpc_narrowest),
            ("that of CBS and JPN rises to 60 %", _others_rise_to(0.6)),
        ),
        "mbpc-fig8": (
            ("JPN's SC is the lowest", _links(lambda f: [f["jpn"] <= min(f.values())])),
            (
                "MBPC's and CBS's are similar",
                _links(lambda f: [abs(f["mbpc"] / f["cbs"] - 1.0) <= 2 * NEAR]),
            ),
            ("no link is saturated", _no_saturation),
        ),
        "mbpc-fig9": (("MBPC's total is 10 % lower than the others'", _faster_by(0.1)),),
        "demt-fig3": (("DEMT's makespan is worse than all but Gang's", _worst_but_gang),),
        "demt-fig4": (
            ("DEMT is clearly the best on the weighted completion", _demt_ahead(*PAPERS)),
            ("the lists are stable", _stable(*GRAHAM)),
        ),
        "demt-fig5": (
            ("SAF is better than DEMT", _saf_better),
            ("the two other lists climb with the number of jobs", _others_climb),
        ),
        "demt-fig6": (
            ("DEMT clearly outperforms the others", _demt_ahead(*PAPERS)),
            ("DEMT's ratio is stable", _stable(REACHED)),
        ),
        **{
            f"{name} (all families)": (
                ("weighted completion never above 2.5 times the bound", _at_most(REPAIRED, 2.5)),
                ("makespan almost always below 2 times the bound", _at_most(MAKESPAN, 2.0, ALMOST)),
            )
            for name in ("demt-fig3", "demt-fig4", "demt-fig5", "demt-fig6")
        },
        "demt-fig7": (("less than 2 s for 400 jobs", _below_two_seconds),),
        "mca-table1": (("critical paths of the fifteen workflows", _paths_as_published),),
        "mca-fig2": (
            ("MCA-HEFT gains 8, 20 and 42 % on M-HEFT", _gains("mca-heft")),
            ("the same with best fit within a cluster", _gains("mca-heft, best fit")),
            ("the longer the critical path, the larger the gain", _longer_path),
        ),
        "mca-table2": (("fewer tasks are spread the wider the levels", _spread_falls),),
        "mca-table3": (("tasks communicate longer under MCA-HEFT", _talks_longer),),
    }
    return tuple(
        Claim(figure=figure.partition(" ")[0], words=words, judge=judge)
        for figure, rows in table.items()
        for words, judge in rows
    )


CLAIMS = _claims()
