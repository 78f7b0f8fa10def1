"""Network name spaces: an executor on a machine of its own is cut off, and comes back.

Daemon and executor talk by tcp with CURVE over a pair of virtual interfaces; the cut is the
interface going down, which neither side's kernel tells the other.
"""

from __future__ import annotations

import os
import subprocess
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.support.multi_user import MultiUser

START = "prepare_timeout_s = 5.0\nlease_s = 6.0\nbackoff_first_s = 0.1\nbackoff_max_s = 1.0"


class Link:
    """A name space for one executor, and a wire to it."""

    def __init__(self) -> None:
        tag = uuid.uuid4().hex[:6]
        self.name, self.here, self.there = f"co-{tag}", f"coh{tag}", f"cot{tag}"
        third = 1 + int(tag[:2], 16) % 250
        self.address, self.remote = f"10.199.{third}.1", f"10.199.{third}.2"

    def make(self) -> None:
        """Make both ends; skips the test where that is not allowed."""
        steps = (
            f"netns add {self.name}",
            f"link add {self.here} type veth peer name {self.there}",
            f"link set {self.there} netns {self.name}",
            f"addr add {self.address}/24 dev {self.here}",
            f"link set {self.here} up",
            f"-n {self.name} addr add {self.remote}/24 dev {self.there}",
            f"-n {self.name} link set {self.there} up",
            f"-n {self.name} link set lo up",
        )
        for step in steps:
            try:
                done = subprocess.run(["ip", *step.split()], capture_output=True, text=True)
            except FileNotFoundError:
                pytest.skip("ip(8) is not installed: no executor was cut off by a name space")
            if done.returncode != 0:
                self.remove()
                pytest.skip(f"no name space can be made: ip {step}: {done.stderr.strip()}")

    def set(self, state: str) -> None:
        """Take the wire ``up`` or ``down``."""
        subprocess.run(["ip", "link", "set", self.here, state], check=True)

    def remove(self) -> None:
        """Remove what was made."""
        subprocess.run(["ip", "link", "del", self.here], capture_output=True)
        subprocess.run(["ip", "netns", "del", self.name], capture_output=True)


class Apart(MultiUser):
    """The executor of beta in a name space of its own, over tcp."""

    def __init__(self, root: Path, link: Link) -> None:
        self.link = link
        end = f"tcp://{link.address}:{20000 + os.getpid() % 10000}"
        super().__init__(root, daemon=f'executor_endpoint = "{end}"')
        text = self.config.read_text().replace("[start]\n", f"[start]\n{START}\n", 1)
        self.config.write_text(text)

    def before(self, name: str) -> Sequence[str]:
        return ["ip", "netns", "exec", self.link.name] if name == "beta" else ()


@pytest.fixture
def link() -> Iterator[Link]:
    link = Link()
    link.make()
    yield link
    link.remove()


@pytest.fixture
def site(root: Path, link: Link) -> Iterator[Apart]:
    with Apart(root, link) as site:
        yield site


@pytest.mark.slow
def test_an_executor_cut_off_by_the_network_takes_up_its_work_when_it_is_back(
    site: Apart,
) -> None:
    counted = site.work / "counted"
    counted.touch()
    counted.chmod(0o666)
    line = f"echo $COALLOC_CLUSTER >> {counted}"
    loop = f"{line}; until [ -e {site.work}/go ]; do sleep 0.05; done"
    runs = site.submit(["sh", "-c", loop], 6)
    site.until(lambda: site.job(runs)["state"] == "running")
    there = site.submit(["sh", "-c", line], job={"clusters": ["beta"]})
    assert site.wait(there)["state"] == "completed"
    site.link.set("down")
    site.until(lambda: bool(site.lines("executor_disconnected")))
    clusters = {row["cluster"]: row["stale"] for row in site.ask("nodes")["clusters"]}
    assert clusters == {"alpha": False, "beta": True}
    waits = site.submit(["sh", "-c", line], job={"clusters": ["beta"]})
    (site.work / "go").touch()
    assert site.job(runs)["state"] == "running", "unreachable is not ended"
    assert site.job(waits)["state"] == "pending"
    site.link.set("up")
    assert site.wait(runs)["state"] == "completed"
    assert site.wait(waits)["state"] == "completed"
    # six ranks, and one for each of the small jobs: nothing ran twice
    assert len(counted.read_text().splitlines()) == 6 + 2
