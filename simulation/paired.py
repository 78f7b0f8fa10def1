"""Policies compared over pieces of a log and over seeds: ratios to the first, with intervals.

One replay is one draw. Here every policy replays the same pieces, each from an empty machine, and
with the same draws; ratios are taken piece by piece (`coalloc.simulation.online.compare`).
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from coalloc.model.errors import InputError
from coalloc.simulation.metrics import Metrics, measure
from coalloc.simulation.online.compare import compare, shown
from coalloc.simulation.reports import aligned
from coalloc.simulation.trace import Trace
from coalloc.simulation.workload import Workload, piece_of

LEAST_JOBS = 50
"""Of a piece; with fewer, most of it is the machine filling and emptying."""
FEWEST = 5
"""Pairs below which an interval says little."""
COLUMNS: Mapping[str, tuple[str, Callable[[Metrics], float]]] = {
    "wait_mean": ("mean wait", lambda m: m.mean_wait_s),
    "wait_p95": ("95th percentile", lambda m: m.p95_wait_s),
    "wait_max": ("longest wait", lambda m: m.max_wait_s),
    "slowdown_mean": ("mean slowdown", lambda m: m.mean_bounded_slowdown),
}
"""Figures that are compared: their names, and where they come from."""

Table = dict[str, dict[str, dict[str, Any]]]
"""Figures by pair, policy and column."""


def pieces(workload: Workload, count: int) -> Iterator[Workload]:
    """Cut a workload into so many equal pieces. Raises `InputError` if they are too small."""
    size = len(workload.jobs) // count
    if count > 1 and size < LEAST_JOBS:
        what = f"{len(workload.jobs)} jobs in {count} pieces are fewer than {LEAST_JOBS} in each"
        raise InputError("--pieces", what)
    for number in range(count):
        yield piece_of(workload.jobs, number * size, size, f"{workload.name}-{number + 1}")


def paired(
    workloads: Sequence[tuple[int, Workload]],
    policies: Sequence[str],
    replayed: Callable[[Workload, str, int], Trace],
) -> Table:
    """Replay each workload, with its seed, under each policy."""
    table: Table = {}
    for seed, workload in workloads:
        rows = table.setdefault(f"{workload.name}, seed {seed}", {})
        for policy in policies:
            metrics = measure(replayed(workload, policy, seed))
            rows[policy] = {name: figure(metrics) for name, (_, figure) in COLUMNS.items()}
    return table


def paired_table(table: Table, policies: Sequence[str]) -> str:
    """Ratios of each policy to the first one, for the eye."""
    base = policies[0]
    head = f"ratios to {base} over {len(table)} pairs: geometric mean (95 % interval)"
    cells = [["", *(label for label, _ in COLUMNS.values())]]
    for policy in policies[1:]:
        ratios = (compare(table, policy, base, column) for column in COLUMNS)
        cells.append([policy, *map(shown, ratios)])
    lines = [head, aligned(cells)]
    if len(table) < FEWEST:
        lines.append(f"with fewer than {FEWEST} pairs the intervals say little")
    return "\n".join(lines)


def write_pairs(table: Table, path: Path) -> None:
    """Write the figures as CSV, a row for each pair and policy."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("pair", "policy", *COLUMNS))
        for pair, rows in table.items():
            for policy, figures in rows.items():
                writer.writerow((pair, policy, *(f"{figures[name]:.6g}" for name in COLUMNS)))
