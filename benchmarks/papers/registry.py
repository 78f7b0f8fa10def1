"""The experiments by name, and the files of one that was carried out: data, text and picture.

`RUNS` says what made each NAME.csv beside it, and how long that took.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import tomli

from benchmarks.papers.study import Experiment, Run
from coalloc.model.errors import InputError
from coalloc.simulation.made_by import made_by
from coalloc.simulation.reproduce import plots, words
from coalloc.simulation.reproduce.rows import Row, Rows, from_csv, table, to_csv
from coalloc.simulation.reproduce.words import Facts, Template, fill, read_template

DECLARED: Mapping[str, Any] = tomli.loads(
    (Path(__file__).parent / "data" / "experiments.toml").read_text(encoding="utf-8")
)
PAPERS: Mapping[str, str] = {name: paper["cited"] for name, paper in DECLARED.items()}
MODULES = {key: where for one in DECLARED.values() for key, where in one["experiments"].items()}
"""Module of every experiment that ``coalloc reproduce`` knows, in the order of ``all``."""


def find(name: str) -> str:
    """The name, if there is such an experiment. Raises `InputError`."""
    if name not in MODULES:
        names = ", ".join(MODULES)
        raise InputError("reproduce", f"there is no experiment {name!r}; there are all, {names}")
    return name


@cache
def template(name: str) -> Template:
    """Read the template of an experiment."""
    folder = MODULES[name].partition(".")[0]
    return read_template(Path(__file__).parent / folder / "data" / f"{name}.md")


def load(name: str) -> Experiment:
    """Import an experiment."""
    module = import_module(f"benchmarks.papers.{MODULES[name]}")
    table: Mapping[str, Experiment] = module.EXPERIMENTS
    return table[name]


def carry_out(
    name: str, template: Template, experiment: Experiment, run: Run, folder: Path
) -> tuple[Template, float, str]:
    """Measure, and write NAME.csv, NAME.md, NAME.png and NAME.pdf. Raises `OSError`.

    What the rows say, the wall time of the measurement in seconds, and why there is no picture,
    where there is none.
    """
    began = time.monotonic()
    text = to_csv(template.columns, experiment.measure(run))
    elapsed = time.monotonic() - began
    (folder / f"{name}.csv").write_text(text, encoding="utf-8")
    cpu_s = run.spent[experiment.study.name]
    note(folder, name, cpu_s=cpu_s, seed=run.seed, quick=run.quick)
    rows = from_csv(text)
    story = fill(template, facts_of(experiment, rows, folder))
    page = to_markdown(name, story, quick=run.quick, elapsed_s=elapsed)
    (folder / f"{name}.md").write_text(page, encoding="utf-8")
    looks = template.looks
    missing = plots.write(
        folder, name, lambda figure: experiment.draw(rows, figure, looks), experiment.size
    )
    return story, elapsed, missing


def to_markdown(name: str, story: Template, *, quick: bool, elapsed_s: float) -> str:
    """The text of an experiment as a page."""
    sections = story.sections
    parts = [f"# {name}: {story.title}", f"{PAPERS[story.paper]}, {story.place}."]
    if quick:
        reduced = " ".join(sections[words.REDUCED])
        parts.append(f"**Reduced run** (`--quick`), a smoke test and no reproduction: {reduced}")
    parts += [f"![{name}]({name}.png)", "## The paper", *sections[words.PAPER]]
    if story.claims:
        parts.append(word_table(("The text", "Fares", "Found"), story.claims))
    for section in (words.HERE, words.MEASURED, words.REASONS):
        if sections[section]:
            parts += [f"## {section}", *sections[section]]
    command = f"coalloc reproduce {name}{' --quick' if quick else ''}"
    parts += [
        "## Data",
        f"`{command}` measured for {elapsed_s:.1f} s and wrote `{name}.csv`; `{RUNS}` "
        "says by which versions, and how much processor time that took.",
        *sections[words.COLUMNS],
    ]
    return "\n\n".join(parts) + "\n"


def word_table(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A table of words: nothing to the right."""
    return table(head, lines).replace("---:", "---")


def facts_of(experiment: Experiment, rows: Rows, folder: Path) -> Facts:
    """Values of the placeholders, with what lies beside the rows in their folder."""
    facts = experiment.facts(rows)
    if not experiment.beside:
        return facts
    other, compared = experiment.beside
    known = (folder / f"{other}.csv").exists()
    return {**facts, **compared(rows, stored_rows(other, folder) if known else Rows())}


def stored_rows(name: str, folder: Path) -> Rows:
    """The rows of an experiment that was carried out into a folder."""
    return from_csv((folder / f"{name}.csv").read_text(encoding="utf-8"))


RUNS = "runs.csv"
COLUMNS: Mapping[str, str] = {
    "experiment": "its name",
    "cpu_s": "processor time of the study it is read from, child processes too, s",
    "seed": "as given",
    "quick": "1 where reduced",
    "made_by": "coalloc, its commit (with + where files were changed), Python, what computes",
}


def note(folder: Path, name: str, *, cpu_s: float, seed: int, quick: bool) -> None:
    """Say of an experiment how its file came about. Raises `OSError`."""
    runs = origins(folder)
    mine = {
        "experiment": name,
        "cpu_s": cpu_s,
        "seed": seed,
        "quick": int(quick),
        "made_by": made_by(),
    }
    text = to_csv(COLUMNS, (runs | {name: mine}).values())
    (folder / RUNS).write_text(text, encoding="utf-8")


def origins(folder: Path) -> dict[str, Row]:
    """The lines of `RUNS`, by experiment; none where there is no such file."""
    path = folder / RUNS
    rows = from_csv(path.read_text(encoding="utf-8")) if path.exists() else ()
    return {row["experiment"]: row for row in rows}
