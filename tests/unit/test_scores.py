"""What `make coverage` and `make mutation` count, and when they fail."""

from __future__ import annotations

import io
from collections import Counter
from typing import Any

import pytest

from tests.support.coverage_report import PARTS, shares
from tests.support.mutation_score import main, score, tally

LINES = """
    coalloc.model.cost.x_run_time__mutmut_1: killed
    coalloc.model.cost.x_run_time__mutmut_2: survived
    coalloc.model.cost.x_run_time__mutmut_3: not checked
    coalloc.policies.checking.pool.xǁPoolǁrows__mutmut_1: timeout
    coalloc.policies.checking.pool.xǁPoolǁrows__mutmut_2: no tests
"""


def summary(lines: int, covered: int, branches: int, taken: int) -> dict[str, Any]:
    return {
        "summary": {
            "num_statements": lines,
            "covered_lines": covered,
            "num_branches": branches,
            "covered_branches": taken,
        }
    }


def test_statements_and_branches_of_the_files_of_a_part_are_summed() -> None:
    files = {
        "core/a.py": summary(10, 9, 4, 2),
        "core/b.py": summary(30, 30, 0, 0),
        "policies/oas/policy.py": summary(10, 0, 10, 0),
    }
    assert shares(files, PARTS["cores"]) == {"statements": 39 / 40, "branches": 0.5}


def test_what_was_not_measured_is_not_covered() -> None:
    with pytest.raises(LookupError, match=r"core/\*\.py"):
        shares({"policies/checking/check.py": summary(1, 1, 0, 0)}, PARTS["cores"])


def test_mutants_are_counted_by_module() -> None:
    ends = tally(LINES.splitlines())
    assert ends["coalloc.model.cost"] == Counter(killed=1, survived=1, **{"not checked": 1})
    assert score(ends["coalloc.model.cost"]) == (1, 2)
    # what no test runs is not found; what never ends is
    assert score(ends["coalloc.policies.checking.pool"]) == (1, 2)


@pytest.mark.parametrize("line", ["killed", "coalloc.model.cost: killed", "x__mutmut_1: killed"])
def test_a_line_that_names_no_mutant_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match="names no mutant"):
        tally([line])


@pytest.mark.parametrize(
    ("survivors", "code"), [(0, 0), (1, 0), (2, 1)], ids=["all", "nine of ten", "eight of ten"]
)
def test_less_than_nine_of_ten_is_a_failure(
    survivors: int, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ends = ["survived"] * survivors + ["killed"] * (10 - survivors)
    text = "".join(f"m.f__mutmut_{n}: {end}\n" for n, end in enumerate(ends))
    monkeypatch.setattr("sys.stdin", io.StringIO(text))
    assert main() == code
    assert f"{10 - survivors} of    10" in capsys.readouterr().out


def test_nothing_tried_is_no_success(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("m.f__mutmut_1: not checked\n"))
    assert main() == 1
