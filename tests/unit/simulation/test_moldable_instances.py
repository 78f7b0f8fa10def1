"""The bi-criteria paper's instances: seeded, monotone, and as its section 4.2 describes them."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from benchmarks.papers.moldable_instances import FAMILIES, moldable_instance

from coalloc.model.jobs import MoldableJob
from coalloc.model.speedup import TableSpeedup


def jobs_of(family: str, jobs: int = 60, procs: int = 200, seed: int = 1) -> list[MoldableJob]:
    queue = moldable_instance(family, jobs, procs, seed).queue
    return [job for job in queue if isinstance(job, MoldableJob)]


@pytest.mark.parametrize("family", FAMILIES)
def test_times_fall_and_work_rises(family: str) -> None:
    for job in jobs_of(family):
        times = [job.speedup.time(n) for n in range(1, 201)]
        assert all(b <= a for a, b in pairwise(times))
        assert all((n + 1) * b >= n * a * (1 - 1e-9) for n, (a, b) in enumerate(pairwise(times), 1))


@pytest.mark.parametrize("family", FAMILIES)
def test_a_seed_gives_the_same_instance(family: str) -> None:
    assert moldable_instance(family, 5, 40, 3) == moldable_instance(family, 5, 40, 3)
    assert moldable_instance(family, 5, 40, 3) != moldable_instance(family, 5, 40, 4)


def test_speedups_are_those_the_text_describes() -> None:
    def speedup(family: str) -> float:
        return float(np.mean([j.speedup.time(1) / j.speedup.time(200) for j in jobs_of(family)]))

    assert 2.0 < speedup("weakly") < 4.0
    assert 50.0 < speedup("highly") < 80.0


def test_seven_in_ten_mixed_jobs_are_small() -> None:
    first = [job.speedup.time(1) for job in jobs_of("mixed", jobs=400)]
    assert all(time > 0 for time in first)
    assert 0.6 < float(np.mean(np.array(first) < 3.0)) < 0.85


def test_large_machines_have_ladders() -> None:
    job = jobs_of("highly", jobs=1, procs=10_000)[0]
    assert isinstance(job.speedup, TableSpeedup)
    assert len(job.speedup.procs) <= 50
    assert job.speedup.procs[-1] == 10_000


def test_an_unknown_family_is_named() -> None:
    with pytest.raises(ValueError, match="there is no family 'strong'; there are weakly, highly"):
        moldable_instance("strong", 1, 1, 1)
