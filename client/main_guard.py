"""The guard against scripts that would submit jobs again while a job imports them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

MESSAGE = """\
{what} was called while a job imports {source}.

A job imports the file of the function that it calls, and so runs what stands at its top: it would
submit jobs that do the same, without end. Put that part under the guard:

    if __name__ == "__main__":
        with Executor() as executor:
            ...
"""

_imported: list[str] = []
"""Files and modules that a job imports now, the outermost first."""


@contextmanager
def importing(source: str) -> Iterator[None]:
    """While a job imports this file or module, nothing is submitted."""
    _imported.append(source)
    try:
        yield
    finally:
        _imported.pop()


def refuse_while_importing(what: str) -> None:
    """Keep a script from submitting while a job imports it; the error names the guard."""
    if _imported:
        raise RuntimeError(MESSAGE.format(what=what, source=_imported[0]))
