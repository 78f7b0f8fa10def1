"""``coalloc reproduce all --quick``: every experiment, with its data, text and pictures."""

from __future__ import annotations

import csv
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from coalloc.simulation.reproduce import plots
from coalloc.simulation.reproduce.experiment import Row
from coalloc.simulation.reproduce.registry import ENTRIES, load
from coalloc.simulation.reproduce.rows import from_csv

pytestmark = pytest.mark.slow

LONGEST_S = 600.0


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return what one run of the command has written."""
    path = tmp_path_factory.mktemp("reproduction")
    done = subprocess.run(
        [sys.executable, "-m", "coalloc.cli.main", "reproduce", "all", "--quick", "-o", path],
        capture_output=True,
        text=True,
        timeout=LONGEST_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines] == list(ENTRIES)
    assert all(line.endswith("(reduced)") or " left out: " in line for line in lines)
    return path


def rows_of(folder: Path, name: str) -> Sequence[Row]:
    path = folder / f"{name}.csv"
    if not path.exists():
        pytest.skip(f"{name} was left out: its data are absent")
    return from_csv(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", ENTRIES)
def test_the_csv_has_the_columns_that_its_text_explains(folder: Path, name: str) -> None:
    assert rows_of(folder, name)
    with (folder / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        head, *lines = csv.reader(file)
    experiment = load(ENTRIES[name])
    assert head == list(experiment.columns)
    assert lines
    page = (folder / f"{name}.md").read_text(encoding="utf-8")
    for column, about in experiment.columns.items():
        assert f"| {column} | {about} |" in page


@pytest.mark.parametrize("name", ENTRIES)
def test_the_text_follows_from_the_csv(folder: Path, name: str) -> None:
    story = load(ENTRIES[name]).describe(rows_of(folder, name))
    page = (folder / f"{name}.md").read_text(encoding="utf-8")
    assert "**Reduced run** (`--quick`)" in page
    for paragraph in (*story.claims, *story.measured, *story.reasons):
        assert paragraph in page


@pytest.mark.parametrize("name", ENTRIES)
def test_other_data_make_another_text(folder: Path, name: str) -> None:
    """Every measured number is computed: what is typed in would stay."""
    rows = rows_of(folder, name)
    experiment = load(ENTRIES[name])
    others = [
        {
            key: (2 + i % 3) * value if _is_result(key, value) else value
            for key, value in row.items()
        }
        for i, row in enumerate(rows)
    ]
    before, after = experiment.describe(rows), experiment.describe(others)
    assert before.claims == after.claims
    assert before.measured != after.measured
    assert before.headline != after.headline


RESULTS = (
    *("makespan_s", "over_oas", "compaction", "elapsed_s", "cpu_s"),
    *("mean_wait_s", "mean_bounded_slowdown", "mean_flow_s", "p99_stretch"),
    *("sp", "sp_alone", "ratio", "ratio_alone", "processing", "processes", "gain"),
    *("share", "path_s", "resources", "spread", "comm_s"),
)


def _is_result(key: str, value: object) -> bool:
    return key in RESULTS and isinstance(value, int | float)


@pytest.mark.parametrize("name", ENTRIES)
def test_the_pictures_are_there_and_follow_from_the_csv(folder: Path, name: str) -> None:
    experiment = load(ENTRIES[name])
    rows = rows_of(folder, name)
    drawn = plots.render(lambda figure: experiment.draw(rows, figure), experiment.size)
    assert drawn.keys() == {"png", "pdf"}
    for ending, content in drawn.items():
        assert (folder / f"{name}.{ending}").read_bytes() == content
