"""Words of an experiment: a Markdown template, filled in with what the rows say.

Notes
-----
A template begins with lines ``key: value``: *title*, *paper* (a key of `registry.PAPERS`), *place*
in it, *takes*, and *also* where other templates of the folder add to the sections. The sections
follow, each under a heading of `SECTIONS`. Placeholders are those of `str.format`, ``{name}`` or
``{name[key]:.3f}``; `shown` says how values look. A paragraph with ``{name:if}`` is left out where
the rows have nothing of that name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from statistics import fmean, geometric_mean, median
from string import Formatter
from typing import Any, NamedTuple

from coalloc.simulation.reproduce.plots import COLOURS, Look
from coalloc.simulation.reproduce.rows import Estimate, Rows, spread

HEADLINE, PAPER, HERE, CLAIMS, MEASURED, REASONS, REDUCED, SERIES, COLUMNS = SECTIONS = (
    *("Headline", "The paper", "Here", "Claims"),
    *("Measured", "Why they differ", "Reduced", "Series", "Columns"),
)
CLOSE = 0.05
"""Share by which a value may be off and still be close to what a paper's text says."""
ALMOST = 0.95
"""Share of the runs that is almost all."""
Facts = Mapping[str, Any]
"""Values of a template's placeholders, by name."""
NOTHING, ABSENT = "–", "\0"
"""An empty list; and what leaves a paragraph out."""
STATISTICS: Mapping[str, Callable[[list[Any]], float]] = {
    "mean": fmean,
    "median": median,
    "geomean": geometric_mean,
    "min": min,
    "max": max,
}
COUNTS: Mapping[str, Callable[[list[Any]], int]] = {"count": len, "sum": sum}
"""What a placeholder may ask of a list: `sum` counts the truths of a list of them."""


class Held(StrEnum):
    """Verdict on a claim."""

    YES = "reproduced"
    PARTLY = "in part"
    NO = "not reproduced"


def held_on(share: Estimate) -> Held:
    """Verdict on what a text says of all, by the share of the draws on which it holds.

    The whole interval has to lie at almost all, or where it does not hold, below a half.
    """
    return Held.YES if share.low >= ALMOST else Held.NO if share.high < 0.5 else Held.PARTLY


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """One template, with what another one adds; or such a one filled in."""

    title: str
    """One line."""
    paper: str
    """A key of `registry.PAPERS`."""
    place: str
    """Where in it, as a reader would look for it."""
    takes: str
    """Processor time of a full run, about; experiments of one study share it."""
    sections: Mapping[str, tuple[str, ...]]
    """Paragraphs and tables in Markdown."""

    @property
    def columns(self) -> dict[str, str]:
        """The CSV's columns and what they hold, with units."""
        return dict(self._lines(COLUMNS))

    @property
    def looks(self) -> dict[str, Look]:
        """The look of each series of the picture."""
        return {
            name: Look(colour=COLOURS[colour], marker=marker, label=label)
            for name, colour, marker, label in self._lines(SERIES)
        }

    @property
    def headline(self) -> str:
        """One line for the summary of all experiments."""
        return " ".join(self.sections[HEADLINE])

    @property
    def claims(self) -> list[Claim]:
        """The claims, judged; without those that a reduced run has no rows for."""
        return [
            Claim(held=Held(held), words=words, found=found)
            for held, words, found in self._lines(CLAIMS)
            if held != NOTHING
        ]

    def _lines(self, section: str) -> list[list[str]]:
        """Cells of a section's table, without its head."""
        return [line for part in self.sections[section] for line in cells(part)]


class Claim(NamedTuple):
    """One sentence of a paper, shortened; how it fares, and what was found."""

    words: str
    held: Held
    found: str


def read_template(path: Path) -> Template:
    """Read a template."""
    head, sections = _parts(path)
    for other in filter(None, head.get("also", "").split(", ")):
        _, more = _parts(path.with_name(f"{other}.md"))
        sections = {name: sections[name] + more[name] for name in SECTIONS}
    return Template(
        title=head["title"],
        paper=head["paper"],
        place=head["place"],
        takes=head.get("takes", ""),
        sections=sections,
    )


def _parts(path: Path) -> tuple[dict[str, str], dict[str, tuple[str, ...]]]:
    """Lines above the sections, and the paragraphs of each section."""
    head, *parts = f"\n{path.read_text(encoding='utf-8')}".split("\n## ")
    texts = {name: text for name, _, text in (part.partition("\n") for part in parts)}
    if odd := texts.keys() - set(SECTIONS):
        raise ValueError(f"{path.name}: there are no sections {', '.join(odd)}")
    pairs = (line.partition(": ") for line in head.split("\n"))
    sections = {name: paragraphs(texts.get(name, "")) for name in SECTIONS}
    return {key: value for key, _, value in pairs}, sections


def paragraphs(text: str) -> tuple[str, ...]:
    """The paragraphs of a text, each on one line; a table keeps its lines."""
    parts = filter(None, text.strip().split("\n\n"))
    return tuple(part if part.startswith("|") else part.replace("\n", " ") for part in parts)


def cells(table: str) -> list[list[str]]:
    """The cells of a table, line by line, without its head."""
    lines = table.strip().splitlines()[2:]
    return [line.removeprefix("| ").removesuffix(" |").split(" | ") for line in lines]


def fill(template: Template, facts: Facts) -> Template:
    """Put what the rows say in the place of the placeholders."""
    sections = {name: filled(parts, facts) for name, parts in template.sections.items()}
    return replace(template, sections=sections)


def filled(parts: Sequence[str], facts: Facts) -> tuple[str, ...]:
    """Paragraphs with their placeholders filled in, without those that come out empty."""
    texts = (_Filler().vformat(part, (), facts) for part in parts)
    return tuple(text for text in texts if text and ABSENT not in text)


class _Filler(Formatter):
    def format_field(self, value: Any, format_spec: str) -> str:
        return shown(value, format_spec)


def shown(value: Any, spec: str = "") -> str:
    """A value of a placeholder as text.

    A tuple is shown item by item, and a mapping as keys with their values, the keys as code where
    the format begins with a backtick. A percentage has a space before its sign, and as many digits
    as it needs where the format is ``%`` alone. A truth, or a list of truths, is a verdict. Of an
    estimate the interval follows in brackets.
    """
    if spec == "if":
        return "" if value else ABSENT
    match value:
        case bool():
            return Held.YES if value else Held.NO
        case Estimate(mean=mean, low=low, high=high):
            ends = f" ({shown(low, spec)} to {shown(high, spec)})" if low < high else ""
            return shown(mean, spec) + ends
        case list():
            return _sample(value, spec)
        case tuple():
            return ", ".join(shown(item, spec) for item in value)
        case dict():
            mark, spec = spec[: spec.startswith("`")], spec.removeprefix("`")
            return ", ".join(f"{mark}{key}{mark} {shown(v, spec)}" for key, v in value.items())
        case str():
            return value
    if spec == "%":
        return f"{100.0 * value:g} %"
    text = format(value, spec)
    return f"{text[:-1]} %" if spec.endswith("%") else text


def _sample(values: list[Any], spec: str) -> str:
    """A list of numbers, truths or rows.

    Numbers are shown as ``low to high``, or by the statistic before the format, as in ``max .2f``;
    of rows it names a column besides, as in ``median elapsed_s .2g`` or ``range gap .1%``. With
    ``<=2.5`` those up to a limit are counted.
    """
    if spec in COUNTS:
        return str(COUNTS[spec](values))
    if spec.startswith("<="):
        return str(sum(value <= float(spec[2:]) for value in values))
    if not values:
        return NOTHING
    if isinstance(values[0], bool):
        return Held.YES if all(values) else Held.PARTLY if any(values) else Held.NO
    name, *names, look = spec.split(" ") if " " in spec else ("range", spec)
    if names:
        values = Rows(values).column(names[0])
    if name == "range":
        return spread(values, lambda number: shown(number, look))
    return shown(STATISTICS[name](values), look)
