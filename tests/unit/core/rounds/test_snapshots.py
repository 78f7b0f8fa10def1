"""Nodes in snapshots: made anew where anything they depend on has changed, and only there."""

from coalloc.core.base.events import Reconfigured, StatementReceived
from coalloc.core.base.messages import Read
from coalloc.core.base.requests import Drain, Resume
from coalloc.core.rounds.snapshots import snapshot
from coalloc.model.platform import Node, NodeState
from coalloc.model.values import replace
from tests.support.core_site import Site, reading
from tests.support.settings import core_settings


def nodes(site: Site, later: float = 0.0) -> tuple[Node, ...]:
    """Those of cluster a."""
    return snapshot(site.state, site.now + later).clusters[0].nodes


def test_nodes_stay_the_same_while_nothing_changes() -> None:
    site = Site(solving=False)
    first = nodes(site)
    site.submit(1)
    assert nodes(site, later=100.0) is first


def test_nodes_follow_readings_drains_and_settings() -> None:
    site = Site(solving=False)
    first = nodes(site)
    site.ask(Drain(target="a1"), operator=True)
    assert nodes(site)[0].state is NodeState.DRAINING
    site.ask(Resume(target="a1"), operator=True)
    assert nodes(site) == first
    site.ask(Drain(target="a"), operator=True)
    assert {node.state for node in nodes(site)} == {NodeState.DRAINING}
    site.ask(Resume(target="a"), operator=True)
    seen = reading("a", site.sizes["a"])
    weaker = replace(seen, nodes=tuple(replace(node, power=0.5) for node in seen.nodes))
    for _ in range(20):  # Powers are smoothed.
        site.do(StatementReceived(statement=Read(cluster="a", reading=weaker)))
    assert max(node.power for node in nodes(site)) < 0.6
    site.do(
        StatementReceived(statement=Read(cluster="a", reading=replace(seen, nodes=seen.nodes[:1])))
    )
    assert len(nodes(site)) == 1
    site.do(Reconfigured(settings=core_settings(site.settings, step=0.0)))
    assert nodes(site)[0].power > 0.0


def test_what_runs_ends_at_its_time_limit() -> None:
    """Also by a record that an earlier version has planned for longer."""
    site = Site()
    job = site.submit(1, job={"time_limit": 600.0})
    site.run(job)
    site.state.put(replace(site.job(job), planned=2400.0))
    (mine,) = snapshot(site.state, site.now).running
    assert mine.end - mine.start == 600.0
