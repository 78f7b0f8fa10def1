"""Where Slurm gives a job that names no memory all of it."""

from __future__ import annotations

import pytest

from coalloc.adapters.slurm.parsers.text import gives_whole_memory


@pytest.mark.parametrize(
    ("select", "default", "expected"),
    [
        ("CR_CORE_MEMORY", "DefMemPerNode           = UNLIMITED", True),
        ("CR_CORE_MEMORY", "DefMemPerCPU            = 1000", False),
        ("CR_CORE_MEMORY", "DefMemPerNode           = 4000", False),
        ("CR_CORE", "DefMemPerNode           = UNLIMITED", False),  # memory is not counted
    ],
)
def test_memory_of_a_job_that_names_none(select: str, default: str, expected: bool) -> None:
    head = "Configuration data as of 2026-11-21T20:00:00"
    text = f"{head}\n{default}\nSelectTypeParameters    = {select}\n"
    assert gives_whole_memory(text) is expected
