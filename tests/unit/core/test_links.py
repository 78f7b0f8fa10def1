"""A job that no split over the idle links could carry is refused at submit."""

from __future__ import annotations

from typing import Any

import pytest

from coalloc.core.base.events import Reconfigured
from coalloc.core.base.requests import Refused, Submit
from coalloc.core.rounds import snapshots
from coalloc.daemon.solver.planner import plainly
from coalloc.model.jobs import RigidJob
from coalloc.model.settings import ClusterConfig
from coalloc.model.sites.parts import Launch
from coalloc.model.values import replace
from tests.support.core_site import Site


def linked(**links: float) -> Site:
    site = Site(dict.fromkeys(links, 4), solving=False)
    clusters = tuple(ClusterConfig(name=n, link_gbps=gbps) for n, gbps in links.items())
    site.do(Reconfigured(settings=replace(site.settings, clusters=clusters)))
    return site


def refusal(site: Site, **job: Any) -> str:
    fields = {"kind": "rigid", "procs": 8, "base_time": 60.0, **job}
    answer = site.ask(Submit(token="t", job=fields, launch=Launch(argv=("work",))))
    return answer.message if isinstance(answer, Refused) else ""


@pytest.mark.parametrize(
    ("job", "refused"),
    [
        # 4 and 4: 0.5 * 4 * 4 / 7 = 1.14 Gbit/s on both links
        pytest.param({"proc_gbps": 0.5}, True, id="too much"),
        pytest.param({"proc_gbps": 0.43}, False, id="just carried"),
        pytest.param({"proc_gbps": 0.0}, False, id="silent"),
        pytest.param({"proc_gbps": 5.0, "procs": 4}, False, id="fits in one cluster"),
        pytest.param({"proc_gbps": 0.5, "procs": 5}, False, id="one process apart"),
    ],
)
def test_links_of_one_gbit(job: dict[str, Any], refused: bool) -> None:
    site = linked(a=1.0, b=1.0)
    words = refusal(site, **job)
    assert bool(words) is refused
    if refused:
        assert "no cluster has more than 4 suitable slots; at 0.5 Gbit/s each" in words
        assert "(a 1, b 1 Gbit/s)" in words


def test_the_round_would_say_the_same() -> None:
    for gbps in (0.1, 0.3, 0.42, 0.44, 0.6, 1.0, 2.0):
        for procs in range(3, 9):
            site = linked(a=1.0, b=0.5)
            job = RigidJob(id="1", procs=procs, base_time=60.0, proc_gbps=gbps)
            snapshot = replace(snapshots.snapshot(site.state, site.now), queue=(job,))
            never = any(d.reason == "infeasible" for d in plainly(snapshot).deferred)
            assert bool(refusal(site, procs=procs, proc_gbps=gbps)) is never


def test_an_unread_cluster_may_have_what_is_asked_for() -> None:
    site = linked(a=1.0, b=1.0)
    clusters = (*site.core.state.settings.clusters, ClusterConfig(name="c"))
    site.do(Reconfigured(settings=replace(site.settings, clusters=clusters)))
    assert refusal(site, proc_gbps=0.5) == ""


def test_moldable_jobs_are_judged_by_their_least() -> None:
    job = {"kind": "moldable", "times": [9.0] * 8}
    times = {"model": "amdahl", "time": 100.0, "parallel_fraction": 0.9}
    wide = {"kind": "moldable", "speedup": times, "min_procs": 8, "max_procs": 8, "proc_gbps": 0.5}
    site = linked(a=1.0, b=1.0)
    for body, refused in ((wide, True), ({**wide, "min_procs": 2}, False), (job, False)):
        answer = site.ask(Submit(token=str(body), job={**body}, launch=Launch(argv=("work",))))
        assert isinstance(answer, Refused) is refused
