"""Figures for Prometheus; off unless ``metrics_address`` is set."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from threading import Thread
from typing import Any

import prometheus_client as prometheus

from coalloc.core.effects import Record, RoundFinished
from coalloc.core.state import State

SOLVE_S = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
SKEW_S = (0.0001, 0.0003, 0.001, 0.002, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
COMMIT_S = (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)


class Metrics:
    """The daemon's figures, in a registry of its own."""

    def __init__(self) -> None:
        self.registry = registry = prometheus.CollectorRegistry()
        self._server: tuple[Any, Thread] | None = None
        self._faults: Counter[str] = Counter()
        self.rounds = prometheus.Counter(
            "coalloc_rounds", "Rounds finished.", ["policy", "status"], registry=registry
        )
        self.solve_s = prometheus.Histogram(
            "coalloc_solve_seconds",
            "Time to solve a round.",
            ["policy"],
            buckets=SOLVE_S,
            registry=registry,
        )
        self.gap = prometheus.Gauge(
            "coalloc_plan_gap_ratio", "(objective - bound) / bound, NaN: none.", registry=registry
        )
        self.jobs = prometheus.Gauge("coalloc_jobs", "Active jobs.", ["state"], registry=registry)
        self.stale = prometheus.Gauge(
            "coalloc_clusters_stale", "Clusters not read.", registry=registry
        )
        self.share_kept = prometheus.Gauge(
            "coalloc_share_nodes_kept",
            "Nodes kept from local jobs.",
            ["cluster"],
            registry=registry,
        )
        self.local_delay = prometheus.Gauge(
            "coalloc_local_delay_seconds",
            "Delay that kept nodes cause to local jobs, of the last hour.",
            ["cluster", "of"],
            registry=registry,
        )
        self.outbox = prometheus.Gauge(
            "coalloc_outbox_messages", "Orders not acknowledged.", ["cluster"], registry=registry
        )
        self.dropped = prometheus.Counter(
            "coalloc_messages_dropped",
            "Messages refused or not delivered.",
            ["reason"],
            registry=registry,
        )
        self.started = prometheus.Counter(
            "coalloc_jobs_started", "Jobs started.", registry=registry
        )
        self.coallocated = prometheus.Counter(
            "coalloc_jobs_coallocated", "Jobs started on several clusters.", registry=registry
        )
        self.idle_node_s = prometheus.Counter(
            "coalloc_idle_node_seconds",
            "Held by parts of jobs before their start, or in vain.",
            registry=registry,
        )
        self.skew_s = prometheus.Histogram(
            "coalloc_start_skew_seconds",
            "Between the first processes of a job's parts.",
            buckets=SKEW_S,
            registry=registry,
        )
        self.commit_s = prometheus.Histogram(
            "coalloc_store_commit_seconds", "A commit.", buckets=COMMIT_S, registry=registry
        )

    def recorded(self, event: Record) -> None:
        """Count an event of the stream."""
        self.idle_node_s.inc(event.fields.get("idle_node_s", 0.0))
        if event.kind != "job_started":
            return
        self.started.inc()
        skew_ms = event.fields.get("skew_ms")
        if skew_ms is not None:
            self.coallocated.inc()
            self.skew_s.observe(skew_ms / 1e3)

    def round_finished(self, effect: RoundFinished) -> None:
        """Count a round."""
        self.rounds.labels(effect.policy, effect.status).inc()
        self.solve_s.labels(effect.policy).observe(effect.solve_s)
        self.gap.set(float("nan") if effect.gap is None else effect.gap)
        self.stale.set(effect.stale)

    def sample(
        self, state: State, orders_waiting: Mapping[str, int], faults: Mapping[str, int]
    ) -> None:
        """Take over what is counted elsewhere.

        Parameters
        ----------
        orders_waiting : mapping of cluster to number
        faults : mapping of reason to number
            Since the start of the daemon.
        """
        self.jobs.labels("waiting").set(len(state.waiting))
        self.jobs.labels("placed").set(len(state.placed))
        for name, there in state.clusters.items():
            share = None if there.reading is None else there.reading.share
            if share is not None:
                self.share_kept.labels(name).set(share.kept)
                self.local_delay.labels(name, "mean").set(share.delay_mean_s)
                self.local_delay.labels(name, "max").set(share.delay_max_s)
        for cluster, count in orders_waiting.items():
            self.outbox.labels(cluster).set(count)
        for reason, count in faults.items():
            self.dropped.labels(reason).inc(count - self._faults[reason])
            self._faults[reason] = count

    def serve(self, address: str) -> int:
        """Answer Prometheus from a thread.

        Parameters
        ----------
        address : str
            ``host:port``; port 0 takes a free one.

        Returns
        -------
        int
            The port.

        Raises
        ------
        OSError
            The address is taken, or not of this machine.
        """
        host, _, port = address.rpartition(":")
        server, thread = prometheus.start_http_server(
            int(port), addr=host.strip("[]") or "127.0.0.1", registry=self.registry
        )
        self._server = (server, thread)
        return int(server.server_port)

    def close(self) -> None:
        """Stop answering; again is harmless."""
        if self._server:
            server, thread = self._server
            self._server = None
            server.shutdown()
            server.server_close()
            thread.join()
