"""Pages of experiments: the files of one that was carried out, and two documents about all.

Beside the folder of the data stands a document in which ``<!-- results: all -->`` to
``<!-- end -->`` is a table of every experiment, and ``claims`` one of every claim. `FIGURES`, in
that folder, has ``sections``, one on each. All are made from the stored CSVs. So no figure in the
documents can differ from the data beside it.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from coalloc.simulation.reproduce import plots, provenance, words
from coalloc.simulation.reproduce.registry import MODULES, PAPERS, load, template
from coalloc.simulation.reproduce.rows import Row, Rows, from_csv, table, to_csv
from coalloc.simulation.reproduce.study import Experiment, Facts, Run
from coalloc.simulation.reproduce.words import Story, Template, fill, verdicts

FIGURES = "figures.md"
MARKED = re.compile(r"(<!-- results: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


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
    return Written(story=story, elapsed_s=elapsed, missing=_draw(name, experiment, rows, folder))


def _draw(name: str, experiment: Experiment, rows: Rows, folder: Path) -> str:
    try:
        pictures = plots.render(lambda figure: experiment.draw(rows, figure), experiment.size)
    except plots.NoPlotsError as error:
        return str(error)
    for ending, content in pictures.items():
        (folder / f"{name}.{ending}").write_bytes(content)
    return ""


def to_markdown(name: str, story: Story, *, quick: bool, elapsed_s: float) -> str:
    """The text of an experiment as a page."""
    about, sections = story.template, story.sections
    parts = [f"# {name}: {about.title}", f"{PAPERS[about.paper]}, {about.place}."]
    if quick:
        reduced = " ".join(sections[words.REDUCED])
        parts.append(f"**Reduced run** (`--quick`), a smoke test and no reproduction: {reduced}")
    parts += [f"![{name}]({name}.png)", "## The paper", *sections[words.PAPER]]
    if story.claims:
        parts.append(_table(("The text", "Fares", "Found"), verdicts(story.claims)))
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


def _table(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A table of words: nothing to the right."""
    return table(head, lines).replace("---:", "---")


def with_results(text: str, folder: Path) -> str:
    """Fill in the marked parts of a document, from the data, pictures and `FIGURES` of a folder.

    Raises `OSError` if an experiment has no data.
    """
    parts = {"all": _overview, "claims": _judged, "sections": _sections}
    stories = {name: stored_story(name, folder) for name in MODULES}
    runs = provenance.origins(folder)

    def fill_in(found: re.Match[str]) -> str:
        made = parts[found[2]](stories, runs, f"{folder.name}/{FIGURES}")
        return f"{found[1]}\n{made}\n\n{found[3]}"

    return MARKED.sub(fill_in, text)


def stored_story(name: str, folder: Path) -> Story:
    """An experiment, told from its stored data."""
    return fill(template(name), facts_of(load(name), _stored(name, folder), folder))


def facts_of(experiment: Experiment, rows: Rows, folder: Path) -> Facts:
    """Values of the placeholders, with what lies beside the rows in their folder."""
    facts = experiment.facts(rows)
    if not experiment.beside:
        return facts
    other, compared = experiment.beside
    known = (folder / f"{other}.csv").exists()
    return {**facts, **compared(rows, _stored(other, folder) if known else Rows())}


def _stored(name: str, folder: Path) -> Rows:
    return from_csv((folder / f"{name}.csv").read_text(encoding="utf-8"))


Stories = dict[str, Story]
Runs = Mapping[str, Row]


def _overview(stories: Stories, runs: Runs, figures: str) -> str:
    lines = [
        (
            _link(name, figures),
            f"{story.template.paper}, {story.template.place}",
            story.template.takes,
            story.headline,
        )
        for name, story in stories.items()
    ]
    return _table(("Experiment", "Of", "Takes", "In one line"), lines)


def _judged(stories: Stories, runs: Runs, figures: str) -> str:
    lines = [
        (_link(name, figures), *line)
        for name, story in stories.items()
        for line in verdicts(story.claims)
    ]
    return _table(("Of", "The text", "Fares", "Found"), lines)


def _sections(stories: Stories, runs: Runs, figures: str) -> str:
    """A section on each experiment; what an earlier one says, word by word, is not said again."""
    parts: list[str] = []
    said: dict[str, str] = {}
    for name, story in stories.items():
        about = story.template
        again: dict[str, None] = {}
        parts += [f"## {name}", f"![{name}]({name}.png)"]
        parts.append(f"*{provenance.told(runs[name])}*")
        for title, section in (
            (f"{about.paper}, {about.place}", words.PAPER),
            (words.HERE, words.HERE),
            (words.MEASURED, words.MEASURED),
            (words.REASONS, words.REASONS),
        ):
            paragraphs = story.sections[section]
            if section != words.MEASURED:
                known = {one: said.setdefault(one, name) for one in paragraphs}
                again |= {_link(first): None for first in known.values() if first != name}
                paragraphs = tuple(one for one, first in known.items() if first == name)
            parts += _titled(title, paragraphs)
        if again:
            parts.append(f"The rest is as said of {' and '.join(again)}.")
    return "\n\n".join(parts)


def _titled(title: str, paragraphs: Sequence[str]) -> list[str]:
    if not paragraphs:
        return []
    first, *others = paragraphs
    return [f"**{title}.**", *paragraphs] if first[0] == "|" else [f"**{title}.** {first}", *others]


def _link(name: str, page: str = "") -> str:
    return f"[`{name}`]({page}#{name})"
