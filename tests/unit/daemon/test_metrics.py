"""The figures, as Prometheus reads them."""

from urllib.request import urlopen

from coalloc.daemon.metrics import Metrics


def read(port: int) -> dict[str, float]:
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as answer:
        lines = answer.read().decode().splitlines()
    pairs = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    return {name: float(value) for name, value in pairs}


def test_figures_are_served() -> None:
    metrics = Metrics()
    port = metrics.serve("127.0.0.1:0")
    metrics.round_finished(policy="easy", status="heuristic", solve_s=0.2, gap=0.25)
    metrics.jobs.labels("pending").set(3)
    metrics.skew_s.observe(0.0015)
    metrics.dropped.labels("too_long").inc()
    figures = read(port)
    assert figures['coalloc_rounds_total{policy="easy",status="heuristic"}'] == 1
    assert figures['coalloc_solve_seconds_bucket{le="0.3",policy="easy"}'] == 1
    assert figures['coalloc_solve_seconds_bucket{le="0.1",policy="easy"}'] == 0
    assert figures["coalloc_plan_gap_ratio"] == 0.25
    assert figures['coalloc_jobs{state="pending"}'] == 3
    assert figures['coalloc_start_skew_seconds_bucket{le="0.002"}'] == 1
    assert figures['coalloc_messages_dropped_total{reason="too_long"}'] == 1
    metrics.close()
    metrics.close()


def test_two_registries_do_not_meet() -> None:
    first, second = Metrics(), Metrics()
    first.stale.set(1)
    assert second.registry.get_sample_value("coalloc_clusters_stale") == 0
    metrics = Metrics()
    metrics.round_finished(policy="easy", status="heuristic", solve_s=0.2, gap=None)
    value = metrics.registry.get_sample_value("coalloc_plan_gap_ratio")
    assert value is not None
    assert value != value
