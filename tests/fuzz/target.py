"""One reader of strangers' bytes: what it may raise, how long it may take, what it may keep."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

SLOW_S = 2.0
"""Processor time of one input of at most `LONGEST_BYTES`."""
LARGE_MB = 200.0
"""What the process may grow by for one such input."""
LONGEST_BYTES = 1 << 16


class UnboundedError(AssertionError):
    """An input cost far more than its length."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A function from bytes with examples of what it reads.

    Attributes
    ----------
    allowed : tuple of exception types
        What it documents; anything else is a defect.
    seeds : callable
        Examples, most of them good ones.
    words : tuple of bytes
        What turns up in its grammar.
    """

    run: Callable[[bytes], object]
    allowed: tuple[type[BaseException], ...]
    seeds: Callable[[], Sequence[bytes]]
    words: tuple[bytes, ...] = ()

    def probe(self, content: bytes) -> bool:
        """Hand in one input; returns whether it was taken.

        Raises
        ------
        UnboundedError
            It took too long, or too much memory.
        Exception
            Whatever is not allowed.
        """
        began, peak = time.process_time(), _peak_mb()
        taken = True
        try:
            self.run(content)
        except self.allowed as error:
            taken = False
            if "\n" in str(error):
                raise AssertionError(f"the error is not one line: {error!r}") from error
        spent, grown = time.process_time() - began, _peak_mb() - peak
        if spent > SLOW_S:
            raise UnboundedError(f"{len(content)} bytes took {spent:.1f} s")
        if grown > LARGE_MB:
            raise UnboundedError(f"{len(content)} bytes took {grown:.0f} MB")
        return taken


def _peak_mb() -> float:
    # Not getrusage: what it says is inherited from whoever started this process.
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024.0
