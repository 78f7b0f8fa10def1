"""Workflows of any tasks and edges: a submit is queued, or refused with what is wrong."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coalloc.core.base.events import Requested
from coalloc.core.base.requests import CommandAnswer, Done, SubmitWorkflow
from coalloc.model.formats.job_json import write_job
from coalloc.model.sites.parts import Launch
from tests.support.core_site import Site

NAMES = st.sampled_from(["a", "b", "c", "d", "é", ""])
NUMBERS = st.sampled_from([0, 1, 2, 0.5, 1.0, 2.0, -1, 1e18, 1e19, 10**30, True, None, "1", [1]])
COUNTS = st.sampled_from([0, 1, 2, 4, 2.0, 1.5, -1, 10**9, 10**9 + 1, True, None, "1"])
GOOD_TASK = st.fixed_dictionaries(
    {"id": st.sampled_from("abcdef"), "work": st.floats(0.0, 1e6)},
    optional={
        "parallel_fraction": st.floats(0.0, 1.0),
        "min_procs": st.integers(1, 2),
        "max_procs": st.integers(2, 4),
        "comm_gb": st.integers(0, 3),
    },
)
ANY_TASK = st.fixed_dictionaries(
    {},
    optional={
        "id": NAMES,
        "work": NUMBERS,
        "parallel_fraction": NUMBERS,
        "min_procs": COUNTS,
        "max_procs": COUNTS,
        "comm_gb": NUMBERS,
        "colour": NUMBERS,
    },
)
GOOD_EDGE = st.fixed_dictionaries(
    {"from": st.sampled_from("abc"), "to": st.sampled_from("bcd")},
    optional={"gb": st.integers(0, 3)},
)
ANY_EDGE = st.fixed_dictionaries({}, optional={"from": NAMES, "to": NAMES, "gb": NUMBERS})
ONE_OF_EACH = [{"id": name, "work": 1.0} for name in "abcd"]
TASKS: st.SearchStrategy[Any] = (
    st.just(ONE_OF_EACH)
    | st.lists(GOOD_TASK, max_size=5, unique_by=lambda task: task["id"])
    | st.lists(GOOD_TASK | ANY_TASK, max_size=3)
    | st.sampled_from([None, {}, "ab", 3, [3], [[]]])
)
EDGES: st.SearchStrategy[Any] = (
    st.lists(GOOD_EDGE, max_size=6)
    | st.lists(GOOD_EDGE | ANY_EDGE, max_size=3)
    | st.sampled_from([None, {}, "ab", [3]])
)


def submitted(job: dict[str, Any]) -> tuple[CommandAnswer, dict[str, Any]]:
    """The answer to a submit of a job, and what was queued."""
    site = Site(solving=False)
    command = SubmitWorkflow(token="t", job=job, launch=Launch(argv=("run",)))
    request = Requested(origin="o", user="u", uid=1, gid=1, operator=False, command=command)
    site.do(request)
    return site.answers[-1], {n: write_job(record.job) for n, record in site.state.jobs.items()}


@given(tasks=TASKS, edges=EDGES, extra=st.sampled_from([{}, {"weight": 2.0}, {"weight": -1.0}]))
def test_a_submit_is_queued_or_refused(tasks: Any, edges: Any, extra: dict[str, Any]) -> None:
    answer, jobs = submitted({"kind": "workflow", "tasks": tasks, "edges": edges, **extra})
    assert bool(jobs) is isinstance(answer, Done)


def test_a_task_has_at_least_as_many_processes_as_its_least() -> None:
    job = {
        "kind": "workflow",
        "tasks": [{"id": "a", "work": 3, "min_procs": 2}, {"id": "b", "work": 0.5}],
        "edges": [{"from": "a", "to": "b", "gb": 1}],
    }
    answer, jobs = submitted(job)
    assert isinstance(answer, Done)
    assert [(task["min_procs"], task["max_procs"]) for task in jobs["1"]["tasks"]] == [
        (2, 2),
        (1, 1),
    ]
    assert jobs["1"]["edges"] == [{"from": "a", "to": "b", "gb": 1.0}]


@pytest.mark.parametrize(
    ("tasks", "edges", "told"),
    [
        pytest.param("ab", "ba ab", "lies on or behind a cycle", id="a cycle"),
        pytest.param("ab", "ac", "there is no task 'c'", id="an end that is missing"),
        pytest.param("aba", "", "is used twice", id="a name twice"),
        pytest.param("ab", "ba", "", id="a child before its parent, which is in order"),
    ],
)
def test_what_is_wrong_with_the_whole_is_told(tasks: str, edges: str, told: str) -> None:
    job = {
        "kind": "workflow",
        "tasks": [{"id": name, "work": 1.0} for name in tasks],
        "edges": [{"from": edge[0], "to": edge[1]} for edge in edges.split()],
    }
    answer, jobs = submitted(job)
    assert isinstance(answer, Done) is (not told)
    assert told in getattr(answer, "message", "")
    assert bool(jobs) is (not told)
