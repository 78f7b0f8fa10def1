"""What each text claims, and how it fares: on the stored data, and on the page made from them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pytest

from coalloc.simulation.reproduce.pages import FIGURES, stored_story, with_results
from coalloc.simulation.reproduce.registry import MODULES
from coalloc.simulation.reproduce.rows import from_csv
from coalloc.simulation.reproduce.study import Rows
from coalloc.simulation.reproduce.words import Held

DOCS = Path(__file__).parents[2] / "docs"
YES, PARTLY, NO = Held.YES, Held.PARTLY, Held.NO

VERDICTS: Mapping[tuple[str, str], Held] = {
    ("oas-fig3", "the larger the slot, the larger the makespan"): YES,
    ("oas-fig3", "at 50 % slots the makespan is close to that of the least slot"): NO,
    ("oas-fig3", "solving takes exponentially longer as slots shrink"): PARTLY,
    ("oas-fig3", "compaction falls as slots grow"): YES,
    ("oas-fig4", "at a near-optimal slot OAS is the best or close to it on all (extended)"): YES,
    ("oas-fig4", "at 50 % slots OAS is the best or close to it on all (conference)"): PARTLY,
    ("oas-fig4", "each plain order does well on some and badly on others"): YES,
    ("oas-fig4", "heavy jobs run on powerful nodes (extended)"): PARTLY,
    ("mbpc-fig3", "MBPC's dispersion is at most 5 %"): YES,
    ("mbpc-fig3", "MBPC's dispersion is the lowest"): PARTLY,
    ("mbpc-fig3", "that of CBS and JPN rises to 15 %"): PARTLY,
    ("mbpc-fig3", "MBPC has the lowest processing slowdown"): YES,
    ("mbpc-fig4", "all have a low dispersion of SC"): PARTLY,
    ("mbpc-fig4", "MBPC's SC is lower than CBS's"): YES,
    ("mbpc-fig4", "JPN's SC is lower than CBS's"): NO,
    ("mbpc-fig5", "communication times are the same"): YES,
    ("mbpc-fig5", "MBPC's total is 5 % lower than the others'"): PARTLY,
    ("mbpc-fig6", "C1 is wholly J1's"): YES,
    ("mbpc-fig6", "J2 lies between C2 and C3"): YES,
    ("mbpc-fig6", "J3 is mostly on C4, also on C3"): YES,
    ("mbpc-fig7", "MBPC's dispersion is at most 20 %"): YES,
    ("mbpc-fig7", "MBPC's dispersion is the lowest"): YES,
    ("mbpc-fig7", "that of CBS and JPN rises to 60 %"): NO,
    ("mbpc-fig8", "JPN's SC is the lowest"): NO,
    ("mbpc-fig8", "MBPC's and CBS's are similar"): NO,
    ("mbpc-fig8", "no link is saturated"): YES,
    ("mbpc-fig9", "MBPC's total is 10 % lower than the others'"): YES,
    ("demt-fig3", "DEMT's makespan is worse than all but Gang's"): PARTLY,
    ("demt-fig4", "DEMT is clearly the best on the weighted completion"): PARTLY,
    ("demt-fig4", "the lists are stable"): PARTLY,
    ("demt-fig5", "SAF is better than DEMT"): YES,
    ("demt-fig5", "the two other lists climb with the number of jobs"): YES,
    ("demt-fig6", "DEMT clearly outperforms the others"): YES,
    ("demt-fig6", "DEMT's ratio is stable"): YES,
    ("demt-fig3", "weighted completion never above 2.5 times the bound"): NO,
    ("demt-fig3", "makespan almost always below 2 times the bound"): YES,
    ("demt-fig4", "weighted completion never above 2.5 times the bound"): NO,
    ("demt-fig4", "makespan almost always below 2 times the bound"): YES,
    ("demt-fig5", "weighted completion never above 2.5 times the bound"): NO,
    ("demt-fig5", "makespan almost always below 2 times the bound"): NO,
    ("demt-fig6", "weighted completion never above 2.5 times the bound"): YES,
    ("demt-fig6", "makespan almost always below 2 times the bound"): YES,
    ("demt-fig7", "less than 2 s for 400 jobs"): YES,
    ("mca-table1", "critical paths of the fifteen workflows"): YES,
    ("mca-fig2", "MCA-HEFT gains 8, 20 and 42 % on M-HEFT"): NO,
    ("mca-fig2", "the same with best fit within a cluster"): NO,
    ("mca-fig2", "the longer the critical path, the larger the gain"): NO,
    ("mca-table2", "fewer tasks are spread the wider the levels"): NO,
    ("mca-table3", "tasks communicate longer under MCA-HEFT"): YES,
}
"""Of every claim; a run that turns one must turn it here, and the page's words with it."""


@cache
def stored(figure: str) -> Rows:
    return from_csv((DOCS / "reproduction" / f"{figure}.csv").read_text(encoding="utf-8"))


def test_the_stored_data_judge_every_claim_so() -> None:
    claims = {
        (name, claim.words): claim
        for name in MODULES
        for claim in stored_story(name, DOCS / "reproduction").claims
    }
    assert {key: claim.held for key, claim in claims.items()} == VERDICTS
    for claim in claims.values():
        assert any(sign.isdigit() for sign in claim.found) or claim.held is YES


@pytest.mark.parametrize("page", ["REPRODUCTION.md", f"reproduction/{FIGURES}"])
def test_the_page_is_what_the_stored_data_make(page: str) -> None:
    text = (DOCS / page).read_text(encoding="utf-8")
    assert text == with_results(text, DOCS / "reproduction")
