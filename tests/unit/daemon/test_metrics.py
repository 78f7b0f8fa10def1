"""The figures, as Prometheus reads them."""

from dataclasses import replace
from urllib.request import urlopen

from coalloc.core.effects import Record, RoundFinished
from coalloc.daemon.metrics import Metrics
from coalloc.model.reading import ShareUse
from tests.support.core_site import Site


def finished(gap: float | None) -> RoundFinished:
    return RoundFinished(policy="easy", status="heuristic", solve_s=0.2, gap=gap, stale=1)


def started(**fields: float) -> Record:
    return Record(seq=1, time=0.0, kind="job_started", job="1", fields=fields)


def read(port: int) -> dict[str, float]:
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as answer:
        lines = answer.read().decode().splitlines()
    pairs = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    return {name: float(value) for name, value in pairs}


def test_figures_are_served() -> None:
    metrics = Metrics()
    port = metrics.serve("127.0.0.1:0")
    metrics.round_finished(finished(gap=0.25))
    site = Site({"a": 4, "b": 4}, solving=False)
    site.submit(2)
    metrics.sample(site.state, {"a": 2}, {"too_long": 1})
    metrics.sample(site.state, {"a": 5}, {"too_long": 3})
    metrics.recorded(started(skew_ms=1.5))
    metrics.recorded(started())
    metrics.recorded(replace(started(), kind="job_ended"))
    figures = read(port)
    assert figures['coalloc_rounds_total{policy="easy",status="heuristic"}'] == 1
    assert figures['coalloc_solve_seconds_bucket{le="0.3",policy="easy"}'] == 1
    assert figures['coalloc_solve_seconds_bucket{le="0.1",policy="easy"}'] == 0
    assert figures["coalloc_plan_gap_ratio"] == 0.25
    assert figures['coalloc_jobs{state="waiting"}'] == 1
    assert figures['coalloc_start_skew_seconds_bucket{le="0.002"}'] == 1
    assert figures['coalloc_messages_dropped_total{reason="too_long"}'] == 3
    assert figures['coalloc_outbox_messages{cluster="a"}'] == 5
    assert figures["coalloc_jobs_started_total"] == 2
    assert figures["coalloc_jobs_coallocated_total"] == 1
    assert figures["coalloc_clusters_stale"] == 1
    metrics.close()
    metrics.close()


def test_what_claims_cost_on_clusters_in_use_is_counted() -> None:
    metrics = Metrics()
    site = Site({"a": 4, "b": 4}, solving=False)
    share = ShareUse(nodes=3, kept=2, delay_mean_s=1.5, delay_max_s=4.0)
    there = site.state.clusters["a"]
    assert there.reading is not None
    there.reading = replace(there.reading, share=share)
    metrics.sample(site.state, {}, {})
    metrics.recorded(started(idle_node_s=2.5))
    metrics.recorded(replace(started(idle_node_s=0.5), kind="job_requeued"))
    figure = metrics.registry.get_sample_value
    assert figure("coalloc_idle_node_seconds_total") == 3.0
    assert figure("coalloc_share_nodes_kept", {"cluster": "a"}) == 2
    assert figure("coalloc_local_delay_seconds", {"cluster": "a", "of": "max"}) == 4.0
    assert figure("coalloc_share_nodes_kept", {"cluster": "b"}) is None


def test_two_registries_do_not_meet() -> None:
    first, second = Metrics(), Metrics()
    first.stale.set(1)
    assert second.registry.get_sample_value("coalloc_clusters_stale") == 0
    metrics = Metrics()
    metrics.round_finished(finished(gap=None))
    value = metrics.registry.get_sample_value("coalloc_plan_gap_ratio")
    assert value is not None
    assert value != value
