"""Scripts as sbatch runs them: started once, with srun for the processes; on real Slurm."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from coalloc.model.sites.parts import PartSpec, PartState
from tests.support.launch_bed import Signpost
from tests.testbeds.slurm import Cluster, SlurmTestbed
from tests.testbeds.slurm_launches import SlurmLaunches
from tests.testbeds.slurm_site import SlurmSite

TWO = (("a1", 8), ("a2", 2))
"""More than one node has, so that both ways of claiming get the same."""
PROCS = 10


@pytest.fixture(params=("salloc", "sbatch"))
def launch(
    clusters: SlurmTestbed, root: Path, request: pytest.FixtureRequest
) -> Iterator[SlurmLaunches]:
    running = SlurmLaunches(root, clusters["a"], start=str(request.param), slots="cpus")
    yield running
    running.close()
    assert running.jobs() == []


@pytest.fixture
def sign(root: Path) -> Iterator[Signpost]:
    signpost = Signpost(root / "signpost")
    yield signpost
    signpost.close()


def script(launch: SlurmLaunches, text: str, **fields: Any) -> PartSpec:
    given = {"nodes": TWO, "size": PROCS, "once": True, "name": "model", **fields}
    env = {"PATH": "/usr/bin:/bin", "SLURM_NTASKS": "77", "SLURM_CPU_BIND": "none"}
    return launch.spec("job.sh", script=f"#!/bin/sh\n{text}\n", env=env, **given)


def test_srun_starts_a_process_in_each_slot(launch: SlurmLaunches) -> None:
    text = (
        "echo started\n"
        "srun sh -c 'echo task $SLURMD_NODENAME $SLURM_PROCID of $SLURM_NTASKS'\n"
        "srun -n 1 -N 1 echo one\n"
        "echo $SLURM_NTASKS $SLURM_NNODES $SLURM_JOB_NAME $SLURM_JOB_ID $COALLOC_SLURM_JOB_ID\n"
        'echo "$SLURM_TASKS_PER_NODE ${SLURM_CPU_BIND-no} ${RANK-no} ${COALLOC_RANK-no}"\n'
        "cat $COALLOC_HOSTFILE\n"
        "exit 3"
    )
    report = launch.run(script(launch, text))
    lines = launch.output().splitlines()
    assert (report.state, report.exit_code, report.codes) == (PartState.FINISHED, 3, (3,)), lines
    assert report.detail == "its command exited with 3"
    assert lines.count("started") == 1
    tasks = [line.split() for line in lines if line.startswith("task ")]
    assert sorted(task[1] for task in tasks) == ["a1"] * 8 + ["a2"] * 2
    assert {tuple(task[2:]) for task in tasks} == {(str(n), "of", "10") for n in range(PROCS)}
    assert lines.count("one") == 1
    said = next(line for line in lines if line.startswith("10 2 model ")).split()
    assert said[3] == said[4]
    assert said[3].isdecimal()
    assert "8,2 no no no" in lines
    assert lines[-2:] == ["a1 slots=8", "a2 slots=2"]
    assert launch.cluster.is_idle(), "the nodes are free when the end is known"


def test_steps_of_a_script_share_no_slots(launch: SlurmLaunches) -> None:
    text = (
        "srun sh -c 'echo > up.$SLURM_PROCID; exec sleep 600' &\n"
        f"until [ $(ls | grep -c up) = {PROCS} ]; do :; done\n"
        "srun --immediate true || echo refused"
    )
    assert launch.run(script(launch, text)).exit_code == 0
    assert "refused" in launch.output().splitlines()


def test_cancel_ends_what_srun_has_started(launch: SlurmLaunches, sign: Signpost) -> None:
    wait = f"srun sh -c 'echo $$ > {sign.path}; exec sleep 600'\necho not reached"
    spec = script(launch, wait)
    launch.start(spec)
    pids = [int(sign.line()) for _ in range(PROCS)]
    launch.launcher.abort(spec.key, reason="cancelled")
    report = launch.ended(spec.key)
    assert report.state is PartState.FINISHED
    assert report.reason == "aborted"
    launch.wait_idle()
    assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]
    assert "not reached" not in launch.output()


def test_what_is_left_in_the_background_ends_with_the_script(
    launch: SlurmLaunches, sign: Signpost
) -> None:
    gate = Path(f"{sign.path}.go")
    text = f"srun sh -c 'echo $$ > {sign.path}; exec sleep 600' &\nread line < {gate}"
    spec = script(launch, text)
    os.mkfifo(gate, 0o666)
    launch.start(spec)
    pids = [int(sign.line()) for _ in range(PROCS)]
    gate.write_text("go\n")
    report = launch.ended(spec.key)
    assert (report.state, report.exit_code) == (PartState.FINISHED, 0)
    launch.wait_idle()
    assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]


def test_whole_nodes_get_a_process_each(clusters: SlurmTestbed, root: Path) -> None:
    launch = SlurmLaunches(root, clusters["b"])
    try:
        spec = script(launch, "srun -l printenv SLURMD_NODENAME", nodes=launch.all_nodes, size=4)
        assert launch.run(spec).exit_code == 0, launch.output()
        lines = [line.split(": ") for line in launch.output().splitlines()]
        assert sorted(lines) == [[str(n), f"b{n + 1}"] for n in range(4)]
    finally:
        launch.close()


SHOWN = 'env -0 | tr "\\n" " " | tr "\\0" "\\n" | grep ^SLURM'
OF_EACH = ("SLURM_JOB_ID", "SLURM_JOBID", "SLURM_TASK_PID")
OF_EACH_ARRAY = ("SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID")


def variables(path: Path, *, without: Sequence[str] = OF_EACH) -> dict[str, str]:
    """What a script has been told; of values that cannot be equal the names alone."""
    found = dict(line.split("=", 1) for line in path.read_text().splitlines())
    return found | dict.fromkeys(found.keys() & set(without), "")


@pytest.mark.parametrize(("nodes", "memory_mb"), [((("a1", 3),), 0), (TWO, 500)])
def test_a_script_is_told_what_sbatch_tells_it(
    launch: SlurmLaunches, nodes: Any, memory_mb: int
) -> None:
    size = sum(count for _, count in nodes)
    words = ["-n", str(size), "-J", "model", "-o", "plain"]
    words += [f"--mem-per-cpu={memory_mb}"] if memory_mb else []
    (launch.cwd / "job.sh").write_text(f"#!/bin/sh\n{SHOWN}\n")
    plain_sbatch(launch.cluster, launch.cwd, *words)
    spec = script(launch, SHOWN, nodes=nodes, size=size, memory_mb_per_proc=memory_mb)
    assert launch.run(spec).exit_code == 0
    plain = variables(launch.cwd / "plain")
    assert plain
    assert variables(launch.cwd / "coalloc-1.out") == plain


def plain_sbatch(cluster: Cluster, folder: Path, *words: str) -> None:
    """Have Slurm run ``job.sh``, submitted in its folder."""
    env = cluster.slurm.environment()
    subprocess.run(["sbatch", "-W", "-t1", "-Q", *words, "job.sh"], cwd=folder, env=env, check=True)


def coalloc_sbatch(site: SlurmSite, *words: str) -> subprocess.CompletedProcess[str]:
    """The same of coalloc."""
    return subprocess.run(
        [sys.executable, "-m", "coalloc.cli.main", "sbatch", "--config", str(site.config), *words],
        cwd=site.work,
        env={"PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=True,
    )


def test_an_array_is_told_and_shown_what_sbatch_makes_of_it(
    clusters: SlurmTestbed, root: Path
) -> None:
    site = SlurmSite(root, clusters, given={"slots": "cpus", "qualified": True})
    (site.work / "job.sh").write_text(f"#!/bin/sh\n{SHOWN}\nscontrol show job $SLURM_JOB_ID\n")
    of_each = (*OF_EACH, *OF_EACH_ARRAY)
    with site:
        plain_sbatch(clusters["a"], site.work, "-n1", "-a", "2-8:3", "-o", "plain.%x.%N.%a")
        words = ("-M", "a", "-t", "30s", "-a", "2-8:3", "-o", "ours.%x.%N.%a", "job.sh")
        assert coalloc_sbatch(site, *words).stdout == "Submitted batch job 1\n"
        for index in (2, 5, 8):
            assert site.wait(f"1_{index}")["exit_code"] == 0
            told = []
            # The nodes of the testbed are one host, of which sbatch says the name.
            host = os.uname().nodename.partition(".")[0]
            for name in (f"plain.job.sh.{host}.{index}", f"ours.job.sh.a1.{index}"):
                path = site.work / name
                text, shown, job = path.read_text().partition("JobId=")
                path.write_text(text)
                told.append(variables(path, without=of_each))
                assert shown
                assert f" WorkDir={site.work}" in job.replace("\n", " ")
                assert " TimeLimit=00:01:00 " in job
            plain, ours = told
            assert ours == plain


UNCHANGED = """\
#!/bin/bash
#SBATCH --job-name=hosts
#SBATCH -n 10 --time=5   # minutes
#SBATCH --mail-type=END
echo "started by $SLURM_JOB_NAME in $SLURM_SUBMIT_DIR" "$@"
srun sh -c 'echo task $SLURMD_NODENAME'
"""


def test_a_script_of_slurm_runs_unchanged(clusters: SlurmTestbed, root: Path) -> None:
    site = SlurmSite(root, clusters, given={"slots": "cpus"})
    (site.work / "job.sh").write_text(UNCHANGED)
    with site:
        queued = coalloc_sbatch(site, "-o", "%x.out", "job.sh", "with", "words")
        assert queued.stdout == "Submitted batch job 1\n"
        assert "warning: no mail is sent to users here" in queued.stderr
        details = site.wait("1")
        lines = (site.work / "hosts.out").read_text().splitlines()
        assert (details["state"], details["exit_code"]) == ("completed", 0), lines
        assert len(details["clusters"]) == 1
        said = [line for line in lines if line.startswith("started ")]
        assert said == [f"started by hosts in {site.work} with words"]
        tasks = [line.split()[1] for line in lines if line.startswith("task ")]
        assert len(tasks) == PROCS
        assert len(set(tasks)) == 2, "a node has eight processors"
