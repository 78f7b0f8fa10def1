"""The documents about all experiments, from the stored CSVs.

Beside the folder of the data stands a document in which ``<!-- results: all -->`` to
``<!-- end -->`` is a table of every experiment, and ``claims`` one of every claim. `FIGURES`, in
that folder, has ``sections``, one on each. So no figure in the documents can differ from the data
beside it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from coalloc.simulation.reproduce import words
from coalloc.simulation.reproduce.rows import Row
from coalloc.simulation.reproduce.words import Template, fill

sys.path.append(str(Path(__file__).resolve().parents[1]))  # where benchmarks/ lies
from benchmarks.papers.registry import (
    MODULES,
    facts_of,
    load,
    origins,
    stored_rows,
    template,
    word_table,
)

FIGURES = "figures.md"
MARKED = re.compile(r"(<!-- results: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def with_results(text: str, folder: Path) -> str:
    """Fill in the marked parts of a document, from the data, pictures and `FIGURES` of a folder.

    Raises `OSError` if an experiment has no data.
    """
    parts = {"all": _overview, "claims": _judged, "sections": _sections}
    stories = {name: stored_story(name, folder) for name in MODULES}
    runs = origins(folder)

    def fill_in(found: re.Match[str]) -> str:
        made = parts[found[2]](stories, runs, f"{folder.name}/{FIGURES}")
        return f"{found[1]}\n{made}\n\n{found[3]}"

    return MARKED.sub(fill_in, text)


def stored_story(name: str, folder: Path) -> Template:
    """An experiment, told from its stored data."""
    return fill(template(name), facts_of(load(name), stored_rows(name, folder), folder))


Stories = dict[str, Template]
Runs = Mapping[str, Row]


def _overview(stories: Stories, runs: Runs, figures: str) -> str:
    lines = [
        (
            _link(name, figures),
            f"{story.paper}, {story.place}",
            story.takes,
            story.headline,
        )
        for name, story in stories.items()
    ]
    return word_table(("Experiment", "Of", "Takes", "In one line"), lines)


def _judged(stories: Stories, runs: Runs, figures: str) -> str:
    lines = [
        (_link(name, figures), *line) for name, story in stories.items() for line in story.claims
    ]
    return word_table(("Of", "The text", "Fares", "Found"), lines)


def _sections(stories: Stories, runs: Runs, figures: str) -> str:
    """A section on each experiment; what an earlier one says, word by word, is not said again."""
    parts: list[str] = []
    said: dict[str, str] = {}
    for name, story in stories.items():
        about = story
        again: dict[str, None] = {}
        parts += [f"## {name}", f"![{name}]({name}.png)"]
        parts.append(f"*{told(runs[name])}*")
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


def told(run: Row) -> str:
    """One line of it as a sentence."""
    seed = f" with --seed {run['seed']}" if run["seed"] else ""
    spent = "" if run["cpu_s"] is None else f" in {run['cpu_s']:.3g} s of processor time"
    return f"Measured{spent}{seed} by {run['made_by']}."
