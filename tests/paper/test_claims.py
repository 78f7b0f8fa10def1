"""What each text claims, and how it fares on the stored data."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from zlib import crc32

import pytest
from benchmarks.papers.registry import (
    MODULES,
    facts_of,
    load,
    origins,
    stored_rows,
    template,
)

from coalloc.simulation.reproduce.rows import Rows
from coalloc.simulation.reproduce.words import MEASURED, PAPER, Held, Template, fill

DATA = Path(__file__).parents[2] / "docs" / "reproduction"
YES, PARTLY, NO = Held.YES, Held.PARTLY, Held.NO

VERDICTS: Mapping[str, tuple[Held, ...]] = {
    "oas-fig3": (YES, NO, PARTLY, YES),
    "oas-fig4": (PARTLY, NO, PARTLY, NO, YES, PARTLY),
    "mbpc-fig3": (YES, NO, PARTLY, NO, PARTLY, YES, PARTLY, NO),
    "mbpc-fig4": (PARTLY, YES, YES, NO, NO),
    "mbpc-fig5": (YES, PARTLY, PARTLY),
    "mbpc-fig6": (YES, YES, YES),
    "mbpc-fig7": (YES, NO, NO, YES, YES, NO, NO, YES, NO, YES),
    "mbpc-fig8": (NO, NO, YES, YES),
    "mbpc-fig9": (YES, PARTLY, YES),
    "demt-fig3": (PARTLY, PARTLY, YES, NO, YES, NO, YES, NO),
    "demt-fig4": (PARTLY, PARTLY, PARTLY, YES, PARTLY, NO, YES, NO, YES, YES),
    "demt-fig5": (YES, YES, PARTLY, NO, NO, NO, YES, YES),
    "demt-fig6": (YES, YES, YES, YES, YES, YES, YES),
    "demt-fig7": (YES,),
    "mca-table1": (YES,),
    "mca-fig2": (NO, NO, YES, NO),
    "mca-table2": (PARTLY, NO, YES),
    "mca-table3": (YES, YES),
}
"""Of every claim of an experiment, in the order of its template.

A run that turns one must turn it here, and the page's words with it.
"""


@cache
def stored(figure: str) -> Rows:
    return stored_rows(figure, DATA)


def told(figure: str, rows: Rows) -> Template:
    return fill(template(figure), facts_of(load(figure), rows, DATA))


def test_the_stored_data_judge_every_claim_so() -> None:
    found = {name: told(name, stored(name)).claims for name in MODULES}
    held = {name: tuple(claim.held for claim in claims) for name, claims in found.items()}
    assert {name: verdicts for name, verdicts in held.items() if verdicts} == VERDICTS
    for claim in (claim for claims in found.values() for claim in claims):
        assert any(sign.isdigit() for sign in claim.found) or claim.held is YES


READINGS = re.compile(r"\((SC clamped|\(8\) as printed|weighted by|as the text|unweighted)")


@pytest.mark.parametrize("number", [3, 4, 7, 8, 9])
def test_a_verdict_that_hangs_on_a_reading_names_it(number: int) -> None:
    story = told(f"mbpc-fig{number}", stored(f"mbpc-fig{number}"))
    of_mbpc = [claim.words for claim in story.claims if "MBPC" in claim.words]
    assert of_mbpc
    assert [words for words in of_mbpc if not READINGS.search(words)] == []


def test_every_stored_figure_says_what_made_it_and_takes_what_the_list_says() -> None:
    runs = origins(DATA)
    assert runs.keys() == set(MODULES)
    for name, run in runs.items():
        assert (run["seed"], run["quick"]) == (0, 0), name
        assert re.fullmatch(r"coalloc \S+ at [0-9a-f]{8,}.*", run["made_by"]), name
        if run["cpu_s"] is None:  # older than the record of times
            continue
        number, unit = template(name).takes.split()
        said = float(number) * {"s": 1.0, "min": 60.0}[unit]
        assert said / 2.0 <= max(run["cpu_s"], 1.0) <= 2.0 * said, (name, run["cpu_s"])


RESULTS = (
    *("makespan_s", "over_oas", "compaction", "elapsed_s", "cpu_s", "rho_mean"),
    *("mean_wait_s", "mean_bounded_slowdown", "mean_flow_s", "p99_stretch"),
    *("sp", "sp_alone", "ratio", "ratio_alone", "sc", "processing", "communication", "processes"),
    *("completion", "share", "path_s", "resources", "spread", "comm_s"),
)


@pytest.mark.parametrize("name", MODULES)
def test_other_data_make_another_text(name: str) -> None:
    """Every number that was measured is computed: what is typed in would stay."""
    others = Rows()
    for row in stored(name):
        series = [value for value in row.values() if isinstance(value, str)]
        factor = 2 + crc32(repr((*series, row.get("jobs"), row.get("number"))).encode()) % 7
        changed = {key: factor * value for key, value in row.items() if value and key in RESULTS}
        others.append({**row, **changed})
    before, after = (told(name, rows) for rows in (stored(name), others))
    assert before.sections[PAPER] == after.sections[PAPER]
    assert before.sections[MEASURED] != after.sections[MEASURED]
    assert before.headline != after.headline
    for old, new in zip(before.claims, after.claims, strict=True):
        assert old.found != new.found, old.words
