"""The experiments by name, and the files of one that was carried out: data, text and picture."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path

from coalloc.model.errors import InputError
from coalloc.simulation.reproduce import plots, provenance, words
from coalloc.simulation.reproduce.rows import Rows, from_csv, table, to_csv
from coalloc.simulation.reproduce.study import Experiment, Facts, Run
from coalloc.simulation.reproduce.words import Story, Template, fill, read_template, verdicts

PAPERS: Mapping[str, str] = {
    "OAS": "Blanco, Guirado, Lérida, Albornoz, “MIP model scheduling for multi-clusters” "
    "(conference), and “OAS: a MIP model for ordering and allocating parallel jobs on "
    "multi-cluster systems” (extended)",
    "MBPC": "Blanco, Castellà, Lérida, Guirado, “Multiple job allocation in multicluster system”",
    "DEMT": "Dutot, Eyraud-Dubois, Mounié, Trystram, “Bi-criteria algorithm for scheduling jobs on "
    "cluster platforms” (SPAA 2004)",
    "MCA-HEFT": "Stanzani, Sato, Netto, “Scheduling workflows in multi-cluster environments”, "
    "which introduces MCA-HEFT",
}
MODULES: Mapping[str, str] = {
    "oas-fig3": "oas.fig3",
    "oas-fig4": "oas.fig4",
    "mbpc-fig3": "mbpc.dispersion",
    "mbpc-fig4": "mbpc.dispersion",
    "mbpc-fig5": "mbpc.tight",
    "mbpc-fig6": "mbpc.tight",
    "mbpc-fig7": "mbpc.dispersion",
    "mbpc-fig8": "mbpc.dispersion",
    "mbpc-fig9": "mbpc.tight",
    "demt-fig3": "demt.families",
    "demt-fig4": "demt.families",
    "demt-fig5": "demt.families",
    "demt-fig6": "demt.families",
    "demt-fig7": "demt.fig7",
    "demt-online": "demt.online",
    "mca-table1": "mca.figures",
    "mca-fig2": "mca.figures",
    "mca-table2": "mca.figures",
    "mca-table3": "mca.figures",
}
"""Module of every experiment that ``coalloc reproduce`` knows, in the order of ``all``.

Its table EXPERIMENTS holds the experiment; the template is in the folder ``data`` beside it.
"""


def find(name: str) -> str:
    """Return the name, if there is such an experiment.

    Raises `InputError` if there is none; the message lists the names.
    """
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
    module = import_module(f"coalloc.simulation.reproduce.{MODULES[name]}")
    table: Mapping[str, Experiment] = module.EXPERIMENTS
    return table[name]


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """Files on disk now."""

    story: Story
    elapsed_s: float
    """Wall time of the measurement, seconds."""
    missing: str
    """Why there is no picture; empty where there is one."""


def carry_out(
    name: str, template: Template, experiment: Experiment, run: Run, folder: Path
) -> Written:
    """Measure, and write NAME.csv, NAME.md, NAME.png and NAME.pdf.

    Raises `OSError` with the file that could not be written.
    """
    began = time.monotonic()
    text = to_csv(template.columns, experiment.measure(run))
    elapsed = time.monotonic() - began
    (folder / f"{name}.csv").write_text(text, encoding="utf-8")
    cpu_s = run.spent[experiment.study.name]
    provenance.note(folder, name, cpu_s=cpu_s, seed=run.seed, quick=run.quick)
    rows = from_csv(text)
    story = fill(template, facts_of(experiment, rows, folder))
    page = to_markdown(name, story, quick=run.quick, elapsed_s=elapsed)
    (folder / f"{name}.md").write_text(page, encoding="utf-8")
    looks = template.looks
    missing = plots.write(
        folder, name, lambda figure: experiment.draw(rows, figure, looks), experiment.size
    )
    return Written(story=story, elapsed_s=elapsed, missing=missing)


def to_markdown(name: str, story: Story, *, quick: bool, elapsed_s: float) -> str:
    """The text of an experiment as a page."""
    about, sections = story.template, story.sections
    parts = [f"# {name}: {about.title}", f"{PAPERS[about.paper]}, {about.place}."]
    if quick:
        reduced = " ".join(sections[words.REDUCED])
        parts.append(f"**Reduced run** (`--quick`), a smoke test and no reproduction: {reduced}")
    parts += [f"![{name}]({name}.png)", "## The paper", *sections[words.PAPER]]
    if story.claims:
        parts.append(word_table(("The text", "Fares", "Found"), verdicts(story.claims)))
    for section in (words.HERE, words.MEASURED, words.REASONS):
        if sections[section]:
            parts += [f"## {section}", *sections[section]]
    command = f"coalloc reproduce {name}{' --quick' if quick else ''}"
    parts += [
        "## Data",
        f"`{command}` measured for {elapsed_s:.1f} s and wrote `{name}.csv`; `{provenance.RUNS}` "
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
