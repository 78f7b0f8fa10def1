"""Jobs of a kind are drafted by one look-up, and each comes out as if it were alone."""

from typing import Any

import pytest

from coalloc.policies.kernel.instance.intake import Intake, read_queue
from tests.unit.policies.kernel.kernel_case import case, cluster, rigid

USUAL = {"procs": 6, "base_time": 10.0, "proc_gbps": 0.01}


def read(*jobs: dict[str, Any]) -> Intake:
    small = cluster("b", 4, 2.0, features=["x"], memory_mb=1000)
    queue = [rigid(number, **{**USUAL, **job}) for number, job in enumerate(jobs)]
    return read_queue(case([cluster("a", 4, 1.0), small], queue), {})


@pytest.mark.parametrize(
    "change",
    [
        {"procs": 9},  # more than there is
        {"proc_gbps": 5.0},  # no link carries it
        {"one_cluster": True},
        {"clusters": ["a"]},
        {"features": ["x"]},
        {"memory_mb_per_proc": 2000},  # not on b
        {"base_time": 20.0},
        {"sigma": 0.5},
        {"time_limit": 5.0},
        {"earliest": 7.0},
    ],
    ids=str,
)
def test_a_job_is_drafted_as_if_no_other_were_there(change: dict[str, Any]) -> None:
    both, first, second = read({}, change, {}), read({}), read(change)
    assert first.items, "so the others may be taken for its like"
    like, last = both.items[0], both.items[-1]
    assert (like.modes, like.splits) == (last.modes, last.splits) == (first.items[0].modes, True)
    assert [d.reason for d in both.deferred] == [d.reason for d in second.deferred]
    for own in second.items:
        found = both.items[1]
        for name in ("modes", "splits", "proc_gbps", "release", "waits"):
            assert getattr(found, name) == getattr(own, name)
        assert both.groups[found.group].need == second.groups[own.group].need
