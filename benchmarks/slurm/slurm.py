"""Real Slurm clusters on this machine: bed, claims, refusals, and how far apart parts start.

``python -m benchmarks slurm`` prints a table. The bed is that of the tests: three clusters on
loopback. What a figure is worth depends on what else the machine does: the load is printed too.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.slurm.ssh_kills import site_by_ssh
from tests.testbeds.slurm import SlurmTestbed, alike, bed, missing
from tests.testbeds.slurm_launches import SlurmLaunches
from tests.testbeds.slurm_site import SlurmSite

from coalloc.model.sites.parts import PartReport, PartState

TRIALS = 50
CLAIMS = 15


def bed_times(rounds: int = 3) -> list[tuple[str, str]]:
    """Three clusters of sixteen nodes, up and down."""
    ups, downs = [], []
    for _ in range(rounds):
        began = time.perf_counter()
        with bed(*alike(3, 16)):
            ups.append(time.perf_counter() - began)
            began = time.perf_counter()
        downs.append(time.perf_counter() - began)
    return [
        ("three clusters x 16 nodes up", shown(ups, "s", 1.0)),
        ("three clusters x 16 nodes down", shown(downs, "s", 1.0)),
    ]


def claim_times(running: SlurmTestbed, way: str) -> list[tuple[str, str]]:
    """From the claim of a part in each of three clusters until all are ready; refusals."""
    ready, refused = [], []
    with launchers(running, way) as sites:
        for number in range(CLAIMS):
            specs = [
                site.shell("true", job=str(number), nodes=((site.cluster.node_names[0], 1),))
                for site in sites
            ]
            began = time.perf_counter()
            for site, spec in zip(sites, specs, strict=True):
                site.launcher.claim(spec)
            for site, spec in zip(sites, specs, strict=True):
                report = site.wait_one(spec.key, is_settled)
                assert report.state is PartState.READY, report
            ready.append(time.perf_counter() - began)
            busy = sites[0].shell("true", job=f"busy{number}", nodes=specs[0].nodes)
            began = time.perf_counter()
            assert sites[0].claim(busy).reason == "nodes_taken"
            refused.append(time.perf_counter() - began)
            for site, spec in zip(sites, specs, strict=True):
                site.launcher.abort(spec.key)
                site.ended(spec.key)
    return [
        (f"prepare to all ready, three clusters, {way}", shown(ready, "ms", 1e3)),
        (f"a busy node refused, {way}", shown(refused, "ms", 1e3)),
    ]


def is_settled(report: PartReport) -> bool:
    """Whether a part is at the barrier or has ended."""
    return report.state is PartState.READY or report.is_ended


@contextmanager
def launchers(running: SlurmTestbed, way: str) -> Iterator[list[SlurmLaunches]]:
    """A launcher for each cluster."""
    with ExitStack() as stack:
        sites = []
        for cluster in running:
            root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="co-")))
            sites.append(SlurmLaunches(root, cluster, start=way))
            stack.callback(sites[-1].close)
        yield sites


def skews(running: SlurmTestbed, trials: int) -> list[tuple[str, str]]:
    """Start skew as the service publishes it, over all three clusters and over two."""
    rows = []
    with tempfile.TemporaryDirectory(prefix="co-") as folder:
        site = SlurmSite(Path(folder), running)
        site.start()
        try:
            nodes = next(iter(running)).shape.nodes
            for parts in (2, 3):
                found, spans = [], []
                for _ in range(trials):
                    marks = site.work / "starts"
                    marks.unlink(missing_ok=True)
                    text = f"date +%s%N >> {marks}"
                    job = site.submit(["sh", "-c", text], parts * nodes)
                    ended = site.wait(job)
                    assert ended["state"] == "completed", ended
                    assert len(ended["clusters"]) == parts
                    found.append(ended["skew_ms"])
                    stamps = [int(line) for line in marks.read_text().split()]
                    spans.append((max(stamps) - min(stamps)) / 1e6)
                rows.append((f"start skew over {parts} clusters, first processes", shown(found)))
                rows.append((f"the same, over all {parts * nodes} processes", shown(spans)))
        finally:
            site.stop()
    return rows


def skews_by_ssh(trials: int, trip_s: float, route: str) -> list[tuple[str, str]]:
    """The same over two clusters, each behind an ssh connection with this round trip."""
    found = []
    with tempfile.TemporaryDirectory(prefix="co-") as folder, bed(*alike(2, 2)) as running:
        os.chmod(folder, 0o755)
        with site_by_ssh(Path(folder), running, route, trip_s=trip_s) as (site, _, ada):
            for _ in range(trials):
                ended = site.wait(site.submit(["true"], 4, cwd=ada.pw_dir))
                assert ended["state"] == "completed", ended
                found.append(ended["skew_ms"])
    what = f"start skew over 2 clusters by ssh, {trip_s * 1e3:g} ms away, route {route}"
    return [(what, shown(found))]


def shown(values: list[float], unit: str = "ms", scale: float = 1.0) -> str:
    """Median and 95th percentile."""
    ordered = sorted(value * scale for value in values)
    late = ordered[min(len(ordered) - 1, int(0.95 * len(ordered)))]
    middle = statistics.median(ordered)
    return f"median {middle:.2f} {unit}, p95 {late:.2f} {unit}, n = {len(ordered)}"


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=TRIALS, help="co-allocated jobs of each kind")
    parser.add_argument("--ssh", type=float, metavar="MS", help="only by ssh, so far away")
    parser.add_argument("--route", default="auto", help="of what nodes say by ssh")
    args = parser.parse_args()
    absent = missing()
    if absent:
        print(f"Slurm is not installed, nothing measured: {absent}")
        return 0
    if args.ssh is not None:
        rows = skews_by_ssh(args.trials, args.ssh / 1e3, args.route)
    else:
        rows = bed_times()
        with bed(*alike(3, 4)) as running:
            for way in ("salloc", "sbatch"):
                rows += claim_times(running, way)
            rows += skews(running, args.trials)
    for name, value in rows:
        print(f"{name:55} {value}")
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} CPUs")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
