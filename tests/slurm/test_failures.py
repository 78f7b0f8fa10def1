"""Slurm misbehaves: what the service does then, and what its operator reads."""

from __future__ import annotations

import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from coalloc.adapters.runner.command import UnreachableError
from tests.support.live_site import ENDED
from tests.testbeds.slurm import SlurmTestbed, alike, bed
from tests.testbeds.slurm_commands import EMPTY, GARBAGE, SLOW, Commands
from tests.testbeds.slurm_site import SlurmSite

pytestmark = pytest.mark.slow


@pytest.fixture
def own() -> Iterator[SlurmTestbed]:
    """Clusters a and b, of two nodes."""
    with bed(*alike(2, 2, conf="SlurmdTimeout=5\nMaxJobCount=5\nMinJobAge=2\nKillWait=1")) as made:
        yield made


@pytest.fixture
def commands(root: Path) -> Commands:
    return Commands(root / "bin")


@pytest.fixture
def site(own: SlurmTestbed, root: Path, commands: Commands) -> Iterator[SlurmSite]:
    made = SlurmSite(
        root,
        own,
        given={"bin": str(commands.folder), "command_limit_s": 2.0},
        start="backoff_first_s = 0.5\nbackoff_max_s = 1.0\nprepare_timeout_s = 10.0",
    )
    text = made.config.read_text()
    made.config.write_text(text.replace("max_age_s = 30.0", "max_age_s = 4.0"))
    made.start()
    yield made
    commands.lift()
    made.stop()


def cluster(site: SlurmSite, name: str) -> dict[str, Any]:
    """What ``coalloc nodes`` has of a cluster."""
    return next(c for c in site.ask("nodes")["clusters"] if c["cluster"] == name)


def is_stale(site: SlurmSite, name: str) -> bool:
    return bool(cluster(site, name)["stale"])


def runs_in_a(site: SlurmSite) -> None:
    """The other cluster goes on, and the daemon answers at once."""
    asked = time.monotonic()
    site.ask("status")
    assert time.monotonic() - asked < 2.0
    ended = site.wait(site.submit(["true"], 2))
    assert (ended["state"], ended["clusters"]) == ("completed", ["a"]), ended


def runs_in_both(site: SlurmSite) -> None:
    ended = site.wait(site.submit(["true"], 4))
    assert (ended["state"], sorted(ended["clusters"])) == ("completed", ["a", "b"]), ended


ASKED = ("squeue: ", "scontrol: ")
"""Which of them is the first to find out is chance."""


def why(site: SlurmSite) -> str:
    """The last words of the log about a failed reading of b."""
    found = [line for line in site.lines("reading_failed") if line["cluster"] == "b"]
    return str(found[-1]["why"]) if found else ""


def started(site: SlurmSite, text: str, procs: int, **fields: Any) -> str:
    """A job that runs."""
    job = site.submit(["sh", "-c", text], procs, **fields)
    site.until(lambda: site.job(job)["state"] == "running")
    return job


def only(name: str) -> dict[str, Any]:
    return {"job": {"clusters": [name]}}


def test_slurmctld_is_down(site: SlurmSite, own: SlurmTestbed) -> None:
    """What runs there runs on and ends; nothing new is sent there until it answers again."""
    go = site.work / "go"
    job = started(site, f"while ! test -e {go}; do sleep 0.1; done", 1, **only("b"))
    own["b"].kill_controller(signal.SIGTERM)
    site.until(lambda: why(site).startswith(ASKED) and "slurmctld is down" in why(site))
    site.until(lambda: is_stale(site, "b"))
    assert cluster(site, "b")["error"]
    runs_in_a(site)
    assert site.job(job)["state"] == "running"
    go.touch()
    assert site.wait(job)["state"] == "completed"
    waiting = site.submit(["true"], 1, **only("b"))
    own["b"].start_controller()
    assert site.wait(waiting)["state"] == "completed"
    assert [line for line in site.lines("cluster_returned") if line["cluster"] == "b"][1:]


@pytest.mark.parametrize(
    ("command", "spell", "said"),
    [
        # hung: killed after command_limit_s
        ("squeue", SLOW.format(seconds=30), "squeue: no answer within 2 s; slurmctld is up"),
        ("squeue", GARBAGE, "not understood"),
        ("scontrol", GARBAGE, "not understood"),
        # no node at all: a cluster is not taken for one without nodes
        ("scontrol", EMPTY, "not understood"),
        # cut off in a line
        ("scontrol", 'PATH=/usr/bin; scontrol "$@" | head -c 200; exit 0', "not understood"),
        ("squeue", "echo segmentation fault >&2; kill -SEGV $$", "squeue: "),
    ],
)
def test_answers_that_are_late_or_senseless(
    site: SlurmSite, commands: Commands, command: str, spell: str, said: str
) -> None:
    job = started(site, "sleep 600", 1, **only("b"))
    commands.spell(command, f"case $SLURM_CONF in */b/slurm.conf) {spell};; esac")
    site.until(lambda: said in why(site))
    assert why(site).isprintable()
    site.until(lambda: is_stale(site, "b"))
    runs_in_a(site)
    assert site.job(job)["state"] == "running"
    assert site.ask("cancel", job=job)["type"] == "done"
    assert site.wait(job)["state"] == "cancelled"
    commands.lift()
    site.until(lambda: not is_stale(site, "b"))
    runs_in_both(site)


@pytest.mark.parametrize("way", ["salloc", "sbatch"])
def test_clock_of_slurmctld_is_off(
    own: SlurmTestbed, root: Path, commands: Commands, way: str
) -> None:
    """Three minutes ahead: every time that it tells, and so do the commands here."""
    for name in ("squeue", "scontrol", "sbatch"):
        commands.spell(name, "case $SLURM_CONF in */b/slurm.conf) export TZ=OFF-0:03;; esac")
    own["b"].run("sbatch", "-w", "b1", "-t", "10", "-o", "/dev/null", "--wrap", "sleep 600")
    own.wait(lambda: "R" in own["b"].run("squeue", "-h", "-o", "%t"), "the local job runs")
    given = {"bin": str(commands.folder), "start": way}
    with SlurmSite(root, own, given=given, start="prepare_timeout_s = 30.0") as site:
        (line,) = site.lines("cluster_noticed")
        assert line["cluster"] == "b"
        ahead = re.match(r"slurmctld's clock is (\d+) s ahead", line["what"])
        assert ahead, line
        assert abs(int(ahead[1]) - 180) <= 2, "asking took that long"
        local = [r for r in site.ask("snapshot")["snapshot"]["running"] if not r["ours"]]
        assert 540.0 < local[0]["end"] - time.time() < 620.0, local
        ended = site.wait(site.submit(["true"], 1, **only("b")))
        assert (ended["state"], ended["nodes"]) == ("completed", {"b2": 1}), ended
        assert not site.lines("job_requeued")


def test_node_goes_down_in_mid_job(site: SlurmSite, own: SlurmTestbed) -> None:
    """An operator sets it down; the job is over everywhere, and is not run again."""
    job = started(site, "echo up >> began; sleep 600", 4)
    own["b"].run("scontrol", "update", "NodeName=b1", "State=DOWN", "Reason=burnt")
    ended = site.wait(job)
    # Failed where the node could still tell what became of its processes.
    assert ended["state"] in {"failed", "lost"}, ended
    (line,) = [line for line in site.lines("job_ended") if line["job"] == job]
    assert "b: a node of the job failed" in line["detail"], line
    # The bed's nodes return to service by themselves (ReturnToService=2).
    own.wait(lambda: own["a"].is_idle() and own["b"].is_idle(), "both parts are over")
    runs_in_both(site)
    assert (site.work / "began").read_text().split() == ["up"] * 4


def test_job_is_cancelled_by_an_administrator(site: SlurmSite, own: SlurmTestbed) -> None:
    job = started(site, "sleep 600", 4)
    own["b"].run("scancel", "--user=root")
    ended = site.wait(job)
    assert ended["state"] == "cancelled", ended
    (line,) = [line for line in site.lines("job_ended") if line["job"] == job]
    assert "cancelled in Slurm" in line["detail"], line
    own.wait(lambda: own["a"].is_idle() and own["b"].is_idle(), "both parts are over")
    runs_in_both(site)


@pytest.mark.parametrize("state", ["DOWN", "INACTIVE", "DRAIN"])
def test_partition_is_closed(site: SlurmSite, own: SlurmTestbed, state: str) -> None:
    """What runs there goes on; new jobs go elsewhere, without a try."""
    job = started(site, "sleep 600", 1, **only("b"))
    own["b"].run("scontrol", "update", "PartitionName=main", f"State={state}")
    notice = f"partition main is {state}: nothing can be started that names no other partition"
    site.until(lambda: any(line["what"] == notice for line in site.lines("cluster_noticed")))
    nodes = cluster(site, "b")["nodes"]
    assert {n["state"] for n in nodes} == {"draining"}
    assert {n["reason"] for n in nodes} == {f"partition main is {state}"}
    runs_in_a(site)
    assert site.job(job)["state"] == "running"
    waiting = site.submit(["true"], 4)
    site.until(lambda: bool(site.job(waiting)["reason"]))
    own["b"].run("scontrol", "update", "PartitionName=main", "State=UP")
    site.ask("cancel", job=job)
    assert site.wait(waiting)["state"] == "completed"
    assert not site.lines("job_requeued")


def test_slurm_takes_no_more_jobs(site: SlurmSite, own: SlurmTestbed) -> None:
    """MaxJobCount: local users' jobs fill the queue of b; the job waits, and runs in the end."""

    def fill() -> None:
        filler = ("--hold", "-o", "/dev/null", "--wrap", "true")
        for _ in range(6):
            own["b"].slurm.run("sbatch", *filler, timeout_s=3.0)

    with pytest.raises(UnreachableError, match="temporarily unable to accept"):
        fill()
    job = site.submit(["true"], 4)
    site.until(lambda: bool(site.lines("job_requeued")))
    line = site.lines("job_requeued")[0]
    assert line["job"] == job
    assert line["detail"].startswith("b: "), line
    full = ("job queue full", "temporarily unable to accept job")
    assert any(words in line["detail"] for words in full), line
    own.wait(own["a"].is_idle, "the other part is given back")
    own["b"].run("scancel", "--user=root", "--state=PENDING")
    assert site.wait(job)["state"] == "completed"


def test_munge_is_away(site: SlurmSite, own: SlurmTestbed) -> None:
    """On this machine, which is everybody's here; the jobs run on."""
    go = site.work / "go"
    job = started(site, f"while ! test -e {go}; do sleep 0.1; done", 4)
    munged = own.munged
    assert munged is not None
    munged.kill()
    munged.wait()
    site.until(lambda: why(site).startswith(ASKED))
    site.until(lambda: is_stale(site, "a") and is_stale(site, "b"))
    assert site.job(job)["state"] == "running"
    own.munged = subprocess.Popen(munged.args, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    site.until(lambda: not is_stale(site, "a") and not is_stale(site, "b"))
    go.touch()
    assert site.wait(job)["state"] == "completed"
    runs_in_both(site)


def test_two_services_share_the_clusters(
    site: SlurmSite, own: SlurmTestbed, root: Path, commands: Commands
) -> None:
    """A copy of the configuration, elsewhere: each takes the other's jobs for local ones."""
    other_root = root / "o"
    other_root.mkdir()
    with SlurmSite(
        other_root,
        own,
        given={"bin": str(commands.folder), "command_limit_s": 2.0},
        start="backoff_first_s = 0.5\nbackoff_max_s = 1.0\nprepare_timeout_s = 10.0",
    ) as other:
        jobs = [
            (each, each.submit(["sh", "-c", f"echo {name}{n} >> {root}/began"], 1 + n % 4))
            for n in range(6)
            for name, each in (("one", site), ("two", other))
        ]
        # Wide jobs of both that hold a part each give way to one another after a while.
        site.until(lambda: all(each.job(job)["state"] in ENDED for each, job in jobs), 240.0)
        assert {each.job(job)["state"] for each, job in jobs} == {"completed"}
    began = (root / "began").read_text().split()
    wanted = [f"{name}{n}" for n in range(6) for name in ("one", "two") for _ in range(1 + n % 4)]
    assert sorted(began) == sorted(wanted)
