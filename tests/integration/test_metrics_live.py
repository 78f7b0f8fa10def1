"""Every figure that is declared for Prometheus is fed."""

from __future__ import annotations

import re
import signal
import socket
from pathlib import Path
from urllib.request import urlopen

import pytest
import zmq

from coalloc.daemon.monitoring.metrics import DaemonMetrics
from tests.support.live_site import Running

Samples = dict[str, str]


OF_SLURM = {
    *("coalloc_share_nodes_kept", "coalloc_local_delay_seconds", "coalloc_idle_node_seconds"),
    "coalloc_moves",
}
"""Those that claims in a batch system's queue move (tests/unit/daemon)."""
OF_RULES = {
    *("coalloc_rule_cost_weighted_seconds", "coalloc_rule_cost_bound_weighted_seconds"),
    *("coalloc_rule_jobs_held", "coalloc_rule_costs_timestamp_seconds"),
}
"""Those of sites that have rules (tests/integration/test_rule_costs.py)."""
OF_TROUBLE = {
    *("coalloc_policy_failures", "coalloc_rounds_failed", "coalloc_solver_requests"),
    *("coalloc_notifications", "coalloc_cluster_jobs_waiting_there", "coalloc_cluster_drained"),
    *("coalloc_solver_warm", "coalloc_cluster_link_used_gbps"),
}
"""Those that stay at 0 while all goes well, or the policy needs no solver (tests/unit/daemon)."""


def declared() -> Samples:
    """Families and their samples before anything has happened."""
    return {
        family.name: " ".join(
            f"{s.name}{s.labels}={s.value}" for s in family.samples if is_fed(s.name)
        )
        for family in DaemonMetrics().registry.collect()
        if family.name not in OF_SLURM | OF_TROUBLE | OF_RULES
    }


def is_fed(name: str) -> bool:
    return not name.endswith("_created")


def served(port: int) -> Samples:
    """The same of a daemon."""
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as answer:
        text = answer.read().decode()
    found: Samples = {}
    for name in declared():
        series = rf"^{name}(?:_total|_count|_sum|_info)?(?:{{.*}})? .*$"
        lines = re.findall(series, text, re.MULTILINE)
        found[name] = " ".join(line for line in lines if not line.endswith(" 0.0"))
    return found


@pytest.mark.slow
def test_every_metric_moves(root: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with Running(root, warms=True, daemon=f'metrics_address = "127.0.0.1:{port}"') as site:
        moved: set[str] = set()

        def all_moved() -> bool:
            moved.update(name for name, values in served(port).items() if values)
            return moved == set(declared())

        with zmq.Context() as context, context.socket(zmq.DEALER) as stranger:
            stranger.linger = 0
            stranger.connect(site.endpoint)
            stranger.send(b"no JSON")
            site.until(lambda: bool(site.ask("status")["faults"]))
        assert site.wait(site.submit(["true"], 6))["state"] == "completed"
        # The second is told when it will start, and does.
        site.submit(["sleep", "1"], 8)
        waits = site.submit(["true"], 8)
        assert site.wait(waits)["state"] == "completed"
        # An order that nobody acknowledges waits in the outbox, and the cluster is stale.
        site.processes["beta"].send_signal(signal.SIGSTOP)
        site.submit(["true"], 6)
        site.until(lambda: bool(site.ask("status")["orders_waiting"].get("beta")))
        site.ask("round_now")
        site.until(lambda: all_moved() or "coalloc_outbox_messages" in moved)
        site.processes["beta"].send_signal(signal.SIGKILL)
        site.until(lambda: bool(site.ask("round_now")) and all_moved())
