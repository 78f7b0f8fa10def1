"""The stored results of full runs, as sections of a document.

Between ``<!-- results: NAME -->`` and ``<!-- end -->`` stands what the CSV of that experiment says,
with ``all`` a table of every experiment, and with ``claims`` one of every claim. So no figure in
the document can differ from the data beside it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from coalloc.simulation.reproduce.claims import CLAIMS
from coalloc.simulation.reproduce.experiment import Row
from coalloc.simulation.reproduce.registry import ENTRIES, Entry, find, load
from coalloc.simulation.reproduce.rows import from_csv, table

MARKED = re.compile(r"(<!-- results: ([\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def with_results(text: str, folder: Path) -> str:
    """Fill in the marked parts of a document.

    Parameters
    ----------
    text : str
    folder : Path
        Holds NAME.csv and NAME.png of each experiment; the document stands beside it.

    Raises
    ------
    OSError
        If an experiment that is marked has no data.
    InputError
        If there is no such experiment.
    """

    def fill(found: re.Match[str]) -> str:
        tables = {"all": _overview, "claims": _judged}
        table_of = tables.get(found[2])
        part = table_of(folder) if table_of else _section(find(found[2]), folder)
        return f"{found[1]}\n{part}\n\n{found[3]}"

    return MARKED.sub(fill, text)


def _overview(folder: Path) -> str:
    lines = [
        (f"[`{entry.name}`](#{entry.name})", entry.figure, load(entry).describe(rows).headline)
        for entry in ENTRIES.values()
        if (rows := _rows(entry, folder))
    ]
    return table(("Experiment", "Of", "In one line"), lines).replace("---:", "---")


def _judged(folder: Path) -> str:
    rows = {claim.figure: _rows(find(claim.figure), folder) for claim in CLAIMS}
    lines = []
    for claim in CLAIMS:
        held, found = claim.judge(rows[claim.figure])
        lines.append((f"[`{claim.figure}`](#{claim.figure})", claim.words, str(held), found))
    return table(("Of", "The text", "Fares", "Found"), lines).replace("---:", "---")


def _section(entry: Entry, folder: Path) -> str:
    story = load(entry).describe(_rows(entry, folder))
    parts = [f"![{entry.name}]({folder.name}/{entry.name}.png)"]
    for title, paragraphs in (
        ("The paper", story.claims),
        ("Measured", story.measured),
        ("Why they differ", story.reasons),
    ):
        first, *others = paragraphs
        separator = "\n\n" if first.startswith("|") else " "
        parts += [f"**{title}.**{separator}{first}", *others]
    return "\n\n".join(parts)


def _rows(entry: Entry, folder: Path) -> Sequence[Row]:
    return from_csv((folder / f"{entry.name}.csv").read_text(encoding="utf-8"))
