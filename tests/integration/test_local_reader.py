"""Readings of the machine the tests run on, whatever else runs on it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from coalloc.adapters.base import AdapterError
from coalloc.adapters.local import reader as local_reader
from coalloc.adapters.local.adapter import open_local
from coalloc.adapters.local.reader import LEAST_INTERVAL_S, LocalReader
from coalloc.adapters.local.settings import read_settings
from coalloc.model.errors import InputError
from tests.support.launch_bed import LaunchTestbed

BURN_S = 1.0
BURN = f"import time\nwhile time.process_time() < {BURN_S}: pass\n"
# What a tick more or less, and the time between two looks at the clock, may hide.
SLACK_S = 0.25


def busy_s() -> float:
    """CPU seconds used on this machine, by whomever."""
    t = psutil.cpu_times()
    return float(sum(t) - t.idle - t.iowait - t.guest - t.guest_nice)


def test_first_reading_is_the_configuration() -> None:
    settings = read_settings({"nodes": ["n[1-2]"], "power": 0.5, "features": ["x"]}, "c")
    reading = LocalReader(settings).read()
    assert reading.cluster == "c"
    assert [(n.name, n.features) for n in reading.nodes] == [("n1", ("x",)), ("n2", ("x",))]
    for node in reading.nodes:
        assert node.power == pytest.approx(0.5 * max(0.05, 1.0 - node.load))
    assert reading.running == ()
    assert reading.waiting == 0


def test_memory_of_the_whole_machine() -> None:
    (node,) = LocalReader(read_settings({}, "c")).read().nodes
    assert node.memory_mb == psutil.virtual_memory().total >> 20
    assert node.slots == os.cpu_count()
    several = LocalReader(read_settings({"nodes": 2}, "c")).read().nodes
    assert {one.memory_mb for one in several} == {node.memory_mb // 2}
    unlimited = read_settings({"nodes": 2, "memory_mb": None}, "c")
    assert LocalReader(unlimited).read().nodes[0].memory_mb is None


@pytest.mark.parametrize(
    "is_first_looked_at",
    [
        True,  # seen by a reading while it runs
        False,  # begins and ends between two readings
    ],
)
def test_own_load_leaves_power_alone(bed: LaunchTestbed, is_first_looked_at: bool) -> None:
    reader = LocalReader(bed.settings)
    spec = bed.spec(sys.executable, "-c", BURN)
    bed.claim(spec)
    began, busy = time.monotonic(), busy_s()
    reader.read()
    bed.launcher.go(spec.key)
    if is_first_looked_at:
        wait_interval()
        reader.read()
        began, busy = time.monotonic(), busy_s()
    cpu_s = bed.ended(spec.key).cpu_s
    wait_interval()
    node = reader.read().nodes[0]
    assert cpu_s is not None
    assert cpu_s >= BURN_S
    span, busy = time.monotonic() - began, busy_s() - busy
    foreign_s = node.load * span * (os.cpu_count() or 1)
    burnt_s = BURN_S if not is_first_looked_at else BURN_S - 2 * LEAST_INTERVAL_S
    assert foreign_s <= max(0.0, busy - burnt_s) + SLACK_S
    assert node.power == pytest.approx(max(0.05, 1.0 - node.load))


def wait_interval() -> None:
    """Let the reader's least interval pass: the passing of time is the event."""
    subprocess.run(["sleep", str(LEAST_INTERVAL_S * 1.5)], check=True)


def test_foreign_load_lowers_power() -> None:
    """A process that is nobody's child here burns one CPU."""
    reader = LocalReader(read_settings({"nodes": ["n1"]}, "c"))
    # The shell ends at once, so the burner is no longer below this process.
    command = [sys.executable, "-c", BURN.replace(str(BURN_S), "60")]
    shell = subprocess.run(
        ["sh", "-c", '"$@" > /dev/null 2>&1 & echo $!', "sh", *command],
        check=True,
        capture_output=True,
        text=True,
    )
    burner = psutil.Process(int(shell.stdout))
    try:
        before, began = sum(burner.cpu_times()[:2]), time.monotonic()
        reader.read()
        while sum(burner.cpu_times()[:2]) - before < BURN_S:
            assert time.monotonic() - began < 60.0
            wait_interval()
        node = reader.read().nodes[0]
        foreign_s = node.load * (time.monotonic() - began) * (os.cpu_count() or 1)
    finally:
        burner.kill()
    assert foreign_s >= BURN_S - SLACK_S
    assert node.power == pytest.approx(max(0.05, 1.0 - node.load))


def test_readings_in_quick_succession_are_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_reader, "LEAST_INTERVAL_S", 600.0)
    reader = LocalReader(read_settings({}, "c"))
    assert reader.read() == reader.read()


def test_a_reading_that_takes_too_long_is_no_reading() -> None:
    reader = LocalReader(read_settings({"read_limit_s": 1e-9}, "c"))
    with pytest.raises(AdapterError, match="reading took longer than 1e-09 s"):
        reader.read()


def test_node_pinned_to_a_cpu_that_is_not_here(tmp_path: Path) -> None:
    settings = read_settings({"nodes": [{"name": "n1", "cpus": ["4000"]}]}, "c")
    with pytest.raises(AdapterError, match="there is no CPU 4000"):
        LocalReader(settings).read()
    with pytest.raises(InputError) as caught:
        open_local(settings, tmp_path)
    assert str(caught.value) == "c.nodes: n1: no CPU 4000 here"


def test_pinned_nodes_are_read_apart() -> None:
    nodes = [{"name": "n[1-2]", "cpus": ["0", "1"]}] if (os.cpu_count() or 1) > 1 else 1
    reader = LocalReader(read_settings({"nodes": nodes}, "c"))
    reader.read()
    wait_interval()
    for node in reader.read().nodes:
        assert 0.0 <= node.load <= 1.0
        assert node.power == pytest.approx(max(0.05, 1.0 - node.load))
