"""Why a cluster or a node was drained: kept, over restarts too, and shown."""

from __future__ import annotations

from pathlib import Path

from coalloc.cli.nodes import cluster_line, node_lines
from coalloc.core.base.requests import Done, Drain, Resume
from coalloc.daemon.queries.job_views import cluster_rows, why
from coalloc.daemon.store.recall import recall
from coalloc.daemon.store.sqlite import Store
from coalloc.wire.node_rows import ClusterRow
from tests.support.core_site import Site


def shown(site: Site) -> dict[str, ClusterRow]:
    return {row.cluster: row for row in cluster_rows(site.state, site.now)}


def test_a_reason_is_shown_until_it_is_resumed() -> None:
    site = Site()
    assert isinstance(site.ask(Drain(target="a", reason="new\n switch"), operator=True), Done)
    site.ask(Drain(target="b1", reason="bad memory"), operator=True)
    rows = shown(site)
    assert (rows["a"].drained, rows["a"].drain_reason) == (True, "new switch")
    assert cluster_line(rows["a"])[-1] == "new switch"
    assert any(line[-1] == "b1 (bad memory)" for line in node_lines(rows["b"]))
    assert rows["b"].drain_reason == ""
    job = site.submit(4)
    facts = why(site.job(job), site.state, site.now).facts
    assert "not counted, because drained: a (new switch), b1 (bad memory)" in facts
    for target in ("a", "b1"):
        site.ask(Resume(target=target), operator=True)
    assert all(not row.drained and not row.drain_reason for row in shown(site).values())
    assert not any("drained" in f for f in why(site.job(job), site.state, site.now).facts)


def test_reasons_outlive_a_restart(tmp_path: Path) -> None:
    site = Site()
    site.ask(Drain(target="a", reason="new switch"), operator=True)
    site.ask(Drain(target="b1"), operator=True)
    store = Store(tmp_path / "s.db")
    try:
        store.commit(site.effects)
        assert recall(store, 10).remembered.maintenance.drained == {"a": "new switch", "b1": ""}
        remembered = recall(store, 10).remembered
        assert Site(remembered=remembered).state.clusters["a"].drained
    finally:
        store.close()
