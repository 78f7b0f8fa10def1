"""Jobs that start in Slurm: held, bound to nodes, let go, and put back, by real Slurm."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from coalloc.adapters.base import ClaimRefusedError
from coalloc.adapters.runner.command import UnreachableError
from coalloc.adapters.slurm.commands import Slurm
from coalloc.adapters.slurm.native.launcher import NativeLauncher
from coalloc.adapters.slurm.reader import SlurmReader
from coalloc.adapters.slurm.settings import read_settings
from coalloc.model.shape import Shape
from coalloc.model.sites.parts import PartKey, PartReport, PartState
from coalloc.model.sites.reading import NativeJob
from tests.support.part_specs import part_spec
from tests.testbeds.slurm import ClusterShape, SlurmTestbed, bed

GIVEN = {
    "load": "none",
    "partition": "main",
    "handover_partition": "coalloc",
    "handover_comment": "order",
    "handover_wait_s": 5.0,
}


@pytest.fixture(scope="module")
def site() -> Iterator[SlurmTestbed]:
    shape = ClusterShape(
        name="h",
        nodes=4,
        conf="KillWait=2",
        partitions="PartitionName=coalloc Nodes=ALL State=DOWN\nPartitionName=open Nodes=ALL",
    )
    with bed(shape) as running:
        yield running


class Desk:
    """A cluster and its hand-over, which looks at Slurm whenever it is asked."""

    def __init__(self, site: SlurmTestbed, folder: Path) -> None:
        self.site, self.cluster, self.folder = site, site["h"], folder
        self.settings = read_settings(GIVEN, "h")
        self.attempt = 0
        self.launcher = self.opened()

    def opened(self, slurm: Slurm | None = None) -> NativeLauncher:
        slurm = self.cluster.slurm if slurm is None else slurm
        return NativeLauncher(self.settings, slurm, self.folder, look_every_s=0.0)

    def restart(self, slurm: Slurm | None = None) -> None:
        self.launcher = self.opened(slurm)
        self.launcher.adopt()

    def submit(self, *options: str, command: str = "true") -> str:
        answer = self.cluster.run(
            *("sbatch", "--parsable", "-o", "/dev/null", "-t", "5"), *options, "--wrap", command
        )
        return answer.strip()

    def claim(self, job: str, *nodes: str, **fields: Any) -> PartKey:
        self.attempt += 1
        counts = [(node, 1) for node in nodes]
        whole = {"job": "9", "attempt": self.attempt, "nodes": counts, "foreign": job}
        spec = part_spec(**{**whole, **fields})
        self.launcher.claim(spec)
        self.launcher.claim(spec)
        return spec.key

    def look(self, key: PartKey) -> PartReport:
        return next(report for report in self.launcher.poll() if report.key == key)

    def until(self, key: PartKey, *states: PartState) -> PartReport:
        found: list[PartReport] = []

        def is_there() -> bool:
            found.append(self.look(key))
            return found[-1].state in states

        self.site.wait(is_there, f"{key} is {states}")
        return found[-1]

    def shown(self, job: str, code: str) -> str:
        return self.cluster.run("squeue", "-h", "-t", "all", "-j", job, "-o", code).strip()

    def handed(self) -> dict[str, NativeJob]:
        reader = SlurmReader(self.settings, self.cluster.slurm, claimed=self.launcher.claimed)
        handed = reader.read().handed
        for act in reader.due():
            act.run()
        return {job.id: job for job in handed}

    def runs(self, job: str) -> None:
        self.site.wait(lambda: self.shown(job, "%T") == "RUNNING", f"{job} runs")


@pytest.fixture
def desk(site: SlurmTestbed, tmp_path: Path) -> Iterator[Desk]:
    yield Desk(site, tmp_path)
    cluster = site["h"]
    cluster.run("scancel", "-u", "root")
    site.wait(lambda: not cluster.run("squeue", "-h"), "every job has gone")


def test_runs_on_exactly_the_nodes_that_were_chosen(desk: Desk) -> None:
    job = desk.submit("-p", "coalloc", "-N2", "-n2", command="srun -n2 sleep 1")
    key = desk.claim(job, "h2", "h4")
    assert desk.look(key).state is PartState.READY
    assert desk.handed()[job].claimed
    assert desk.shown(job, "%T %P %r") == "PENDING main JobHeldAdmin"
    desk.launcher.go(key)
    running = desk.until(key, PartState.RUNNING)
    assert running.started is not None
    assert desk.shown(job, "%N") == "h[2,4]"
    assert job not in desk.handed() or desk.handed()[job].claimed
    end = desk.until(key, PartState.FINISHED)
    assert (end.codes, end.reason) == ((0,), "exited")
    desk.launcher.forget(key)
    assert desk.launcher.poll() == ()
    assert not desk.launcher.claimed()
    assert list((desk.folder / "handed").iterdir()) == []


@pytest.mark.parametrize(
    ("options", "slots"),
    [
        (("-N2", "-n6"), {3}),
        (("-N2", "--ntasks-per-node=1"), {1}),
        (("-N2", "--exclusive"), {8}),
        (("-N2", "-n2", "--contiguous"), {1}),
    ],
)
def test_layout_is_kept_where_cpus_are_given_out(
    desk: Desk, options: tuple[str, ...], slots: set[int]
) -> None:
    """All CPUs that it needs are free on one node; it runs on two, as it was laid out."""
    desk.settings = read_settings({**GIVEN, "slots": "cpus"}, "h")
    desk.restart()
    job = desk.submit("-p", "coalloc", *options, command="sleep 1")
    assert desk.handed()[job].waits == ""
    key = desk.claim(job, "h3")
    desk.launcher.abort(key, "not yet")  # it goes back as it was
    desk.until(key, PartState.REFUSED)
    assert desk.shown(job, "%P %D") == "coalloc 2"
    key = desk.claim(job, "h3")
    desk.launcher.go(key)
    running = desk.until(key, PartState.RUNNING)
    assert (len(running.nodes), set(running.nodes.values())) == (2, slots)
    assert desk.shown(job, "%D") == "2"
    assert desk.until(key, PartState.FINISHED).codes == (0,)


def test_a_layout_that_a_shape_says_runs_where_it_was_placed(desk: Desk) -> None:
    desk.settings = read_settings({**GIVEN, "slots": "cpus"}, "h")
    desk.restart()
    job = desk.submit("-p", "coalloc", "-N2", "--ntasks-per-node=2", "-c3", command="sleep 1")
    handed = desk.handed()[job]
    assert (handed.procs, handed.waits) == (4, "")
    shape = Shape(cpus_per_proc=3, min_nodes=2, max_nodes=2, procs_per_node=2)
    assert handed.shape == shape
    key = desk.claim(job, nodes=[("h2", 2), ("h4", 2)], shape=shape)
    desk.launcher.abort(key, "not yet")  # it goes back as it was
    desk.until(key, PartState.REFUSED)
    assert (desk.shown(job, "%P %D"), desk.handed()[job]) == ("coalloc 2", handed)
    key = desk.claim(job, nodes=[("h2", 2), ("h4", 2)], shape=shape)
    desk.launcher.go(key)
    desk.until(key, PartState.RUNNING)
    assert desk.shown(job, "%N %C") == "h[2,4] 12"
    assert desk.until(key, PartState.FINISHED).codes == (0,)


def test_exit_code_and_time_limit_are_slurms(desk: Desk) -> None:
    bad = desk.submit("-p", "coalloc", "-N1", command="exit 7")
    killed = desk.submit("-p", "coalloc", "-N1", command="kill -9 $$")
    first, second = desk.claim(bad, "h1"), desk.claim(killed, "h2")
    for key in (first, second):
        desk.launcher.go(key)
    assert desk.until(first, PartState.FINISHED).codes == (7,)
    end = desk.until(second, PartState.FINISHED)
    assert (end.codes, end.reason) == ((-9,), "signalled")


def test_a_task_of_an_array_is_a_job_of_its_own(desk: Desk) -> None:
    array = desk.submit("-p", "coalloc", "-N1", "-a", "1-3", command="exit $SLURM_ARRAY_TASK_ID")
    assert {f"{array}_1", f"{array}_2", f"{array}_3"} <= set(desk.handed())
    key = desk.claim(f"{array}_2", "h3")
    desk.launcher.go(key)
    assert desk.until(key, PartState.FINISHED).codes == (2,)
    assert set(desk.handed()) == {f"{array}_1", f"{array}_3"}


def test_held_with_a_comment(desk: Desk) -> None:
    job = desk.submit("--hold", "--comment", "order", "-N1")
    key = desk.claim(job, "h1")
    desk.launcher.abort(key, "no room")
    assert desk.look(key).reason == "aborted"
    assert desk.handed()[job].waits == "", "put back, it is ours to order again"
    key = desk.claim(job, "h2")
    desk.launcher.go(key)
    assert desk.until(key, PartState.FINISHED).codes == (0,)
    assert desk.shown(job, "%N") == "h2"


def test_an_abort_puts_it_back(desk: Desk) -> None:
    job = desk.submit("-p", "coalloc", "-N2")
    before = desk.handed()[job]
    key = desk.claim(job, "h1", "h2")
    desk.launcher.abort(key, "cancelled by ann")
    report = desk.look(key)
    assert (report.state, report.detail) == (PartState.REFUSED, "cancelled by ann")
    assert desk.shown(job, "%P %n %D") == "coalloc  2"
    assert desk.handed()[job] == before


def test_an_abort_of_a_running_job_ends_it(desk: Desk) -> None:
    job = desk.submit("-p", "coalloc", "-N1", command="sleep 600")
    key = desk.claim(job, "h1")
    desk.launcher.go(key)
    desk.until(key, PartState.RUNNING)
    desk.launcher.abort(key, "cancelled by ann")
    end = desk.until(key, PartState.FINISHED)
    assert (end.reason, end.detail) == ("aborted", "cancelled by ann")
    assert end.exit_code != 0


def test_cancelled_in_slurm(desk: Desk) -> None:
    waiting = desk.submit("-p", "coalloc", "-N1")
    key = desk.claim(waiting, "h1")
    desk.cluster.run("scancel", waiting)
    end = desk.until(key, PartState.REFUSED)
    assert end.reason == "cancelled_there"
    running = desk.submit("-p", "coalloc", "-N1", command="sleep 600")
    key = desk.claim(running, "h1")
    desk.launcher.go(key)
    desk.until(key, PartState.RUNNING)
    desk.cluster.run("scancel", running)
    end = desk.until(key, PartState.FINISHED)
    assert end.reason == "cancelled_there"
    with pytest.raises(ClaimRefusedError, match="is cancelled in Slurm"):
        desk.claim(running, "h1")
    with pytest.raises(ClaimRefusedError, match="is gone in Slurm"):
        desk.claim("99999", "h1")


def test_requeued_by_slurm(desk: Desk) -> None:
    job = desk.submit("-p", "coalloc", "-N1", command="sleep 600")
    key = desk.claim(job, "h1")
    desk.launcher.go(key)
    desk.until(key, PartState.RUNNING)
    desk.cluster.run("scontrol", "requeue", job)
    end = desk.until(key, PartState.FINISHED)
    assert end.reason == "requeued"
    assert end.started is not None

    def is_back() -> bool:
        desk.look(key)
        return job in desk.handed() and not desk.handed()[job].claimed

    desk.site.wait(is_back, "the job waits for us again")
    assert desk.shown(job, "%P") == "coalloc"


def test_what_slurm_does_not_start_is_taken_back(desk: Desk) -> None:
    blocker = desk.submit("-w", "h1", "--exclusive", command="sleep 600")
    desk.runs(blocker)
    job = desk.submit("-p", "coalloc", "-N1")
    key = desk.claim(job, "h1")
    desk.launcher.go(key)
    assert desk.look(key).state is PartState.READY
    end = desk.until(key, PartState.REFUSED)
    assert (end.reason, end.detail) == ("not_started", "Slurm did not start it within 5 s")
    assert desk.shown(job, "%T %P") == "PENDING coalloc"


def test_a_restart_at_every_step(desk: Desk) -> None:
    job = desk.submit("-p", "coalloc", "-N1", command="sleep 1; exit 4")
    key = desk.claim(job, "h3")
    desk.restart()
    assert desk.look(key).state is PartState.READY
    assert desk.launcher.claimed() == {job}
    desk.launcher.go(key)
    desk.restart()
    desk.until(key, PartState.RUNNING)
    desk.restart()
    assert desk.until(key, PartState.FINISHED).codes == (4,)
    desk.restart()
    assert desk.look(key).codes == (4,)


class Deaf(Slurm):
    """Commands of which some get no answer; what they ask for is done, or it is not."""

    def run(self, name: str, *arguments: str, **kwargs: object) -> str:
        if LOSE and LOSE[0](name, *arguments):
            if LOSE[1](name):
                super().run(name, *arguments, **kwargs)  # type: ignore[arg-type]
            raise UnreachableError(name, "no answer within 4 s")
        return super().run(name, *arguments, **kwargs)  # type: ignore[arg-type]


LOSE: list[Callable[..., bool]] = []


@pytest.mark.parametrize("done", [True, False])
def test_a_release_without_an_answer(desk: Desk, done: bool) -> None:
    job = desk.submit("-p", "coalloc", "-N1")
    key = desk.claim(job, "h3")
    desk.restart(Deaf(conf=str(desk.cluster.conf)))
    LOSE[:] = [lambda *words: "release" in words, lambda name: done]
    desk.launcher.go(key)
    LOSE.clear()
    assert desk.until(key, PartState.FINISHED).codes == (0,)


def test_an_unreachable_slurm_changes_nothing(desk: Desk) -> None:
    job = desk.submit("-p", "coalloc", "-N1", command="sleep 600")
    key = desk.claim(job, "h3")
    desk.launcher.go(key)
    running = desk.until(key, PartState.RUNNING)
    desk.restart(Deaf(conf=str(desk.cluster.conf)))
    LOSE[:] = [lambda *words: True, lambda name: False]
    assert desk.look(key) == running
    LOSE.clear()
    desk.launcher.abort(key)
    assert desk.until(key, PartState.FINISHED).reason == "aborted"


def test_a_return_without_an_answer_is_tried_again(desk: Desk) -> None:
    job = desk.submit("-p", "coalloc", "-N1")
    key = desk.claim(job, "h3")
    desk.restart(Deaf(conf=str(desk.cluster.conf)))
    LOSE[:] = [lambda *words: "update" in words, lambda name: False]
    desk.launcher.abort(key)
    desk.launcher.forget(key)
    assert desk.launcher.claimed() == {job}
    assert desk.launcher.poll() == ()
    LOSE.clear()
    desk.launcher.poll()
    assert desk.launcher.claimed() == frozenset()
    assert desk.handed()[job].waits == ""


def test_dismissed(desk: Desk) -> None:
    job = desk.submit("-p", "coalloc", "-N1")
    desk.launcher.dismiss(job)
    assert desk.shown(job, "%T") == "CANCELLED"
    desk.launcher.dismiss(job)
    desk.launcher.dismiss("99999")
