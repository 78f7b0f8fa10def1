"""Experiments: measure rows, tell what they say, draw them.

Notes
-----
The three steps are apart on purpose. `Experiment.measure` does the work; what it yields is
written as CSV and read back, and `Experiment.describe` and `Experiment.draw` see nothing but
those rows. So every number in a text or picture can be computed again from the CSV beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from coalloc.model.errors import InputError

if TYPE_CHECKING:
    from coalloc.simulation.reproduce.plots import Figure

Row = Mapping[str, Any]
"""One line of a CSV: text, numbers, and None where a cell is empty."""


class NoDataError(InputError):
    """A file that an experiment reads is absent; the message says where it was looked for."""


Report = Callable[[str, int, int], None]
"""Receives what is being done, how many steps are done, and of how many."""

T = TypeVar("T")


def silent(label: str, done: int, total: int) -> None:
    """Report to nobody."""


@dataclass(kw_only=True)
class Run:
    """One call of the command, which experiments may share results in.

    Attributes
    ----------
    quick : bool
        Do a reduced version.
    seed : int
        Added to the seed of every generator; 0 gives the documented instances.
    report : callable
        Progress.
    """

    quick: bool = False
    seed: int = 0
    report: Report = silent
    _shared: dict[Hashable, Any] = field(default_factory=dict)

    def share(self, key: Hashable, make: Callable[[], T]) -> T:
        """Make a value once per run; several figures of a paper plot one study."""
        if key not in self._shared:
            self._shared[key] = make()
        value: T = self._shared[key]
        return value

    def steps(self, label: str, items: Sequence[T]) -> Iterable[T]:
        """Iterate over a sequence and report each step."""
        for number, item in enumerate(items):
            self.report(label, number, len(items))
            yield item
        self.report(label, len(items), len(items))


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """Text about the rows, in Markdown.

    Attributes
    ----------
    headline : str
        One line for the summary of all experiments.
    claims : tuple of str
        What the paper says of this figure.
    measured : tuple of str
        Paragraphs and tables; every figure in them is computed from the rows.
    reasons : tuple of str
        Why both differ, or that they do not.
    """

    headline: str
    claims: tuple[str, ...]
    measured: tuple[str, ...]
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """One figure of a paper.

    Attributes
    ----------
    columns : mapping of str to str
        The CSV's columns and what they hold, with units.
    reduced : str
        What ``--quick`` leaves out, one sentence.
    size : pair of float
        Width and height of the picture, inches.
    """

    columns: Mapping[str, str]
    reduced: str
    size: tuple[float, float]
    measure: Callable[[Run], Iterable[Row]]
    describe: Callable[[Sequence[Row]], Story]
    draw: Callable[[Sequence[Row], Figure], None]
