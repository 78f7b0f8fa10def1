"""OAR's commands: what they print as JSON, and how "out of reach" sounds.

Imports the standard library only, as the part's runner does.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, ClassVar

from coalloc.adapters.runner.command import Commands, UnreachableError

WAITS = frozenset({"Hold", "Waiting", "toLaunch", "Launching", "toAckReservation"})
ALIVE = WAITS | {"Running", "Suspended", "Resuming"}
"""States of a job whose processes may run, or will."""
ENDING = frozenset({"Finishing", "toError"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Oar(Commands):
    """One OAR cluster's commands."""

    unreachable: ClassVar[tuple[str, ...]] = (
        *("cannot connect to executor", "could not connect to the socket"),
        *("db connection error", "connection to server", "can't connect to"),
    )

    def rows(self, name: str, *words: str) -> dict[str, dict[str, Any]]:
        """Rows that a command prints as JSON, by their numbers. Raises `BatchError`."""
        said = self.run(name, "-J", *words)
        try:
            # It prints nothing where there are none.
            return {number: dict(row) for number, row in json.loads(said.strip() or "{}").items()}
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            raise UnreachableError(name, f"its answer is not understood: {error}") from error
