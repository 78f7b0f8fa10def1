"""Figures for Prometheus; off unless ``metrics_address`` is set."""

from __future__ import annotations

from threading import Thread
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server

SOLVE_S = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
SKEW_S = (0.0001, 0.0003, 0.001, 0.002, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
COMMIT_S = (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)


class Metrics:
    """What the daemon counts, in a registry of its own."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self._server: tuple[Any, Thread] | None = None
        self.rounds = Counter(
            "coalloc_rounds", "Rounds finished.", ["policy", "status"], registry=registry
        )
        self.solve_s = Histogram(
            "coalloc_solve_seconds",
            "Time to solve a round.",
            ["policy"],
            buckets=SOLVE_S,
            registry=registry,
        )
        self.gap = Gauge(
            "coalloc_plan_gap_ratio", "(objective - bound) / bound, NaN: none.", registry=registry
        )
        self.jobs = Gauge("coalloc_jobs", "Active jobs.", ["state"], registry=registry)
        self.stale = Gauge("coalloc_clusters_stale", "Clusters not read.", registry=registry)
        self.outbox = Gauge(
            "coalloc_outbox_messages", "Orders not acknowledged.", ["cluster"], registry=registry
        )
        self.dropped = Counter(
            "coalloc_messages_dropped",
            "Messages refused or not delivered.",
            ["reason"],
            registry=registry,
        )
        self.started = Counter("coalloc_jobs_started", "Jobs started.", registry=registry)
        self.coallocated = Counter(
            "coalloc_jobs_coallocated", "Jobs started on several clusters.", registry=registry
        )
        self.skew_s = Histogram(
            "coalloc_start_skew_seconds",
            "Between the first processes of a job's parts.",
            buckets=SKEW_S,
            registry=registry,
        )
        self.commit_s = Histogram(
            "coalloc_store_commit_seconds", "A commit.", buckets=COMMIT_S, registry=registry
        )

    def round_finished(
        self, *, policy: str, status: str, solve_s: float, gap: float | None
    ) -> None:
        """Count a round."""
        self.rounds.labels(policy, status).inc()
        self.solve_s.labels(policy).observe(solve_s)
        self.gap.set(float("nan") if gap is None else gap)

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
        server, thread = start_http_server(
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
