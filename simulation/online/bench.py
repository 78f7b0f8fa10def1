"""Carry out replays, and keep the rows of those that are done.

Notes
-----
The rows are lines of JSON in ``rows.jsonl`` of the output folder, written as soon as each is known.
What stands there is not replayed again, unless that is asked for: an interrupted run goes on where
it was. A row is known by piece, number of jobs, scenario, policy with its options, and limit of
work; it does not know the version of the program.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

from coalloc.model.errors import InputError
from coalloc.policies.options import parse_options
from coalloc.policies.registry import lookup
from coalloc.simulation.online.measures import FIGURES, figures
from coalloc.simulation.online.pieces import PIECE_JOBS, Piece, Scenario, stage
from coalloc.simulation.progress import Report, silent
from coalloc.simulation.replay import replay
from coalloc.simulation.trace import Trace
from coalloc.simulation.verify import verify

Row = Mapping[str, Any]
Key = tuple[Any, ...]
"""Values of `KNOWN_BY` in a row."""
ROWS = "rows.jsonl"
KNOWN_BY = ("piece", "jobs_at_most", "scenario", "policy", "work")


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """A policy with options, as the command line names it: ``auto:patience=10:window=50``."""

    text: str
    policy: str
    options: Mapping[str, Any] = field(default_factory=dict)


def read_contender(text: str) -> Contender:
    """Read ``NAME`` or ``NAME:OPTION=VALUE:...``. Raises `InputError`."""
    name, *given = text.strip().split(":")
    options = parse_options(given, lookup(name).options, f"--policies {name}")
    return Contender(text=text.strip(), policy=name, options=options)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """Replays of the bench."""

    pieces: Sequence[Piece]
    scenarios: Sequence[Scenario]
    contenders: Sequence[Contender]
    data: Path
    """Folder of the logs."""
    jobs: int = PIECE_JOBS
    """Of each piece, at most."""
    work: int | None = None
    """Limit of work of each call of a search."""

    def draws(self) -> list[tuple[Key, Scenario, Piece, Contender]]:
        """Every replay with what its row is known by, in the order of replays."""
        return [
            ((piece.name, self.jobs, scenario.name, one.text, self.work), scenario, piece, one)
            for scenario in self.scenarios
            for piece in self.pieces
            for one in self.contenders
        ]


def key_of(row: Row) -> Key:
    """Key of a row."""
    return tuple(row[name] for name in KNOWN_BY)


def read_rows(path: Path) -> dict[Key, Row]:
    """The rows in a file by what they are known by; none if there is no file.

    A last line that was cut off is left out, and so are rows without some figure: they are of an
    earlier version.

    Raises `InputError`.
    """
    if not path.exists():
        return {}
    out: dict[Key, Row] = {}
    lines = path.read_text(encoding="utf-8").split("\n")
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line) if line else None
        except ValueError as error:
            if number == len(lines):
                continue
            raise InputError(f"{path}: line {number}", str(error)) from error
        if row is not None and row.keys() >= FIGURES.keys():
            out[key_of(row)] = row
    return out


def carry_out(
    bench: Bench,
    path: Path,
    *,
    afresh: bool = False,
    on_progress: Report = silent,
) -> list[Row]:
    """Replay what is not in the file yet, which grows; all rows, in order.

    Done `afresh`, everything is replayed, and new rows are put in the place of the old ones.

    Raises `InputError`, and `AssertionError` if the checker finds a replay impossible.
    """
    known, draws = read_rows(path), bench.draws()
    for key, *_ in draws if afresh else ():
        known.pop(key, None)
    # Written as it was understood, so that a line that was cut off is gone.
    path.write_text("".join(f"{_line(row)}\n" for row in known.values()), encoding="utf-8")
    missing = [draw for draw in draws if draw[0] not in known]
    done = len(draws) - len(missing)
    with path.open("a", encoding="utf-8") as file:
        for (scenario, piece), group in groupby(missing, lambda draw: draw[1:3]):
            for row in _of_piece(bench, scenario, piece, [draw[3] for draw in group]):
                known[key_of(row)] = row
                print(_line(row), file=file, flush=True)
                done += 1
                label = f"{row['scenario']} {row['piece']} {row['policy']}"
                on_progress(label, done, len(draws))
    return [known[key] for key, *_ in draws]


def _line(row: Row) -> str:
    return json.dumps(row, allow_nan=False)


def _of_piece(
    bench: Bench, scenario: Scenario, piece: Piece, contenders: Sequence[Contender]
) -> Iterator[Row]:
    workload, platform = stage(piece, scenario, bench.data, bench.jobs)

    def traced(policy: str, options: Mapping[str, Any]) -> Trace:
        given = {"coallocation": scenario.coallocation, **options}
        trace = replay(workload, platform, policy, given, work=bench.work)
        faults = verify(trace)
        if faults:
            raise AssertionError(f"{piece.name}, {scenario.name}, {policy}: {faults[0]}")
        return trace

    conservative = traced("conservative", {})
    for one in contenders:
        plain = one.policy == "conservative" and not one.options
        trace = conservative if plain else traced(one.policy, one.options)
        yield {
            "piece": piece.name,
            "jobs_at_most": bench.jobs,
            "scenario": scenario.name,
            "policy": one.text,
            "work": bench.work,
            "log": piece.log.name,
            "half": piece.half,
            **figures(trace, conservative),
        }
