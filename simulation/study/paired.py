"""``coalloc simulate --pieces --seeds``: the study of one log, with ratios to the first policy."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from coalloc.model.errors import InputError
from coalloc.model.values import replace
from coalloc.simulation.progress import Report
from coalloc.simulation.reports import aligned
from coalloc.simulation.reproduce.rows import Row, Rows, to_csv
from coalloc.simulation.study.declared import Log, Scenario, StudyFile
from coalloc.simulation.study.pieces import read_log
from coalloc.simulation.study.report import (
    FEWEST,
    SHOWN,
    SOME_WAIT_S,
    pairs_of,
    ratio_text,
    waiting,
)
from coalloc.simulation.study.rows import cells_of, gather

LEAST_JOBS = 50
"""Of a piece; with fewer, most of it is the machine filling and emptying."""
COLUMNS = ("wait_mean", "wait_p95", "wait_max", "slowdown_mean")
"""Figures that are compared."""


def paired_rows(args: argparse.Namespace, policies: Sequence[str], report: Report) -> Rows:
    """Replay pieces of the log of `coalloc simulate` under each policy, with each seed.

    Rows have the policy without its options. Raises `InputError` if pieces are too small.
    """
    log = Log(
        name="+".join(Path(path).name.partition(".")[0] for path in args.workload),
        files=tuple(args.workload),
        platform=args.platform,
        keep_clusters=args.keep_clusters,
        limit=args.limit,
    )
    scenario = Scenario(sigma=args.sigma, bandwidth=args.bandwidth)
    if args.moldable is not None:
        scenario = replace(scenario, moldable=args.moldable_share, speedup=args.moldable)
    here = Path()
    jobs = len(read_log(log, here).jobs)
    size = jobs // args.pieces
    if args.pieces > 1 and size < LEAST_JOBS:
        what = f"{jobs} jobs in {args.pieces} pieces are fewer than {LEAST_JOBS} in each"
        raise InputError("--pieces", what)
    study = StudyFile(
        policies=tuple(":".join([name, *args.set]) for name in policies),
        logs={log.name: replace(log, limit=size * args.pieces)},
        scenarios={"": scenario},
        piece_jobs=size,
        seed=args.seed,
        seeds=args.seeds,
        work=args.work,
        path=args.path,
    )
    rows = gather(cells_of(study, here), on_progress=report)
    return Rows({**row, "policy": row["policy"].partition(":")[0]} for row in rows)


def _pair(row: Row) -> str:
    return f"{row['piece']}, seed {row['seed']}"


def paired_json(rows: Rows) -> str:
    """Figures by pair, policy and column."""
    table: dict[str, dict[str, Mapping[str, float]]] = {}
    for row in rows:
        table.setdefault(_pair(row), {})[row["policy"]] = {name: row[name] for name in COLUMNS}
    return json.dumps(table, indent=1)


def paired_table(rows: Rows, policies: Sequence[str]) -> str:
    """Ratios of each policy to the first one, for the eye."""
    base, *others = policies
    bases = rows.where(policy=base)
    count = len(waiting(pairs_of(bases, [bases])))
    left = len(bases) - count
    lines = [f"ratios to {base} over {count} pairs: geometric mean (95 % interval)"]
    cells = [["", *(SHOWN[name] for name in COLUMNS)]]
    for policy in others:
        found = pairs_of(rows.where(policy=policy), [bases])
        cells.append([policy, *(ratio_text(found, name) for name in COLUMNS)])
    lines.append(aligned(cells))
    if left:
        lines.append(
            f"left out: {left} pairs whose mean wait under {base} is below {SOME_WAIT_S:g} s"
        )
    if count < FEWEST:
        lines.append(f"with fewer than {FEWEST} pairs the intervals say little")
    return "\n".join(lines)


def write_pairs(rows: Rows, path: Path) -> None:
    """Write the figures as CSV, a row for each pair and policy."""
    columns = dict.fromkeys(("pair", "policy", *COLUMNS), "")
    path.write_text(to_csv(columns, ({**row, "pair": _pair(row)} for row in rows)), "utf-8")
