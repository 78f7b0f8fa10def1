"""``coalloc reproduce`` without its experiments: registry, rows, files, the command's exits."""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from benchmarks.papers import command as papers
from benchmarks.papers.oas.fig4 import spearman
from benchmarks.papers.registry import MODULES, PAPERS, carry_out, load, template
from benchmarks.papers.study import Experiment, Looks, Run, Study

from coalloc.cli import main
from coalloc.simulation.reproduce import command, plots
from coalloc.simulation.reproduce.rows import (
    Estimate,
    Row,
    Rows,
    estimate,
    from_csv,
    spread,
    tabulate,
    to_csv,
)
from coalloc.simulation.reproduce.words import (
    CLAIMS,
    MEASURED,
    REDUCED,
    SECTIONS,
    Claim,
    Facts,
    Held,
    Template,
    fill,
    held_on,
    read_template,
    shown,
)

if TYPE_CHECKING:
    from coalloc.simulation.reproduce.plots import Figure


@pytest.mark.parametrize("name", MODULES)
def test_every_experiment_loads_and_has_its_words(name: str) -> None:
    assert isinstance(load(name), Experiment)
    about = template(name)
    assert about.paper in PAPERS
    assert about.title
    assert about.place
    assert about.takes
    assert all(about.columns.values())
    assert " ".join(about.sections[REDUCED]).endswith(".")
    assert all(about.sections[section] for section in SECTIONS[:2])


def test_the_list_names_every_experiment_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["reproduce", "--list"]) == 0
    words = [line.split()[0] for line in capsys.readouterr().out.splitlines() if line[:1] == " "]
    assert words == [*MODULES, "online", "psplib", "learned"]


def test_all_is_every_experiment_and_none_twice() -> None:
    assert papers.chosen(["oas-fig4", "all", "oas-fig4"]) == [
        "oas-fig4",
        *(name for name in MODULES if name != "oas-fig4"),
    ]


def test_without_a_checkout_it_says_where_the_experiments_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "CHECKOUT", tmp_path)
    assert main.main(["reproduce", "oas-fig3"]) == 2
    assert capsys.readouterr().err == (
        "coalloc: error: reproduce: the papers' experiments come with a checkout of coalloc; "
        "elsewhere there are online and psplib\n"
    )


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], "reproduce: names no experiment (see coalloc reproduce --list)"),
        (["oas-fig1"], "reproduce: there is no experiment 'oas-fig1'; there are all, oas-fig3"),
        (["all", "--seed", "x"], "reproduce: argument --seed: invalid int value: 'x'"),
    ],
)
def test_bad_usage_is_one_line(
    words: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.main(["reproduce", *words]) == 2
    out, err = capsys.readouterr()
    assert not out
    assert err.startswith(f"coalloc: error: {expected}")
    assert err.count("\n") == 1


def test_a_folder_that_cannot_be_made_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    assert main.main(["reproduce", "mbpc-fig6", "-o", str(tmp_path / "file" / "deep")]) == 1
    assert capsys.readouterr().err.startswith("coalloc: error: ")


COLUMNS = {"name": "text", "count": "whole number", "value": "number", "hole": "may be empty"}


def test_rows_come_back_from_csv_as_they_were() -> None:
    rows = [
        {"name": "a, b", "count": 3, "value": 0.125, "hole": None},
        {"name": 'quo"ted', "count": -1, "value": 6.7e5, "hole": 2},
    ]
    text = to_csv(COLUMNS, rows)
    assert from_csv(text) == rows
    assert next(csv.reader(io.StringIO(text))) == list(COLUMNS)
    assert to_csv(COLUMNS, from_csv(text)) == text


def test_a_row_without_a_column_is_refused() -> None:
    with pytest.raises(KeyError, match="hole"):
        to_csv(COLUMNS, [{"name": "a", "count": 1, "value": 1.0, "whole": 1}])


def test_rows_are_found_and_grouped() -> None:
    rows = Rows([{"a": 1, "b": 2}, {"a": 1, "b": 3}, {"a": None, "b": 2}])
    assert rows.where(a=1) == rows[:2]
    assert rows.grouped("b") == {(2,): [rows[0], rows[2]], (3,): [rows[1]]}
    assert spread([3.0, 1.0]) == "1 to 3"
    assert spread([1.0, 1.0001]) == "1"
    counts = rows.by_value("b", lambda group: str(len(group)), "b = {}")
    assert tabulate("", rows.by_code("a"), counts).splitlines() == [
        "|  | b = 2 | b = 3 |",
        "| --- | ---: | ---: |",
        "| `1` | 1 | 1 |",
        "| `None` | 1 | 0 |",
    ]


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ([1.0, 2.0, 3.0], [10.0, 20.0, 25.0], 1.0),
        ([1.0, 2.0, 3.0], [3.0, 2.0, 1.0], -1.0),
        # worked by hand: ranks 0 1 2 3 against 0.5 0.5 2 3
        ([1.0, 2.0, 3.0, 4.0], [5.0, 5.0, 6.0, 7.0], 0.9486832980505138),
        ([1.0, 2.0, 3.0], [4.0, 4.0, 4.0], None),  # one of them never varies
        ([1.0, 2.0, 3.0, 4.0], [1.0, 3.0, 2.0, 4.0], 0.8),  # 1 - 6 * 2 / (4 * 15)
    ],
)
def test_rank_correlation(first: list[float], second: list[float], expected: float | None) -> None:
    assert spearman(first, second) == (None if expected is None else pytest.approx(expected))


def _measure(run: Run) -> Iterable[Row]:
    for n in run.steps("counting", range(2 if run.quick else 4)):
        yield {"n": n, "square": 0.1 * n * n}


def _facts(rows: Rows) -> Facts:
    return {"squares": rows, "sum": sum(row["square"] for row in rows), "few": len(rows) < 3}


def _draw(rows: Rows, figure: Figure, looks: Looks) -> None:
    axes = plots.panels(figure, 1, 1)[0][0]
    axes.plot([row["n"] for row in rows], [row["square"] for row in rows])


TOY = Experiment(
    study=Study(name="toy", measure=_measure), facts=_facts, draw=_draw, size=(2.0, 1.5)
)
TEMPLATE = """title: squares
paper: OAS
place: Fig. 9
also: other

## Headline

sum {sum:g}

## The paper

More.

## Claims

| Fares | The text | Found |
| --- | --- | --- |
| {few} | few of them | {squares:count} |

## Measured

{few:if}Only few,
in two lines.

## Reduced

two numbers.
"""
OTHER = """## Measured

The sum is {sum:g}.

## Columns

| Column | Holds |
| --- | --- |
| n | number |
| square | a tenth of its square |
"""


@pytest.fixture(name="toy")
def words_of_toy(tmp_path: Path) -> Template:
    (tmp_path / "toy.md").write_text(TEMPLATE, encoding="utf-8")
    (tmp_path / "other.md").write_text(OTHER, encoding="utf-8")
    return read_template(tmp_path / "toy.md")


def test_a_template_is_filled_with_another_and_without_what_is_absent(toy: Template) -> None:
    full, empty = (fill(toy, {"few": few, "sum": 3.5, "squares": []}) for few in (True, False))
    assert full.headline == "sum 3.5"
    assert full.sections[MEASURED] == ("Only few, in two lines.", "The sum is 3.5.")
    assert empty.sections[MEASURED] == ("The sum is 3.5.",)
    assert empty.claims == [Claim(words="few of them", held=Held.NO, found="0")]
    assert toy.columns == {"n": "number", "square": "a tenth of its square"}


def test_a_claim_without_rows_is_not_judged(toy: Template) -> None:
    story = fill(toy, {"few": [], "sum": 1.0, "squares": []})
    assert story.sections[CLAIMS]
    assert story.claims == []


def test_a_section_that_no_page_shows_is_refused(tmp_path: Path) -> None:
    (tmp_path / "toy.md").write_text(f"{TEMPLATE}\n## Measurd\n\nMore.\n", encoding="utf-8")
    with pytest.raises(ValueError, match="no sections Measurd"):
        read_template(tmp_path / "toy.md")


ROWS: list[Row] = [{"s": 3.0, "x": None}, {"s": 1.0, "x": 0.25}]


@pytest.mark.parametrize(
    ("value", "spec", "expected"),
    [
        (0.125, ".1%", "12.5 %"),
        (0.5, "%", "50 %"),
        (True, "", "reproduced"),
        ([True, False], "", "in part"),
        ([False, False], "", "not reproduced"),
        ([True, False, True], "sum", "2"),
        ([3.0, 1.0], ".1f", "1.0 to 3.0"),
        ([3.0, 1.0], "max .1f", "3.0"),
        ([3.0, 1.0, 2.0], "<=2", "2"),
        ([], ".1f", "–"),
        ((3.0, 1.0), ".1f", "3.0, 1.0"),
        (Estimate(mean=0.5, low=0.4, high=0.6), ".1f", "0.5 (0.4 to 0.6)"),
        (estimate([3.0]), ".1f", "3.0"),  # one draw has no interval
        ({"a": 3.0, "b": [1.0, 2.0]}, "`.0f", "`a` 3, `b` 1 to 2"),
        (ROWS, "count", "2"),
        (ROWS, "range s .0f", "1 to 3"),
        (ROWS, "mean s .1f", "2.0"),
        (ROWS, "max x .0%", "25 %"),  # an empty cell is left out
    ],
)
def test_values_are_shown_by_their_kind(value: Any, spec: str, expected: str) -> None:
    assert shown(value, spec) == expected


def test_what_is_said_of_all_is_judged_by_the_interval_of_a_share() -> None:
    draws = {share: [1.0] * share + [0.0] * (30 - share) for share in (0, 9, 15, 28, 30)}
    held = [held_on(estimate(values)) for values in draws.values()]
    assert held == [Held.NO, Held.NO, Held.PARTLY, Held.PARTLY, Held.YES]


@pytest.mark.parametrize("quick", [False, True])
def test_an_experiment_leaves_data_text_and_pictures(
    toy: Template, tmp_path: Path, quick: bool
) -> None:
    steps: list[tuple[str, int, int]] = []
    run = Run(quick=quick, report=lambda *step: steps.append(step))
    story, _, missing = carry_out("toy", toy, TOY, run, tmp_path)
    rows = from_csv((tmp_path / "toy.csv").read_text(encoding="utf-8"))
    page = (tmp_path / "toy.md").read_text(encoding="utf-8")
    assert len(rows) == (2 if quick else 4)
    assert steps[-1] == ("counting", len(rows), len(rows))
    assert missing == ""
    assert story == fill(toy, _facts(rows))
    assert f"The sum is {'0.1' if quick else '1.4'}." in page
    assert "| few of them | reproduced | 2 |" in page or not quick
    assert ("Reduced run" in page) == quick
    assert (tmp_path / "toy.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "toy.pdf").read_bytes().startswith(b"%PDF")


def test_without_matplotlib_there_are_data_and_text(
    toy: Template,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setattr(papers, "MODULES", {"toy": ""})
    monkeypatch.setattr(papers, "template", lambda name: toy)
    monkeypatch.setattr(papers, "load", lambda name: TOY)
    out_folder = tmp_path / "out"
    assert main.main(["reproduce", "all", "--quick", "-o", str(out_folder)]) == 1
    out, err = capsys.readouterr()
    assert out.startswith("toy ")
    assert "sum 0.1 (reduced)" in out
    assert err == f"coalloc: error: {plots.MISSING}\n"
    assert "pip install '.[plot]'" in err
    assert sorted(path.name for path in out_folder.iterdir()) == [
        "runs.csv",
        "toy.csv",
        "toy.md",
    ]
