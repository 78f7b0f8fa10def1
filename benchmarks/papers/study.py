"""Studies and the experiments that are read from them: measure rows, read them, draw them.

Notes
-----
The three steps are apart on purpose. A `Study` does the work; its rows are written as CSV and read
back, and `Experiment.facts` and `Experiment.draw` see nothing but those rows. So every number in a
text or picture can be computed again from the CSV beside it. The words are in a template
(`words`): what the paper did, what is done here, what it claims, and why both differ.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from coalloc.simulation.progress import Report, silent
from coalloc.simulation.reproduce import plots
from coalloc.simulation.reproduce.rows import Row, Rows
from coalloc.simulation.reproduce.words import Facts

Looks = Mapping[str, plots.Look]
"""The series of a picture, as its template has them."""


T = TypeVar("T")


@dataclass(kw_only=True)
class Run:
    """One call of the command, which experiments may share results in."""

    quick: bool = False
    """Do a reduced version."""
    seed: int = 0
    """Added to the seed of every generator; 0 gives the documented instances."""
    report: Report = silent
    """Progress."""
    spent: dict[str, float] = field(default_factory=dict)
    """Processor time of each study, seconds."""
    measured: dict[str, Rows] = field(default_factory=dict)
    """Rows of each study: several figures of a paper plot one."""

    def steps(self, label: str, items: Sequence[T]) -> Iterable[T]:
        """Iterate over a sequence and report each step."""
        for number, item in enumerate(items):
            self.report(label, number, len(items))
            yield item
        self.report(label, len(items), len(items))


def processor_time() -> float:
    """Of this process and its children that ended, seconds."""
    return sum(os.times()[:4])


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """Instances under policies, measured once in a run however many figures are read from it."""

    name: str
    measure: Callable[[Run], Iterable[Row]]

    def rows(self, run: Run) -> Rows:
        """All rows."""
        if self.name not in run.measured:
            began = processor_time()
            run.measured[self.name] = Rows(self.measure(run))
            run.spent[self.name] = processor_time() - began
        return run.measured[self.name]


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """One figure or table of a paper; the template of its name has the words."""

    study: Study
    facts: Callable[[Rows], Facts]
    """Values of the template's placeholders. A truth, or a list of them, is the verdict on a claim:
    reproduced where all hold, in part where some do."""
    draw: Callable[[Rows, plots.Figure, Looks], None]
    size: tuple[float, float]
    """Width and height of the picture, inches."""
    keep: Callable[[Row], bool] = lambda _: True
    """Which rows of the study it is made from."""
    beside: tuple[str, Callable[[Rows, Rows], Facts]] | None = None
    """Another experiment, and what both rows say; of the other there are none where its file is not
    in the folder."""

    def measure(self, run: Run) -> Rows:
        """The rows of the figure."""
        return self.study.rows(run).only(self.keep)


def alone(
    name: str,
    measure: Callable[[Run], Iterable[Row]],
    facts: Callable[[Rows], Facts],
    draw: Callable[[Rows, plots.Figure, Looks], None],
    size: tuple[float, float],
) -> Mapping[str, Experiment]:
    """The experiment of this name, with a study of its own."""
    study = Study(name=name, measure=measure)
    return {name: Experiment(study=study, facts=facts, draw=draw, size=size)}
