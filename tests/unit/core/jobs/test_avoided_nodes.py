"""Nodes that refused a claim are left out for a while, for what asked for the same."""

from __future__ import annotations

import pytest

from coalloc.core.base.events import StatementReceived
from coalloc.core.base.messages import Prepare, Read
from coalloc.core.jobs.avoided_nodes import AVOIDED_S, KEPT_S
from coalloc.core.jobs.offers import Offers
from coalloc.model.plan import Plan
from coalloc.model.sites.parts import PartState
from coalloc.model.sites.reading import ShareUse
from coalloc.model.snapshot import Running, Snapshot
from coalloc.model.values import replace
from tests.support.core_site import Site, first_fit, reading


def by_features(snapshot: Snapshot) -> Plan:
    """First fit of the newest job, on the nodes that have its features."""
    queue = snapshot.queue[-1:]
    wanted = {feature for job in queue for feature in job.features}
    clusters = tuple(
        replace(
            cluster, nodes=tuple(node for node in cluster.nodes if wanted <= set(node.features))
        )
        for cluster in snapshot.clusters
    )
    return first_fit(replace(snapshot, clusters=clusters, queue=queue))


class Choosy(Site):
    plan_of = staticmethod(by_features)

    def tried(self, job: str) -> list[list[str]]:
        """The nodes of each attempt."""
        return [list(order.nodes) for _, order in self.orders_for(job, Prepare)]

    def refuse(self, job: str, reason: str = "nodes_taken") -> None:
        self.say(job, PartState.REFUSED, reason=reason, detail="busy")


def test_the_next_attempt_leaves_the_refused_node_out() -> None:
    site = Choosy({"a": 2})
    job = site.submit(1)
    site.refuse(job)
    site.wait(2.0)
    assert site.tried(job) == [["a1"], ["a2"]]


def test_another_job_of_the_same_shape_leaves_it_out_too_and_others_do_not() -> None:
    site = Choosy({"a": 2})
    job = site.submit(1)
    site.refuse(job)
    alike = site.submit(1, user="bob")
    assert site.tried(alike) == [["a2"]]
    other = site.submit(1, job={"memory_mb_per_proc": 100})
    assert site.tried(other) == [["a1"]]


def test_a_refused_node_is_tried_again_where_no_other_is_left() -> None:
    site = Choosy({"a": 1})
    job = site.submit(1)
    site.refuse(job)
    site.wait(2.0)
    assert site.tried(job) == [["a1"], ["a1"]]


@pytest.mark.parametrize(("kept", "after_s"), [(None, AVOIDED_S), (0, AVOIDED_S), (2, KEPT_S)])
def test_a_refused_node_is_tried_again_after_a_while(kept: int | None, after_s: float) -> None:
    """Sooner where nodes are kept for us."""
    site = Choosy({"a": 2})
    share = None if kept is None else ShareUse(nodes=2, slots=2, all_slots=2, kept=kept)
    seen = replace(reading("a", 2), share=share)
    site.do(StatementReceived(statement=Read(cluster="a", reading=seen)))
    job = site.submit(1)
    site.refuse(job)
    for later_s, is_avoided in ((0.0, True), (after_s - 1.0, True), (after_s, False)):
        offer = Offers(state=site.state, now=site.now + later_s, busy={}).of(site.job(job))
        assert bool(offer.mark) == is_avoided


def test_what_others_run_there_changes_and_the_node_is_tried_again() -> None:
    site = Choosy({"a": 2})
    work = Running(id="x", nodes={"a1": 1}, start=site.now, end=site.now + 9.0, ours=False)
    site.refuse(site.submit(1))
    for running in ((), (replace(work, nodes={"a2": 1}),), (work,)):
        seen = replace(reading("a", 2), running=running)
        site.do(StatementReceived(statement=Read(cluster="a", reading=seen)))
        assert bool(site.state.clusters["a"].refused) == (running != (work,))


def test_a_refusal_for_another_reason_says_nothing_of_the_nodes() -> None:
    site = Choosy({"a": 2})
    job = site.submit(1)
    site.refuse(job, reason="unreachable")
    site.wait(2.0)
    assert site.tried(job) == [["a1"], ["a1"]]
