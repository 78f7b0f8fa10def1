"""What the configuration of Slurm says of jobs: memory that none names, places when put off."""

from __future__ import annotations

import pytest

from coalloc.adapters.slurm.parsers.text import gives_whole_memory, keeps_places


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


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("PriorityType = priority/basic", True),
        ("PriorityType = priority/multifactor\nPriorityWeightAge = 0", True),
        ("PriorityType = priority/multifactor\nPriorityWeightAge = 1000", False),
        ("PriorityFlags = ACCRUE_ALWAYS\nPriorityType = priority/multifactor\n"
         "PriorityWeightAge = 1000", True),
    ],
)  # fmt: skip
def test_place_of_a_job_that_is_put_off(words: str, expected: bool) -> None:
    assert keeps_places(f"Configuration data as of 2026-11-21T20:00:00\n{words}\n") is expected
