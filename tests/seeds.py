"""Seeds of a property that draws its own cases: some for the quick suite, all for the slow one."""

from __future__ import annotations

import pytest
from _pytest.mark import ParameterSet

QUICK = 15


def seeds(count: int, quick: int = QUICK) -> list[ParameterSet]:
    """The parameters ``0 … count - 1``, those from `quick` on marked as slow."""
    return [
        pytest.param(seed, marks=[pytest.mark.slow] if seed >= quick else [])
        for seed in range(count)
    ]
