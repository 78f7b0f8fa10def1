"""Program of a job of `coalloc.Executor`: ``python -m coalloc.client.futures.call_runner FILE``.

Carries out the calls of the file in order, up to the first that raises. Every process of the job
does so; rank 0 leaves the results beside the file, and any rank leaves what it raised. Where the
file is a worker's, it serves (`coalloc.client.futures.serving`).
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from coalloc.client.futures.calls import (
    RESULT,
    CallOutcome,
    NotCallableThereError,
    as_json,
    load_function,
    outcomes_text,
)

RAISED = 1
"""Exit code where a call raised."""


def outcomes(body: Mapping[str, Any]) -> Iterator[CallOutcome]:
    """The calls' outcomes, up to the first that failed."""
    try:
        function = load_function(body)
    except Exception as error:
        yield failure(error)
        return
    for arguments, keywords in body["calls"]:
        try:
            value = function(*arguments, **keywords)
            yield CallOutcome(value=as_json(value, f"the result of {body['function']}"))
        except Exception as error:
            yield failure(error)
            return


def failure(error: Exception) -> CallOutcome:
    """An exception as another process can be told of it."""
    try:
        arguments = tuple(as_json(list(error.args), "arguments"))
    except NotCallableThereError:
        arguments = (str(error),)
    kind = type(error)
    name = kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"
    return CallOutcome(
        kind=name,
        message=str(error),
        trace="".join(traceback.format_exception(error)),
        arguments=arguments,
    )


def main(path: Path, rank: int) -> int:
    """Carry out the calls of a file; returns the exit code."""
    body = json.loads(path.read_text(encoding="utf-8"))
    done = list(outcomes(body))
    failed = done[-1].failed if done else False
    if failed:
        sys.stderr.write(done[-1].trace)
    if failed or rank == 0:
        write(path, rank, done)
    return RAISED if failed else 0


def write(path: Path, rank: int, done: list[CallOutcome]) -> None:
    """Leave the results beside the calls, whole or not at all."""
    target = path.with_name(RESULT.format(stem=path.stem, rank=rank))
    partial = target.with_suffix(".part")
    partial.write_text(outcomes_text(done), encoding="utf-8")
    os.replace(partial, target)


if __name__ == "__main__":
    given = Path(sys.argv[1])
    if not given.suffix:
        from coalloc.client.futures.serving import serve

        sys.exit(serve(given))
    sys.exit(main(given, int(os.environ.get("COALLOC_RANK", "0"))))
