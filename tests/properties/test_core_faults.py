"""Nothing lost, nothing twice: both cores under seeded faults."""

from __future__ import annotations

import pytest

from tests.faults import World


@pytest.mark.parametrize("block", range(10))
def test_promises_hold_under_faults_and_everything_ends_when_they_stop(block: int) -> None:
    for seed in range(block * 20, block * 20 + 20):
        world = World(seed)
        try:
            for _ in range(300):
                world.step()
            world.settle()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error


def test_without_faults_every_job_completes_at_its_first_attempt() -> None:
    world = World(1, faults=0.0)
    world.settle()
    assert {str(record.state) for record in world.disk.jobs.values()} == {"completed"}
    assert {record.attempt for record in world.disk.jobs.values()} == {1}
