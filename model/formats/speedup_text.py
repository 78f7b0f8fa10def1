"""Speed-up models as users write them, without their time."""

from __future__ import annotations

from typing import Any


def shape_of(text: str) -> dict[str, Any]:
    """A model without its time, as users write it: ``amdahl:0.95``, ``downey:A,SIGMA``.

    What is wrong is said by a `ValueError` of one sentence.
    """
    model, _, rest = text.partition(":")
    values = rest.split(",") if rest else []
    if model == "amdahl" and len(values) == 1:
        fraction = amount(rest)
        if fraction > 1.0:
            raise ValueError(f"{rest} is outside 0..1")
        return {"model": "amdahl", "parallel_fraction": fraction}
    if model == "downey" and len(values) == 2:
        return {"model": "downey", "A": amount(values[0]), "sigma": amount(values[1])}
    raise ValueError(f"{text!r} is neither amdahl:FRACTION nor downey:A,SIGMA")


def amount(text: str) -> float:
    """A finite number that is not negative; else a `ValueError` of one sentence."""
    try:
        value = float(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a number") from None
    if not 0.0 <= value < 1e18:
        raise ValueError(f"{text!r} is not a finite number of at least 0")
    return value
