"""Readings of recorded answers of OAR 2.5.9, and of what nobody has recorded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import convert

from coalloc.adapters.base import AdapterError
from coalloc.adapters.oar.commands import Oar
from coalloc.adapters.oar.part_job import CANCELLED, joint_state
from coalloc.adapters.oar.reader import Job, OarReader, Resource, reading
from coalloc.adapters.oar.settings import OarSettings, read_settings
from coalloc.adapters.runner.command import UnreachableError
from coalloc.model.platform import NodeState
from coalloc.model.sites.reading import ClusterReading

DATA = Path(__file__).resolve().parents[3] / "oar" / "data"
NODES: dict[str, Any] = json.loads((DATA / "2.5.9-nodes.json").read_text())
JOBS: dict[str, Any] = json.loads((DATA / "2.5.9-jobs.json").read_text())
OURS = "a" * 32
NOW = 4e9


def settings_with(**given: Any) -> OarSettings:
    return read_settings(given, "o")


def read(
    resources: dict[str, Any],
    jobs: dict[str, Any],
    claims: frozenset[str] = frozenset(),
    **given: Any,
) -> ClusterReading:
    return reading(
        settings_with(**given),
        {number: convert(row, Resource) for number, row in resources.items()},
        {number: convert(row, Job) for number, row in jobs.items()},
        claims,
        NOW,
    )


def test_nodes_and_jobs_as_recorded() -> None:
    found = read(NODES, JOBS, frozenset({OURS}))
    rows = {node.name: (node.slots, node.state, node.reason) for node in found.nodes}
    assert rows == {
        "o1": (2, NodeState.UP, ""),
        "o2": (1, NodeState.DOWN, "Absent"),
        "o3": (1, NodeState.DRAINING, "drain"),
        "o4": (1, NodeState.DOWN, "Dead"),
    }
    (job,) = found.running
    assert (dict(job.nodes), job.end - job.start) == ({"o1": 1}, 600.0)
    assert found.waiting == 1
    assert not found.unknown


def test_job_of_ours_that_no_part_knows_is_like_any_other() -> None:
    assert len(read(NODES, JOBS).running) == 2


def test_names_and_the_nodes_that_are_ours() -> None:
    found = read(NODES, JOBS, nodes="o[1,3]", qualified=True, power_by_node={"o1": 0.5})
    assert [(node.name, node.power, node.address) for node in found.nodes] == [
        ("o/o1", 0.5, "o1"),
        ("o/o3", 1.0, "o3"),
    ]
    assert all(set(job.nodes) == {"o/o1"} for job in found.running)
    with pytest.raises(AdapterError, match="no resource of type default on any node of ours"):
        read(NODES, JOBS, nodes="n9")


def changed(rows: dict[str, Any], number: str, **fields: Any) -> dict[str, Any]:
    return rows | {number: rows[number] | fields}


@pytest.mark.parametrize(
    ("fields", "slots", "state", "unknown"),
    [
        # a node is what its best resources are
        ({"state": "Suspected"}, 1, NodeState.UP, {}),
        ({"state": "Asleep"}, 1, NodeState.UP, {"state Asleep": 1}),
        # no node of a job's: a licence, and a name that no command may be given
        ({"type": "licence"}, 1, NodeState.UP, {}),
        ({"network_address": "o1' or '1"}, 1, NodeState.UP, {}),
        ({"network_address": None}, 1, NodeState.UP, {}),
    ],
)
def test_resources_that_take_no_jobs(
    fields: dict[str, Any], slots: int, state: NodeState, unknown: dict[str, int]
) -> None:
    found = read(changed(NODES, "1", **fields), {})
    node = next(node for node in found.nodes if node.name == "o1")
    assert (node.slots, node.state) == (slots, state)
    assert dict(found.unknown) == unknown


def test_unknown_state_alone_drains_a_node() -> None:
    nodes = changed(changed(NODES, "1", state="Asleep"), "2", state="Asleep")
    node = next(node for node in read(nodes, {}).nodes if node.name == "o1")
    assert (node.slots, node.state, node.reason) == (2, NodeState.DRAINING, "Asleep")


def test_each_resource_counts_once_and_best_effort_not_at_all() -> None:
    number = next(number for number, job in JOBS.items() if job["walltime"] == 600)
    job = JOBS[number] | {"assigned_resources": [1, 2, 2, 77]}
    found = read(NODES, {"8": job, "9": job | {"walltime": None}})
    (only,) = found.running
    assert (only.id, dict(only.nodes)) == ("o:9", {"o1": 2})
    assert not read(NODES, {"8": job | {"types": ["besteffort"]}}).running


class SaidOar(Oar):
    """Answers everything so."""

    def run(self, *words: Any, **options: Any) -> str:
        return self.bin_dir


@given(st.one_of(st.text(max_size=200), st.binary(max_size=50).map(repr)))
def test_noise_is_no_reading(text: str) -> None:
    reader = OarReader(settings_with(), SaidOar(bin_dir=text), frozenset)
    with pytest.raises(AdapterError):
        reader.read()


@given(st.text(max_size=200))
def test_no_name_makes_a_cluster_unreadable(name: str) -> None:
    assert read(NODES, {n: job | {"name": name} for n, job in JOBS.items()}).nodes


@pytest.mark.parametrize("text", ["3", "[1]", '{"1": 2}', "x", '{"1": "ab"}'])
def test_rows_that_are_none(text: str) -> None:
    with pytest.raises(UnreachableError, match="not understood"):
        SaidOar(bin_dir=text).rows("oarstat")


def row(state: str, *events: str) -> dict[str, Any]:
    return {"state": state, "events": [{"type": each, "description": each} for each in events]}


@pytest.mark.parametrize(
    ("rows", "state"),
    [
        ([row("Running"), row("Launching")], ("Launching", "")),
        ([row("Running"), row("Running")], ("Running", "")),
        ([row("Running"), row("Error", "EXIT_VALUE_OAREXEC")], ("Error", "EXIT_VALUE_OAREXEC")),
        # it is to be deleted, and runs for some seconds more
        ([row("Running", "FRAG_JOB_REQUEST", "SEND_KILL_JOB")], (CANCELLED, "FRAG_JOB_REQUEST")),
        ([row("Running"), {}], ("", "")),
        ([], ("", "")),
    ],
)
def test_state_of_several_jobs(rows: list[dict[str, Any]], state: tuple[str, str]) -> None:
    by_number = {str(n): each for n, each in enumerate(rows)}
    assert joint_state(by_number, by_number) == state
