"""The figures, as Prometheus reads them."""

from pathlib import Path
from urllib.request import urlopen

import coalloc
from coalloc.core.base.effects import AppendEvent, RoundFinished
from coalloc.core.base.events import Disconnected, Solved, SolveFailed, Ticked
from coalloc.daemon.monitoring.figures import Survey, cluster_figures, waiting_by_reason
from coalloc.daemon.monitoring.metrics import DaemonMetrics
from coalloc.model.event_kinds import EventKind
from coalloc.model.sites.reading import ShareUse
from coalloc.model.values import replace
from tests.support.core_site import Site, first_fit


def finished(gap: float | None) -> RoundFinished:
    return RoundFinished(policy="easy", status="heuristic", solve_s=0.2, gap=gap, stale=1)


def started(**fields: float | str) -> AppendEvent:
    return AppendEvent(seq=1, time=0.0, kind=EventKind.JOB_STARTED, job="1", fields=fields)


def read(port: int) -> dict[str, float]:
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as answer:
        lines = answer.read().decode().splitlines()
    pairs = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    return {name: float(value) for name, value in pairs}


def test_figures_are_served() -> None:
    metrics = DaemonMetrics()
    port = metrics.serve("127.0.0.1:0")
    metrics.round_finished(finished(gap=0.25), 7.0)
    site = Site({"a": 4, "b": 4}, solving=False)
    site.submit(2)
    metrics.sample(site.state, {"a": 2}, {"too_long": 1})
    metrics.sample(site.state, {"a": 5}, {"too_long": 3})
    metrics.recorded(started(skew_ms=1.5))
    metrics.recorded(started())
    metrics.recorded(replace(started(), kind=EventKind.JOB_ENDED))
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
    metrics = DaemonMetrics()
    site = Site({"a": 4, "b": 4}, solving=False)
    share = ShareUse(nodes=3, kept=2, delay_s=4.0)
    there = site.state.clusters["a"]
    assert there.reading is not None
    there.reading = replace(there.reading, share=share)
    metrics.sample(site.state, {}, {})
    metrics.recorded(started(idle_node_s=2.5))
    metrics.recorded(replace(started(idle_node_s=0.5), kind=EventKind.JOB_REQUEUED))
    figure = metrics.registry.get_sample_value
    assert figure("coalloc_idle_node_seconds_total") == 3.0
    assert figure("coalloc_share_nodes_kept", {"cluster": "a"}) == 2
    assert figure("coalloc_local_delay_seconds", {"cluster": "a"}) == 4.0
    assert figure("coalloc_share_nodes_kept", {"cluster": "b"}) is None


def test_two_registries_do_not_meet() -> None:
    first, second = DaemonMetrics(), DaemonMetrics()
    first.gauge["coalloc_clusters_stale"].set(1)
    assert second.registry.get_sample_value("coalloc_clusters_stale") == 0
    metrics = DaemonMetrics()
    metrics.round_finished(finished(gap=None), 7.0)
    value = metrics.registry.get_sample_value("coalloc_plan_gap_ratio")
    assert value is not None
    assert value != value


def test_events_of_rounds_are_counted_by_phase() -> None:
    metrics = DaemonMetrics()
    figure = metrics.registry.get_sample_value
    site = Site({"a": 2}, solving=False)
    site.submit()
    (solve,) = site.pending_solves
    metrics.handled(Ticked(), [solve], 0.02, failed=False)
    plan = Solved(round=1, plan=first_fit(solve.snapshot), solve_s=0.5)
    metrics.handled(plan, [], 0.01, failed=True)
    lost = SolveFailed(round=1, policy="easy", why="killed", solve_s=1.0)
    metrics.handled(lost, [solve], 0.01, failed=False)
    metrics.handled(lost, [], 0.01, failed=True)
    seconds = {
        phase: figure("coalloc_round_phase_seconds_sum", {"phase": phase})
        for phase in ("assemble", "solve", "commit")
    }
    assert seconds == {"assemble": 0.02, "solve": 0.5, "commit": 0.01}
    assert figure("coalloc_policy_failures_total", {"policy": "easy"}) == 2
    assert figure("coalloc_rounds_failed_total") == 1


def test_waits_and_slowdowns_of_whole_jobs() -> None:
    metrics = DaemonMetrics()
    figure = metrics.registry.get_sample_value
    site = Site({"a": 2})
    job = site.submit()
    record = replace(site.job(job), submitted=100.0, started=160.0, ended=180.0)
    metrics.recorded(started(), record)
    metrics.recorded(replace(started(state="failed"), kind=EventKind.JOB_ENDED), record)
    task = replace(record, flow="9")
    metrics.recorded(started(), task)
    metrics.recorded(replace(started(state="failed"), kind=EventKind.JOB_ENDED), task)
    assert figure("coalloc_job_wait_seconds_sum") == 60.0
    assert figure("coalloc_job_wait_seconds_count") == 1
    assert figure("coalloc_job_slowdown_sum") == 4.0
    assert figure("coalloc_jobs_ended_total", {"state": "failed"}) == 1
    assert figure("coalloc_jobs_ended_total", {"state": "lost"}) == 0, "is there before it moves"


def test_clusters_and_queue_as_surveyed() -> None:
    metrics = DaemonMetrics()
    figure = metrics.registry.get_sample_value
    site = Site({"a": 2, "b": 3}, slots=4)
    site.run(site.submit(3))
    site.submit(99, hold_infeasible=True)
    site.do(Disconnected(cluster="b"))
    found = Survey(
        time=site.now,
        clusters=cluster_figures(site.state, site.now),
        waiting=waiting_by_reason(site.state),
        solver_requests={"killed": 2},
        disk=(1000, 10),
    )
    metrics.survey(found)
    assert figure("coalloc_cluster_slots", {"cluster": "a"}) == 8
    assert figure("coalloc_cluster_slots_free", {"cluster": "a"}) == 5
    assert figure("coalloc_cluster_power", {"cluster": "a"}) == 8.0
    assert figure("coalloc_cluster_up", {"cluster": "b"}) == 0
    assert figure("coalloc_cluster_slots", {"cluster": "b"}) == 0
    assert figure("coalloc_jobs_waiting", {"reason": "held"}) == 1
    assert figure("coalloc_solver_requests_total", {"status": "killed"}) == 2
    assert figure("coalloc_disk_free_bytes") == 10
    metrics.survey(replace(found, clusters={"a": found.clusters["a"]}, waiting={}))
    assert figure("coalloc_cluster_up", {"cluster": "b"}) is None
    assert figure("coalloc_jobs_waiting", {"reason": "held"}) == 0
    assert figure("coalloc_solver_requests_total", {"status": "killed"}) == 2


def test_what_is_served_names_its_build() -> None:
    info = [f for f in DaemonMetrics().registry.collect() if f.name == "coalloc_build"]
    assert info[0].samples[0].labels["version"] == coalloc.__version__


def test_the_documentation_has_every_metric() -> None:
    page = Path(__file__).parents[3] / "docs" / "operations" / "health.md"
    text = page.read_text(encoding="utf-8")
    names = [family.name for family in DaemonMetrics().registry.collect()]
    missing = [name for name in names if name.startswith("coalloc_") and name not in text]
    assert not missing
