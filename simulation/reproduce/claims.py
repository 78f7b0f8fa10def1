"""Claims of the papers' texts about their figures, one by one; `judging` has the rules."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from coalloc.simulation.reproduce.demt.claims import GRAHAM, PAPERS
from coalloc.simulation.reproduce.demt.ratios import MAKESPAN, REPAIRED
from coalloc.simulation.reproduce.demt.study import REACHED
from coalloc.simulation.reproduce.judging import (
    ALMOST,
    NEAR,
    Rows,
    Verdict,
    at_most,
    below_two_seconds,
    close_to_best,
    compaction_falls,
    demt_ahead,
    faster_by,
    gains,
    half_is_near,
    heavy_on_strong,
    links,
    longer_path,
    low_dispersion,
    lowest_processing,
    makespan_rises,
    mbpc_narrowest,
    mbpc_within,
    no_saturation,
    others_climb,
    others_rise_to,
    paths_as_published,
    plain_orders_vary,
    program_slows,
    saf_better,
    same_communication,
    spread_falls,
    stable,
    takes,
    talks_longer,
    worst_but_gang,
)
from coalloc.simulation.reproduce.oas import fig4 as oas_fig4


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


JUDGED: Mapping[str, Sequence[tuple[str, Callable[[Rows], Verdict]]]] = {
    "oas-fig3": (
        ("the larger the slot, the larger the makespan", makespan_rises),
        ("at 50 % slots the makespan is close to that of the least slot", half_is_near),
        ("solving takes exponentially longer as slots shrink", program_slows),
        ("compaction falls as slots grow", compaction_falls),
    ),
    "oas-fig4": (
        (
            "at a near-optimal slot OAS is the best or close to it on all (extended)",
            close_to_best(oas_fig4.EXTENDED, oas_fig4.NEAR),
        ),
        (
            "at 50 % slots OAS is the best or close to it on all (conference)",
            close_to_best(oas_fig4.CONFERENCE, oas_fig4.SLOTTED),
        ),
        ("each plain order does well on some and badly on others", plain_orders_vary),
        ("heavy jobs run on powerful nodes (extended)", heavy_on_strong),
    ),
    "mbpc-fig3": (
        ("MBPC's dispersion is at most 5 %", mbpc_within(0.05)),
        ("MBPC's dispersion is the lowest", mbpc_narrowest),
        ("that of CBS and JPN rises to 15 %", others_rise_to(0.15)),
        ("MBPC has the lowest processing slowdown", lowest_processing),
    ),
    "mbpc-fig4": (
        ("all have a low dispersion of SC", low_dispersion),
        ("MBPC's SC is lower than CBS's", links(lambda f: [f["mbpc"] < f["cbs"]])),
        ("JPN's SC is lower than CBS's", links(lambda f: [f["jpn"] < f["cbs"]])),
    ),
    "mbpc-fig5": (
        ("communication times are the same", same_communication),
        ("MBPC's total is 5 % lower than the others'", faster_by(0.05)),
    ),
    "mbpc-fig6": (
        ("C1 is wholly J1's", takes("J1", "C1", None, whole=True)),
        ("J2 lies between C2 and C3", takes("J2", "C2", "C3")),
        ("J3 is mostly on C4, also on C3", takes("J3", "C4", "C3")),
    ),
    "mbpc-fig7": (
        ("MBPC's dispersion is at most 20 %", mbpc_within(0.2)),
        ("MBPC's dispersion is the lowest", mbpc_narrowest),
        ("that of CBS and JPN rises to 60 %", others_rise_to(0.6)),
    ),
    "mbpc-fig8": (
        ("JPN's SC is the lowest", links(lambda f: [f["jpn"] <= min(f.values())])),
        (
            "MBPC's and CBS's are similar",
            links(lambda f: [abs(f["mbpc"] / f["cbs"] - 1.0) <= 2 * NEAR]),
        ),
        ("no link is saturated", no_saturation),
    ),
    "mbpc-fig9": (("MBPC's total is 10 % lower than the others'", faster_by(0.1)),),
    "demt-fig3": (("DEMT's makespan is worse than all but Gang's", worst_but_gang),),
    "demt-fig4": (
        ("DEMT is clearly the best on the weighted completion", demt_ahead(*PAPERS)),
        ("the lists are stable", stable(*GRAHAM)),
    ),
    "demt-fig5": (
        ("SAF is better than DEMT", saf_better),
        ("the two other lists climb with the number of jobs", others_climb),
    ),
    "demt-fig6": (
        ("DEMT clearly outperforms the others", demt_ahead(*PAPERS)),
        ("DEMT's ratio is stable", stable(REACHED)),
    ),
    **{
        f"{name} (all families)": (
            ("weighted completion never above 2.5 times the bound", at_most(REPAIRED, 2.5)),
            ("makespan almost always below 2 times the bound", at_most(MAKESPAN, 2.0, ALMOST)),
        )
        for name in ("demt-fig3", "demt-fig4", "demt-fig5", "demt-fig6")
    },
    "demt-fig7": (("less than 2 s for 400 jobs", below_two_seconds),),
    "mca-table1": (("critical paths of the fifteen workflows", paths_as_published),),
    "mca-fig2": (
        ("MCA-HEFT gains 8, 20 and 42 % on M-HEFT", gains("mca-heft")),
        ("the same with best fit within a cluster", gains("mca-heft, best fit")),
        ("the longer the critical path, the larger the gain", longer_path),
    ),
    "mca-table2": (("fewer tasks are spread the wider the levels", spread_falls),),
    "mca-table3": (("tasks communicate longer under MCA-HEFT", talks_longer),),
}
"""Claims and their judges by figure; what follows the name of one in brackets is for readers."""

CLAIMS = tuple(
    Claim(figure=figure.partition(" ")[0], words=words, judge=judge)
    for figure, rows in JUDGED.items()
    for words, judge in rows
)
