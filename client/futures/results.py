"""From how a job of `coalloc.Executor` ended to what its future gives or raises."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, TypeVar

from coalloc.client.futures.calls import RESULT, CallOutcome, read_outcomes
from coalloc.client.futures.future import Finished, JobFailedError
from coalloc.model.output_names import filled
from coalloc.model.values import replace
from coalloc.wire.answers import EndedJob

T = TypeVar("T")

SHOWN_S = 10.0
"""How long a shared file system may take to show what a job wrote, seconds."""
LOOK_S = 0.05


def returned(
    ending: EndedJob, *, path: Path, output: Path, value: Callable[[list[CallOutcome]], T]
) -> T:
    """The value of a job that called a function; raises what the function raised.

    `value` makes it from outcomes. The file of the calls is removed, with the results and the
    output, when all went well.
    """
    match ending.state:
        case "completed":
            outcomes = _waited_for(path)
        case "failed":
            outcomes = _with_failure(path)
        case _:
            outcomes = None
    if outcomes is None:
        detail = ending.detail
        if ending.state == "completed":
            detail = f"its result cannot be read in {path.parent}"
        raise JobFailedError(ending.id, ending.state, ending.exit_code, detail, output)
    for left in path.parent.glob(f"{path.stem}.*json"):
        left.unlink(missing_ok=True)
    if not outcomes or not outcomes[-1].failed:
        output.unlink(missing_ok=True)
    return value(placed(outcomes, ending.id, output))


def placed(outcomes: list[CallOutcome], job: str, output: Path) -> list[CallOutcome]:
    """Outcomes whose failures say in which job they happened."""
    where = f"in job {job} (its output: {output})\n"
    return [replace(o, trace=where + o.trace) if o.failed else o for o in outcomes]


def _waited_for(path: Path) -> list[CallOutcome] | None:
    """The results of rank 0, when they can be seen here."""
    found = path.with_name(RESULT.format(stem=path.stem, rank=0))
    end = time.monotonic() + SHOWN_S
    while True:
        # Listing the folder makes a network file system look again.
        if found in path.parent.iterdir():
            try:
                return read_outcomes(found)
            except (OSError, ValueError):
                pass
        if time.monotonic() > end:
            return None
        time.sleep(LOOK_S)


def _with_failure(path: Path) -> list[CallOutcome] | None:
    """The results up to the first that failed, of the lowest rank that has one."""
    by_rank: list[tuple[int, list[CallOutcome]]] = []
    for found in path.parent.glob(RESULT.format(stem=path.stem, rank="*")):
        try:
            by_rank.append((int(found.stem.rpartition("-")[2]), read_outcomes(found)))
        except (OSError, ValueError):
            continue
    by_rank.sort(key=lambda pair: pair[0])
    failed = next((rows for _, rows in by_rank if rows and rows[-1].failed), None)
    if failed is None:
        return None
    first = by_rank[0][1]
    return [*first[: len(failed) - 1], failed[-1]]


def only(outcomes: list[CallOutcome]) -> Any:
    """The value of the one call; raises what it raised."""
    (outcome,) = outcomes
    if outcome.failed:
        raise outcome.exception()
    return outcome.value


def in_order(chunks: Sequence[Future[list[CallOutcome]]], end: float | None) -> Iterator[Any]:
    """The values of all calls in order; what is left is taken back where one raised.

    They have to be there at `end`, by the monotonic clock.
    """
    try:
        for chunk in chunks:
            left = None if end is None else max(0.0, end - time.monotonic())
            for outcome in chunk.result(left):
                if outcome.failed:
                    raise outcome.exception()
                yield outcome.value
    finally:
        for chunk in chunks:
            chunk.cancel()


def pattern(path: Path) -> str:
    """A path as a job's pattern of output files."""
    return str(path).replace("%", "%%")


def finished(ending: EndedJob, *, output: str) -> Finished:
    """End of a command by itself; `JobFailedError`: it was ended, lost, or never ran."""
    file = filled(output, {"j": ending.id, "%": "%"})
    if ending.state not in {"completed", "failed"} or ending.exit_code is None:
        raise JobFailedError(ending.id, ending.state, ending.exit_code, ending.detail, Path(file))
    return Finished(job=ending.id, exit_code=ending.exit_code, output=file, detail=ending.detail)
