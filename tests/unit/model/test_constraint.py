"""Which nodes a constraint of Slurm's lets a job have."""

from __future__ import annotations

import pytest

from coalloc.model.sites.constraint import admits


@pytest.mark.parametrize(
    ("constraint", "features", "is_admitted"),
    [
        ("fast&ib", ("fast", "ib"), True),
        ("fast&ib", ("fast",), False),
        ("fast|slow", ("slow",), True),
        ("(fast|slow)&ib", ("slow",), False),
        ("(fast|slow)&ib", ("slow", "ib"), True),
        ("[rack1|rack2]", ("rack2",), True),
        ("[rack1|rack2]", ("rack3",), False),
        ("fast*4&slow*2", ("slow",), True),
        ("fast*4&slow*2", ("ib",), False),
        ("!gpu", ("gpu",), False),
        ("!gpu", (), True),
        ("fast&", (), True),  # what cannot be read is Slurm's to refuse
        ("(", (), True),
        ("a)b", (), True),
    ],
)
def test_nodes_of_a_constraint(
    constraint: str, features: tuple[str, ...], is_admitted: bool
) -> None:
    assert admits(constraint, features) is is_admitted
