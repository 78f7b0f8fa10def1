"""``coalloc reproduce all --quick``: every experiment, with its data, text and pictures."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks.papers.registry import MODULES, facts_of, load, template

from coalloc.simulation.reproduce import plots
from coalloc.simulation.reproduce.rows import Rows, from_csv
from coalloc.simulation.reproduce.words import COLUMNS, HERE, MEASURED, PAPER, REASONS, fill

pytestmark = pytest.mark.slow

LONGEST_S = 600.0


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return what one run of the command has written."""
    path = tmp_path_factory.mktemp("reproduction")
    done = subprocess.run(
        [
            *(sys.executable, "-m", "coalloc.cli.main"),
            *("reproduce", "all", "--quick", "--quiet", "-o", path),
        ],
        capture_output=True,
        text=True,
        timeout=LONGEST_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines] == list(MODULES)
    assert all(line.endswith("(reduced)") for line in lines)
    return path


def rows_of(folder: Path, name: str) -> Rows:
    return from_csv((folder / f"{name}.csv").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", MODULES)
def test_the_page_explains_the_columns_and_follows_from_the_csv(folder: Path, name: str) -> None:
    story = fill(template(name), facts_of(load(name), rows_of(folder, name), folder))
    page = (folder / f"{name}.md").read_text(encoding="utf-8")
    assert "**Reduced run** (`--quick`)" in page
    for section in (PAPER, HERE, MEASURED, REASONS, COLUMNS):
        assert all(paragraph in page for paragraph in story.sections[section])
    for claim in story.claims:
        assert f"| {claim.words} | {claim.held} | {claim.found} |" in page


@pytest.mark.parametrize("name", MODULES)
def test_the_pictures_are_there_and_follow_from_the_csv(folder: Path, name: str) -> None:
    experiment = load(name)
    rows = rows_of(folder, name)
    looks = template(name).looks
    drawn = plots.render(lambda figure: experiment.draw(rows, figure, looks), experiment.size)
    assert drawn.keys() == {"png", "pdf"}
    for ending, content in drawn.items():
        assert (folder / f"{name}.{ending}").read_bytes() == content
