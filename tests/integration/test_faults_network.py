"""Wires that lose, delay, repeat and reorder messages, or are cut and mended."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.live_site import Running
from tests.support.loads import Load
from tests.support.wire_proxy import Faults, WireProxy

START = "prepare_timeout_s = 5.0\nlease_s = 6.0\nbackoff_first_s = 0.1\nbackoff_max_s = 1.0"
BAD = Faults(drop=0.1, repeat=0.1, late=0.2, delay_s=0.5)


class Proxied(Running):
    """Executors and clients reach the daemon through a proxy each."""

    def __init__(self, root: Path) -> None:
        super().__init__(root, start=START)
        (root / "run").mkdir()
        self.wire = WireProxy(f"ipc://{root}/e.sock", f"ipc://{root}/run/executors.sock", seed=1)
        self.line = WireProxy(f"ipc://{root}/c.sock", self.endpoint, seed=3)
        self.elsewhere = root / "executors.toml"
        text = self.config.read_text()
        there = f'[daemon]\nexecutor_endpoint = "ipc://{root}/e.sock"'
        self.elsewhere.write_text(text.replace("[daemon]", there, 1))

    def start_executor(self, cluster: str) -> None:
        arguments = ["--config", str(self.elsewhere), "--cluster", cluster]
        self._start(cluster, "executor.main", arguments)

    def stop(self) -> None:
        super().stop()
        self.wire.close()
        self.line.close()


@pytest.fixture
def site(root: Path) -> Iterator[Proxied]:
    with Proxied(root) as site:
        yield site


@pytest.mark.slow
def test_a_bad_network_loses_no_job_and_starts_none_twice(site: Proxied) -> None:
    site.wire.faults = site.line.faults = BAD
    load = Load(site, endpoint=f"ipc://{site.root}/c.sock", timeout_s=0.7, pause_s=0.02)
    load.start()
    load.await_more(150)
    load.end()
    for proxy in (site.wire, site.line):
        assert min(proxy.counts[kind] for kind in ("dropped", "repeated", "late")) > 0
        proxy.faults = Faults()
    load.settle(may_fail=True)


@pytest.mark.slow
def test_an_executor_that_is_cut_off_and_comes_back_takes_up_its_work(site: Proxied) -> None:
    runs = site.submit(["sh", "-c", f"while [ ! -e {site.work}/go ]; do sleep 0.05; done"], 6)
    site.until(lambda: site.job(runs)["state"] == "running")
    site.wire.is_cut = True
    site.until(lambda: len(site.lines("executor_disconnected")) == 2)
    assert site.job(runs)["state"] == "running", "unreachable is not ended"
    waits = site.submit(["true"])
    assert all(cluster["stale"] for cluster in site.ask("nodes")["clusters"])
    (site.work / "go").touch()
    assert site.job(waits)["state"] == "pending"
    site.wire.is_cut = False
    assert site.wait(runs)["state"] == "completed"
    assert site.wait(waits)["state"] == "completed"
