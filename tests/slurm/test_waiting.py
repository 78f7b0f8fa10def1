"""Claims that wait in the queue of Slurm: any nodes of the shape; parts that meet, or none."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from pwd import struct_passwd

import pytest

from coalloc.model.sites.parts import Member, PartState, QueueTerms
from tests.support.live_site import ENDED
from tests.testbeds.accounts import accounts
from tests.testbeds.background import BackgroundUser
from tests.testbeds.slurm import Cluster, ClusterShape, SlurmTestbed, alike, bed
from tests.testbeds.slurm_launches import SlurmLaunches, settle
from tests.testbeds.slurm_site import SlurmSite

SHAPE = QueueTerms(at_once=False)
START = "prepare_timeout_s = 20.0\nbackoff_first_s = 0.5\nbackoff_max_s = 5.0"


@pytest.fixture(scope="module")
def own() -> Iterator[SlurmTestbed]:
    with bed(*alike(2, 3)) as running:
        yield running


@pytest.fixture
def launch(own: SlurmTestbed, root: Path) -> Iterator[SlurmLaunches]:
    running = SlurmLaunches(root, own["a"], start="sbatch")
    yield running
    running.close()
    for name in ("local", "settle"):
        own["a"].run("scancel", f"--name={name}")
    own.wait(lambda: running.jobs() == [], "no job is left")


def occupy(cluster: Cluster, *nodes: str) -> str:
    """Let somebody else run on these nodes; the number of the job."""
    options = ("--parsable", "-w", ",".join(nodes), "-N", str(len(nodes)), "--exclusive")
    words = ("-t", "10", "-o", "/dev/null", "-J", "local", "--wrap", "sleep 600")
    return cluster.run("sbatch", *options, *words).strip()


def runs(cluster: Cluster, number: str) -> bool:
    return cluster.run("squeue", "-h", "-j", number, "-o", "%t").strip() == "R"


def test_a_claim_waits_and_gets_other_nodes(own: SlurmTestbed, launch: SlurmLaunches) -> None:
    local = occupy(own["a"], "a1", "a2", "a3")
    own.wait(lambda: runs(own["a"], local), "the local job runs")
    text = "echo $COALLOC_NODE $COALLOC_NODELIST; cat $COALLOC_HOSTFILE; echo $COALLOC_RENDEZVOUS"
    spec = launch.shell(text, nodes=(("a1", 1),), queue=QueueTerms(avoid=("a1",)))
    launch.launcher.claim(spec)
    waits = launch.wait_one(spec.key, lambda r: r.state is PartState.WAITING and bool(r.detail))
    assert waits.reason == "others_first"
    assert not waits.nodes
    own["a"].run("scancel", local)
    granted = launch.wait_one(spec.key, lambda r: bool(r.nodes) or r.is_ended)
    assert granted.state is PartState.PREPARING, granted
    (node,) = granted.nodes
    assert node != "a1"
    launch.launcher.arrange(spec.key, granted.nodes, "10.0.0.1:4711")
    launch.wait_one(spec.key, lambda r: r.state is PartState.READY or r.is_ended)
    launch.launcher.go(spec.key)
    assert launch.ended(spec.key).exit_code == 0
    assert launch.output("coalloc-1.out").split("\n")[:3] == [
        f"{node} {node}",
        f"{node} slots=1",
        "10.0.0.1:4711",
    ]


def test_members_wait_as_one_claim_and_run_where_that_is_granted(
    own: SlurmTestbed, launch: SlurmLaunches
) -> None:
    local = occupy(own["a"], "a1", "a2", "a3")
    own.wait(lambda: runs(own["a"], local), "the local job runs")
    for attempt, is_wanted in ((1, False), (2, True)):
        behind = tuple(Member(job=f"1_{n}", attempt=attempt, array_index=n) for n in (1, 2))
        more = {"job": "1_0", "attempt": attempt, "members": behind}
        terms = QueueTerms(avoid=("a1",))
        spec = launch.shell("echo $COALLOC_NODE", nodes=(("a1", 1),), queue=terms, **more)
        launch.launcher.claim(spec)
        launch.wait(spec.keys, lambda r: r.state is PartState.WAITING and bool(r.detail))
        if not is_wanted:
            launch.launcher.abort(spec.keys[1])
            ends = launch.wait(spec.keys, lambda r: r.is_ended)
            assert {(end.state, end.reason) for end in ends} == {("refused", "aborted")}
    own["a"].run("scancel", local)
    granted = launch.wait_one(spec.key, lambda r: bool(r.nodes) or r.is_ended)
    launch.launcher.arrange(spec.key, granted.nodes, "10.0.0.1:4711")
    launch.wait(spec.keys, lambda r: r.state is PartState.READY or r.is_ended)
    launch.launcher.go(spec.key)
    assert {end.exit_code for end in launch.wait(spec.keys, lambda r: r.is_ended)} == {0}
    (node,) = granted.nodes
    assert node != "a1"
    assert {launch.output(f"coalloc-{key.job}.out") for key in spec.keys} == {f"{node}\n"}


def test_a_part_holds_until_it_hears_of_the_others(launch: SlurmLaunches) -> None:
    spec = launch.shell("echo $COALLOC_NODELIST", nodes=(("a1", 1),), size=2, queue=SHAPE)
    launch.launcher.claim(spec)
    granted = launch.wait_one(spec.key, lambda r: bool(r.nodes) or r.is_ended)
    launch.launcher.go(spec.key)  # too early: it does not know its job's nodes
    assert launch.report(spec.key).state is PartState.PREPARING
    launch.restart()
    assert launch.report(spec.key).nodes == granted.nodes
    launch.launcher.arrange(spec.key, {**granted.nodes, "b7": 1}, "x:1")
    assert launch.ended(spec.key).exit_code == 0
    (node,) = granted.nodes
    assert launch.output("coalloc-1.out").strip() == f"{node},b7"


@pytest.mark.parametrize("controller", ["up", "killed"])
def test_a_claim_that_waits_is_given_up(
    own: SlurmTestbed, launch: SlurmLaunches, controller: str
) -> None:
    local = occupy(own["a"], "a1", "a2", "a3")
    own.wait(lambda: runs(own["a"], local), "the local job runs")
    if controller == "killed":
        settle(own, own["a"])
    spec = launch.shell("true", queue=SHAPE)
    launch.launcher.claim(spec)
    launch.wait_one(spec.key, lambda r: r.state is PartState.WAITING)
    if controller == "killed":
        own["a"].kill_controller()
    launch.launcher.abort(spec.key, "cancelled")
    if controller == "killed":
        own["a"].start_controller()
    assert launch.ended(spec.key).state is PartState.REFUSED
    own.wait(lambda: not [c for c in launch.jobs() if "coalloc" in c], "nothing of it is left")


def test_a_claim_that_its_user_cancels_in_slurm(own: SlurmTestbed, launch: SlurmLaunches) -> None:
    local = occupy(own["a"], "a1", "a2", "a3")
    own.wait(lambda: runs(own["a"], local), "the local job runs")
    spec = launch.shell("true", queue=SHAPE)
    launch.launcher.claim(spec)
    launch.wait_one(spec.key, lambda r: r.state is PartState.WAITING)
    own["a"].run("scancel", "-t", "PD", "--user=root")
    report = launch.ended(spec.key)
    assert (report.state, report.reason) == (PartState.REFUSED, "cancelled_there")


@pytest.fixture
def ill() -> Iterator[SlurmTestbed]:
    """A cluster whose nodes refuse what Slurm launches there."""
    with bed(ClusterShape(name="a", nodes=2, conf="Prolog=/bin/false")) as running:
        yield running


def test_a_claim_that_slurm_cannot_launch_is_not_taken_for_cancelled(
    ill: SlurmTestbed, root: Path
) -> None:
    """A claim at once ends as slurmd says (node_failed) or srun (step_failed), who is first."""
    with closing(SlurmLaunches(root, ill["a"], start="sbatch")) as launch:
        for job, at_once, node in (("1", False, "a1"), ("2", True, "a2")):
            queue = QueueTerms(at_once=at_once)
            spec = launch.shell("true", job=job, nodes=((node, 1),), queue=queue)
            launch.launcher.claim(spec)
            report = launch.ended(spec.key)
            known = {"node_failed", "step_failed"} if at_once else {"node_failed"}
            assert report.state is PartState.REFUSED
            assert report.reason in known, report


needs_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can make accounts")


@pytest.fixture(scope="module")
def users() -> Iterator[list[struct_passwd]]:
    with accounts("ann", "bob") as made:
        yield made


@pytest.fixture
def site(own: SlurmTestbed, root: Path, users: list[struct_passwd]) -> Iterator[SlurmSite]:
    with SlurmSite(root, own, given={"start": "sbatch"}, account=users[0], start=START) as running:
        yield running
    for cluster in own:
        cluster.run("scancel", f"--user={users[0].pw_name}")
        for name in ("local", "settle"):
            cluster.run("scancel", f"--name={name}")
    own.wait(lambda: all(cluster.is_idle() for cluster in own), "all is idle again")


@needs_root
@pytest.mark.slow
def test_cancel_while_one_part_holds_and_the_other_waits(
    own: SlurmTestbed, site: SlurmSite
) -> None:
    mark = site.work / "began"
    local = occupy(own["b"], "b1", "b2", "b3")
    queued = own["b"].run("sbatch", "--parsable", "-J", "local", "-o", "/dev/null", "--wrap=true")
    own.wait(lambda: runs(own["b"], local), "the local job runs")
    site.until(lambda: site.ask("nodes")["clusters"][1]["waiting_there"] == 1)
    job = site.submit(["touch", str(mark)], 5)
    site.until(lambda: "b go first" in site.job(job).get("detail", ""))
    assert not any(part.get("granted") for part in site.job(job)["parts"]), "a is put off"
    own["b"].run("scancel", queued.strip())  # now it is the job's turn in b, and a is hastened
    site.until(lambda: any(part.get("granted") for part in site.job(job).get("parts", ())))
    shown = site.job(job)
    assert (shown["state"], shown["reason"]) == ("preparing", "others_first")
    assert "other jobs of b go first" in shown["detail"]
    assert site.ask("cancel", job=job)["type"] == "done"
    assert site.wait(job)["state"] == "cancelled"
    own.wait(own["a"].is_idle, "the part that held is given back")
    own.wait(lambda: "coalloc:" not in own["b"].run("squeue", "-h", "-o", "%k"), "as the other")
    own["b"].run("scancel", local)
    assert not mark.exists()


@needs_root
@pytest.mark.slow
def test_tasks_and_pieces_run_where_others_always_go_first(
    own: SlurmTestbed, site: SlurmSite, users: list[struct_passwd]
) -> None:
    lines = site.work / "told"
    tasks = [{"id": name, "work": 1.0} for name in ("x", "y", "z")]
    edges = [{"from": "x", "to": "y"}, {"from": "x", "to": "z"}]
    flow = {"kind": "workflow", "tasks": tasks, "edges": edges}
    launch = {"argv": ["sh", "-c", f"echo {{task}} >> {lines}"], "cwd": str(site.work)}
    whole = {"kind": "divisible", "work": 4.0, "chunk_s": 1.0}
    scan = {"argv": ["sh", "-c", f"echo piece >> {lines}"], "cwd": str(site.work)}
    with BackgroundUser(own, users[1], widths=(3,)):
        site.until(lambda: all(c["waiting_there"] for c in site.ask("nodes")["clusters"]))
        answers = [
            site.ask("submit_workflow", token="w", job=flow, launch=launch),
            site.ask("submit", token="d", job=whole, launch=scan),
        ]
        jobs = [str(answer["job"]) for answer in answers]
        site.until(lambda: all_over(site, jobs), 120.0)
    assert [site.job(job)["state"] for job in jobs] == ["completed", "completed"]
    ran = lines.read_text().split()
    assert next(name for name in ran if name != "piece") == "x"
    assert sorted(name for name in ran if name != "piece") == ["x", "y", "z"]
    assert "piece" in ran


@needs_root
@pytest.mark.slow
def test_kills_during_the_negotiation(
    own: SlurmTestbed, site: SlurmSite, users: list[struct_passwd]
) -> None:
    """Daemon, executors and a slurmctld are killed while parts wait: each job runs once."""
    lines = site.work / "ran"
    widths = [1, 4, 2, 5, 1, 4, 2, 5]
    settle(own, own["b"])  # else ended jobs of earlier tests hold its nodes for minutes
    with BackgroundUser(own, users[1]):
        jobs = [
            site.submit(["sh", "-c", f"echo {n} $COALLOC_RANK >> {lines}; sleep 0.5"], width)
            for n, width in enumerate(widths)
        ]
        for victim in ("a", "coallocd", "b"):
            site.until(lambda: any(is_queued(site, job) for job in jobs) or all_over(site, jobs))
            site.kill(victim)
            if victim == "coallocd":
                own["b"].kill_controller()
                own["b"].start_controller()
                site.start_daemon()
            else:
                site.start_executor(victim)
        site.until(lambda: resumed(own["b"]) and all_over(site, jobs), 240.0)
    ended = {job: site.job(job) for job in jobs}
    assert {row["state"] for row in ended.values()} == {"completed"}, [
        (job, row["state"], row["reason"], row["detail"]) for job, row in ended.items()
    ]
    expected = Counter(f"{n} {rank}" for n, width in enumerate(widths) for rank in range(width))
    assert Counter(lines.read_text().splitlines()) == expected


def resumed(cluster: Cluster) -> bool:
    """Resume, as an operator does, nodes that Slurm itself has drained.

    A slurmctld that was killed gives its last numbers again: "Duplicate jobid".
    """
    for line in cluster.run("sinfo", "-h", "-N", "-o", "%N %T").splitlines():
        name, state = line.split()
        if state.startswith("drain"):
            cluster.run("scontrol", "update", f"NodeName={name}", "State=RESUME")
    for number in cluster.run("squeue", "-h", "-o", "%i %r").splitlines():
        if "requeued held" in number:
            cluster.run("scancel", number.split()[0])
    return True


def is_queued(site: SlurmSite, job: str) -> bool:
    return bool(site.job(job)["reason"] == "others_first")


def all_over(site: SlurmSite, jobs: list[str]) -> bool:
    return all(site.job(job)["state"] in ENDED for job in jobs)
