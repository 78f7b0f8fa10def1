"""Readings of a real OAR cluster: states of nodes, local jobs, best effort."""

from __future__ import annotations

import time

import pytest

from coalloc.adapters.oar.reader import OarReader
from coalloc.adapters.oar.settings import read_settings
from coalloc.model.platform import NodeState
from coalloc.model.sites.reading import ClusterReading
from tests.testbeds.oar import OarTestbed
from tests.testbeds.oar_launches import another_user, settings_of


def reading_of(oar: OarTestbed) -> ClusterReading:
    settings = read_settings(settings_of(oar), "o")
    return OarReader(settings, oar.commands, frozenset).read()


def is_running(oar: OarTestbed, number: str) -> bool:
    return bool(oar.jobs().get(number, {}).get("state") == "Running")


def test_local_jobs_take_their_resources_until_their_walltime(oar: OarTestbed) -> None:
    number = oar.submit("{network_address='o1'}/resource_id=1,walltime=0:20:0")
    spare = oar.submit("/resource_id=3", "-t", "besteffort", account=another_user())
    oar.wait(lambda: is_running(oar, number) and is_running(oar, spare), "two jobs run")
    waits = oar.submit("/resource_id=4", account=another_user())
    reading = reading_of(oar)
    assert [(node.name, node.slots, node.state) for node in reading.nodes] == [
        ("o1", 2, NodeState.UP),
        ("o2", 2, NodeState.UP),
    ]
    (job,) = reading.running
    assert (job.id, dict(job.nodes), job.ours) == (f"o:{number}", {"o1": 1}, False)
    assert job.end - job.start == 1200.0
    assert abs(job.start - time.time()) < 120.0
    assert reading.waiting == 1, waits
    assert not reading.unknown
    oar.delete_all()
    oar.wait(oar.is_idle, "all is idle again")


@pytest.mark.parametrize(
    ("option", "back", "state", "reason"),
    [
        ("-s Absent", "-s Alive", NodeState.DOWN, "Absent"),
        ("--drain on", "--drain off", NodeState.DRAINING, "drain"),
    ],
)
def test_node_that_takes_no_jobs(
    oar: OarTestbed, option: str, back: str, state: NodeState, reason: str
) -> None:
    oar.run("oarnodesetting", "-h", "o2", *option.split())

    def second() -> tuple[NodeState, str]:
        node = next(node for node in reading_of(oar).nodes if node.name == "o2")
        return node.state, node.reason

    try:
        oar.wait(lambda: second() == (state, reason), f"o2 is {reason}")
    finally:
        oar.run("oarnodesetting", "-h", "o2", *back.split())
    oar.wait(lambda: second() == (NodeState.UP, ""), "o2 is back")
