"""The time limit that Slurm is given for a part."""

from __future__ import annotations

import pytest

from coalloc.adapters.slurm.parsers.rules import parse_partitions
from coalloc.adapters.slurm.part_commands import minutes
from tests.support.part_specs import batch_spec


@pytest.mark.parametrize(
    ("own_s", "most_s", "expected"),
    [
        (30.0, None, (1, 1)),
        (60.0, None, (1, 2)),  # one that meets others: as little more as whole minutes allow
        (240.0, 300.0, (4, 5)),  # what a partition of five minutes takes, it gets
        (300.0, 300.0, (5, 5)),  # all of it: what comes before and after has to do without
        (301.0, 300.0, (6, 6)),  # Slurm says no, and not we
        (90.0, 60.0, (2, 2)),
    ],
)
def test_limit_is_the_users_and_little_more_where_parts_meet(
    own_s: float, most_s: float | None, expected: tuple[int, int]
) -> None:
    spec = batch_spec(site={"max_time_s": most_s}, grace_s=10.0)
    assert (minutes(spec, own_s), minutes(spec | {"size": 9}, own_s)) == expected


def test_partitions_limit_is_read() -> None:
    text = (
        "PartitionName=main Default=YES MaxTime=UNLIMITED State=UP\n"
        "PartitionName=short Default=NO MaxTime=1-00:05:00 State=UP\n"
    )
    assert [each.limits.time_s for each in parse_partitions(text)] == [None, 86700.0]
