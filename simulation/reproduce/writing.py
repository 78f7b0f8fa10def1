"""One experiment carried out: its rows, its text and its picture, as files."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from coalloc.simulation.reproduce import plots
from coalloc.simulation.reproduce.experiment import Experiment, Row, Run, Story
from coalloc.simulation.reproduce.registry import Entry
from coalloc.simulation.reproduce.rows import from_csv, table, to_csv


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """Files on disk now.

    Attributes
    ----------
    story : Story
    elapsed_s : float
        Wall time of the measurement, seconds.
    missing : str
        Why there is no picture; empty where there is one.
    """

    story: Story
    elapsed_s: float
    missing: str


def carry_out(entry: Entry, experiment: Experiment, run: Run, folder: Path) -> Written:
    """Measure, and write NAME.csv, NAME.md, NAME.png and NAME.pdf.

    Raises
    ------
    OSError
        With the file that could not be written.
    """
    began = time.monotonic()
    text = to_csv(experiment.columns, experiment.measure(run))
    elapsed = time.monotonic() - began
    (folder / f"{entry.name}.csv").write_text(text, encoding="utf-8")
    rows = from_csv(text)
    story = experiment.describe(rows)
    page = to_markdown(entry, experiment, story, quick=run.quick, elapsed_s=elapsed)
    (folder / f"{entry.name}.md").write_text(page, encoding="utf-8")
    return Written(
        story=story, elapsed_s=elapsed, missing=_draw(entry.name, experiment, rows, folder)
    )


def _draw(name: str, experiment: Experiment, rows: Sequence[Row], folder: Path) -> str:
    try:
        pictures = plots.render(lambda figure: experiment.draw(rows, figure), experiment.size)
    except plots.NoPlotsError as error:
        return str(error)
    for ending, content in pictures.items():
        (folder / f"{name}.{ending}").write_bytes(content)
    return ""


def to_markdown(
    entry: Entry, experiment: Experiment, story: Story, *, quick: bool, elapsed_s: float
) -> str:
    """The text of an experiment as a page."""
    parts = [f"# {entry.name}: {entry.doc}", f"{entry.paper}, {entry.figure}."]
    if quick:
        parts.append(f"**Reduced run** (`--quick`): {experiment.reduced}")
    parts += [f"![{entry.name}]({entry.name}.png)"]
    for title, paragraphs in (
        ("What the paper claims", story.claims),
        ("What we measured", story.measured),
        ("Why they differ", story.reasons),
    ):
        parts += [f"## {title}", *paragraphs]
    command = f"coalloc reproduce {entry.name}{' --quick' if quick else ''}"
    parts += [
        "## Data",
        f"`{command}` measured for {elapsed_s:.1f} s and wrote `{entry.name}.csv`:",
        table(("Column", "Holds"), experiment.columns.items()).replace("---:", "---"),
    ]
    return "\n\n".join(parts) + "\n"
