"""Workflows that the daemon's core refuses, or spreads, when they are submitted."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import force_setattr

from coalloc.core.base.requests import Refused, Submit
from coalloc.model.sites.parts import Launch
from tests.support.core_site import patient, workflow


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        # Nothing says what b runs.
        (
            {"launch": Launch(argv=()), "commands": {"a": ("x",)}},
            "commands.b: is missing: nothing says what this task runs",
        ),
        # A command for nobody.
        ({"commands": {"z": ("x",)}}, "commands.z: there is no such task"),
        ({"retries": -1}, "retries: -1 is below 0"),
        ({"array": (1, 2)}, "array: a workflow cannot be an array"),
        ({"job": {"kind": "rigid", "procs": 1, "tasks": []}}, "job.tasks: unknown key"),
        ({"job": {"edges": [{"from": "a", "to": "x"}]}}, "there is no task 'x'"),
        (
            {"job": {"started": [{"task": "z", "clusters": ["a"], "end": 0.0}]}},
            "job.started: is set by the daemon",
        ),
    ],
)
def test_what_is_refused(fields: dict[str, Any], message: str) -> None:
    site = patient()
    answer = site.ask(workflow("t", "a b", **fields))
    assert isinstance(answer, Refused)
    assert message in answer.message
    assert not site.state.jobs


def test_a_task_wider_than_everything_is_refused_by_name() -> None:
    site = patient()
    tasks = [{"id": "a", "work": 1.0}, {"id": "wide", "work": 1.0, "min_procs": 9}]
    answer = site.ask(workflow("t", "a", job={"tasks": tasks}))
    assert isinstance(answer, Refused)
    assert answer.message == "task wide needs 9 processes; 4 slots exist"


@pytest.mark.parametrize(
    ("links", "comm", "edges", "message"),
    [
        pytest.param((1.0, 1.0), 1.0, 1.0, "", id="spread"),
        pytest.param((0.0, 1.0), 0.0, 0.0, "", id="nothing to send"),
        pytest.param(
            (0.0, 1.0),
            1.0,
            0.0,
            "task wide needs 3 processes, and no cluster has more than 2 suitable slots; "
            "links of 0 Gbit/s carry no part of it",
            id="cut off",
        ),
        pytest.param(
            (0.0, 1.0),
            0.0,
            1.0,
            "no clusters between which its data can move take all tasks that share them",
            id="its data are cut off",
        ),
    ],
)
def test_a_task_that_no_cluster_holds_is_spread_or_refused(
    links: tuple[float, float], comm: float, edges: float, message: str
) -> None:
    site = patient()
    for cluster, link in zip(site.state.clusters.values(), links, strict=True):
        force_setattr(cluster.settings, "link_gbps", link)
    wide = {"id": "wide", "work": 1.0, "min_procs": 3, "comm_gb": comm}
    tasks = [{"id": "a", "work": 1.0}, wide]
    moved = [{"from": "a", "to": "wide", "gb": edges}]
    answer = site.ask(workflow("t", "a wide", job={"tasks": tasks, "edges": moved}))
    assert (answer.message if isinstance(answer, Refused) else "") == message


def test_a_plain_submit_of_a_workflow_says_how_it_is_done() -> None:
    site = patient()
    fields = {"kind": "workflow", "tasks": [{"id": "a", "work": 1.0}]}
    answer = site.ask(Submit(token="t", job=fields, launch=Launch(argv=("x",))))
    assert isinstance(answer, Refused)
    assert "submit_workflow" in answer.message


def test_more_tasks_than_allowed() -> None:
    site = patient(max_tasks=2)
    answer = site.ask(workflow("t", "a b c"))
    assert isinstance(answer, Refused)
    assert answer.message == "job.tasks: 3 tasks, at most 2"
