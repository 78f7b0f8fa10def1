"""Rows of a study: one for each replay, here or on a Dask cluster, kept as soon as it is known.

Notes
-----
The rows are lines of JSON in ``NAME.rows.jsonl`` of the output folder. What stands there is not
replayed again, unless that is asked for: an interrupted study goes on where it was. A row is known
by a digest of all that it depends on but the contents of the files that it names, and the program;
``made_by`` says which program it was. A replay that failed is a row without figures, and tried
again the next time. One study at a time writes a file.

Of several processes the first one has the kernels compiled; the others find them in the cache.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import threading
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import BrokenExecutor, Executor, as_completed
from contextlib import closing, contextmanager
from functools import lru_cache
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from coalloc.adapters.formats.platforms import Platform
from coalloc.model.errors import InputError
from coalloc.model.values import replace
from coalloc.policies.options import parse_options
from coalloc.policies.registry import lookup
from coalloc.simulation.made_by import made_by
from coalloc.simulation.progress import Report, silent
from coalloc.simulation.replay import Path as ReplayPath
from coalloc.simulation.replay import replay
from coalloc.simulation.reproduce.rows import Row, Rows
from coalloc.simulation.study.declared import Scenario, StudyFile
from coalloc.simulation.study.measures import FIGURES, figures
from coalloc.simulation.study.pieces import Piece, cut, stage
from coalloc.simulation.verify import verify
from coalloc.simulation.workload import Workload
from coalloc.workers import interrupts_held, workers

NAMED_BY = (
    *("piece", "log", "half", "scenario", "policy", "seed", "jobs_at_most", "work"),
    *("made_by", "failed"),
)
"""Columns of a row beside its figures."""
NO_DASK = "distributed is not installed: pip install '.[dask]' in a checkout of coalloc"
IN_USE = "another study is writing it; wait for it, or name another folder"
COMPILING, FIRST_JOBS = "loading, or compiling once", 20
"""Shown while the first process does that, by replays of so many jobs."""
CONNECT_S = 20.0
_ONE_AT_A_TIME = threading.Lock()
"""A worker of Dask may have several threads; replays share caches."""


class Cell(Struct, frozen=True, kw_only=True):
    """One replay of a study."""

    piece: Piece
    scenario: Scenario
    policy: str
    """With its options."""
    seed: int
    jobs: int | None
    work: int | None
    path: ReplayPath
    folder: str
    """Of the logs."""
    shapes: str

    @property
    def key(self) -> str:
        """A digest of what the row depends on."""
        scenario = replace(self.scenario, doc="", study="", against="")
        kept = replace(self, scenario=scenario, folder="")
        return sha256(msgspec.json.encode(kept)).hexdigest()[:20]


def cells_of(study: StudyFile, folder: Path) -> list[Cell]:
    """Every replay, in the order of the report. Raises `InputError`."""
    for policy in study.policies:
        read_policy(policy)
    pieces = [piece for log in study.logs.values() for piece in cut(log, study, folder)]
    if not pieces:
        raise InputError("--half", f"no piece of these logs belongs to {study.half}")
    return [
        Cell(
            piece=piece,
            scenario=scenario,
            policy=policy,
            seed=seed,
            jobs=study.jobs,
            work=study.work,
            path=study.path,
            folder=str(folder.absolute()),
            shapes=study.shapes,
        )
        for scenario in study.scenarios.values()
        for piece in pieces
        for seed in range(study.seed, study.seed + study.seeds)
        for policy in study.policies
    ]


def read_policy(text: str) -> tuple[str, dict[str, Any]]:
    """Read ``NAME`` or ``NAME:OPTION=VALUE:...``. Raises `InputError`."""
    name, *given = re.split(":(?=[a-z_0-9]+=)", text.strip())
    return name, parse_options(given, lookup(name).options, f"--policies {name}")


def carry_out(cell: Cell) -> Row:
    """Replay, check and measure; where that fails, a row that says why."""
    try:
        with _ONE_AT_A_TIME:
            return {**named(cell), **_figures(cell)}
    except Exception as error:
        return failed(cell, error)


def named(cell: Cell) -> Row:
    """The columns of a row that name it."""
    piece = cell.piece
    return {
        "key": cell.key,
        "piece": piece.name,
        "log": piece.log.name,
        "half": piece.half,
        "scenario": cell.scenario.name,
        "policy": cell.policy,
        "seed": cell.seed,
        "jobs_at_most": cell.jobs or piece.size,
        "work": cell.work,
        "made_by": made_by(),
    }


def failed(cell: Cell, error: BaseException) -> Row:
    """The row of a replay that failed."""
    kind = "" if isinstance(error, InputError) else f"{type(error).__name__}: "
    return {**named(cell), "failed": f"{kind}{error}".partition("\n")[0]}


def _figures(cell: Cell) -> Row:
    workload, platform = _staged(
        cell.piece, cell.scenario, Path(cell.folder), cell.jobs, cell.seed, cell.shapes
    )
    policy, options = read_policy(cell.policy)
    given = {"coallocation": cell.scenario.coallocation, **options}
    trace = replay(
        workload, platform, policy, given, path=cell.path, work=cell.work, seed=cell.seed
    )
    if faults := verify(trace):
        raise AssertionError(faults[0])
    return figures(trace)


@lru_cache(maxsize=2)
def _staged(*what: Any) -> tuple[Workload, Platform]:
    return stage(*what)


def gather(
    cells: Sequence[Cell],
    path: Path | None = None,
    *,
    processes: int = 1,
    dask: str = "",
    afresh: bool = False,
    on_progress: Report = silent,
) -> Rows:
    """The rows of all these replays, in their order; carried out are those not in the file yet.

    The file grows with each. `dask` is the address of a scheduler, in place of `processes` here.
    Done `afresh`, everything is replayed, and new rows are put in the place of the old ones.

    Raises `InputError`.
    """
    wanted = {cell.key: cell for cell in cells}
    with _alone(path):
        kept = read_rows(path)
        known = {key: row for key, row in kept.items() if not (afresh and key in wanted)}
        missing = [cell for key, cell in wanted.items() if key not in known]
        if path:
            # Written as it was understood, so that a line that was cut off is gone.
            whole = path.with_suffix(".new")
            whole.write_text("".join(map(_line, known.values())), encoding="utf-8")
            whole.replace(path)
        done = len(wanted) - len(missing)
        on_progress(COMPILING, done, len(wanted))
        with (
            (path or Path(os.devnull)).open("a", encoding="utf-8") as file,
            closing(_carried_out(missing, processes, dask)) as found,
        ):
            for row in found:
                known[row["key"]] = row
                print(_line(row), end="", file=file, flush=True)
                done += 1
                on_progress(f"{row['scenario']} {row['piece']} {row['policy']}", done, len(wanted))
    return Rows(known[key] for key in wanted)


@contextmanager
def _alone(path: Path | None) -> Iterator[None]:
    """Let no other study write the file meanwhile, where the file system has locks."""
    with (path.with_suffix(".lock") if path else Path(os.devnull)).open("w") as lock:
        try:
            if path:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if isinstance(error, BlockingIOError):
                raise InputError(str(path), IN_USE) from None
        try:
            yield
        except OSError as error:
            error.filename = error.filename or str(path)  # a full disk names no file
            raise


def _line(row: Row) -> str:
    return f"{json.dumps(row, allow_nan=False)}\n"


def read_rows(path: Path | None) -> dict[str, Row]:
    """The rows in a file by their keys; none if there is no file.

    Left out are a last line that was cut off, replays that failed, and rows without a key or some
    figure: they are of an earlier version.

    Raises `InputError`.
    """
    if path is None or not path.exists():
        return {}
    out: dict[str, Row] = {}
    lines = path.read_text(encoding="utf-8").split("\n")
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line) if line else {}
        except ValueError as error:
            if number == len(lines):
                continue
            raise InputError(f"{path}: line {number}", str(error)) from error
        if row.keys() >= {"key", *FIGURES}:
            out[row["key"]] = row
    return out


def _carried_out(cells: Sequence[Cell], processes: int, dask: str) -> Generator[Row, None, None]:
    """The rows as they come."""
    if not dask and min(processes, len(cells)) < 2:
        yield from map(carry_out, cells)
        return
    with _on_dask(dask) if dask else workers(min(processes, len(cells)), "--processes") as pool:
        if not dask:
            with interrupts_held():
                first = pool.submit(_load, cells)
            first.result()
        with interrupts_held():
            futures = {pool.submit(carry_out, cell): cell for cell in cells}
        for future in as_completed(futures):
            error = future.exception()
            if isinstance(error, BrokenExecutor):
                raise error
            yield failed(futures[future], error) if error else future.result()


def _load(cells: Sequence[Cell]) -> None:
    """Have compiled, or loaded, what the policies ask for, by the beginnings of some replays."""
    kinds: dict[Any, Cell] = {}
    for cell in cells:
        kinds.setdefault((cell.policy, cell.scenario.moldable > 0.0, cell.scenario.mix), cell)
    for cell in kinds.values():
        carry_out(replace(cell, jobs=FIRST_JOBS))


@contextmanager
def _on_dask(address: str) -> Iterator[Executor]:
    """Workers of a cluster, which have coalloc, and the logs under the same paths."""
    try:
        distributed = import_module("distributed")
    except ImportError:
        raise InputError("--dask", NO_DASK) from None
    try:
        client = distributed.Client(address, timeout=CONNECT_S, set_as_default=False)
    except (OSError, ValueError) as error:
        raise InputError("--dask", f"{address}: no scheduler answers ({error})") from error
    with client:
        yield client.get_executor(pure=False)
