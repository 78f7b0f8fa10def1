"""Nothing lost, nothing twice: both cores under seeded faults."""

from __future__ import annotations

import pytest

from tests.faults import World
from tests.faults_flows import FlowWorld
from tests.faults_handed import HandedWorld


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


@pytest.mark.parametrize("block", range(3))
def test_handed_jobs_run_once_and_end_on_both_sides(block: int) -> None:
    for seed in range(block * 12, block * 12 + 12):
        world = HandedWorld(seed)
        try:
            for _ in range(300):
                world.step()
            world.settle()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error


def test_without_faults_every_handed_job_completes() -> None:
    world = HandedWorld(1, faults=0.0)
    world.settle()
    states = {job.state for there in world.foreign.values() for job in there.values()}
    assert states == {"completed"}
    assert {str(record.state) for record in world.disk.jobs.values()} == {"completed"}


@pytest.mark.parametrize("block", range(4))
def test_tasks_run_once_and_after_those_they_need(block: int) -> None:
    for seed in range(block * 10, block * 10 + 10):
        world = FlowWorld(seed)
        try:
            for _ in range(300):
                world.step()
            world.settle()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error


def test_without_faults_every_workflow_whose_tasks_succeed_completes() -> None:
    world = FlowWorld(1, faults=0.0)
    world.settle()
    failed = {r.flow for r in world.disk.jobs.values() if r.flow and r.exit_code}
    flows = {r.flow for r in world.disk.jobs.values() if r.flow}
    assert failed
    assert flows - failed
    for flow in flows:
        expected = "failed" if flow in failed else "completed"
        assert str(world.disk.jobs[flow].state) == expected
