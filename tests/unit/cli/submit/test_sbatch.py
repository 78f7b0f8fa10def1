"""``coalloc sbatch``: from a script of Slurm's to the body of a request."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from coalloc.cli import main
from tests.unit.cli.submit.test_command import FakeClient, client, script

__all__ = ["client"]


def queued(client: FakeClient, *words: str) -> dict[str, Any]:
    assert main.main(["sbatch", *words]) == 0
    return client.sent[-1]


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """The one line of a script that is refused."""
    assert main.main(["sbatch", *words]) == 2
    out, err = capsys.readouterr()
    assert not out
    assert err.count("\n") == 1, err
    return err.removeprefix("coalloc: error: ").strip()


@pytest.fixture
def srun(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The command on PATH, also where Slurm is not installed."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "srun").touch(mode=0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")


@pytest.mark.usefixtures("srun")
def test_a_script_as_it_is(client: FakeClient, capsys: pytest.CaptureFixture[str]) -> None:
    name = script(
        "#!/bin/bash\n#SBATCH --job-name=model -n64   # wide\n#SBATCH --time=2:00:00\n\n"
        "#SBATCH --mem-per-cpu 2G -p main\n#SBATCH -A chem --no-requeue\n#COALLOC --weight 2\n"
        "srun ./model\n#SBATCH -n 1\n"
    )
    body = queued(client, "-t", "30", name, "--exclusive", "-n", "3")
    assert (body["name"], body["once"]) == ("model", True)
    assert body["job"] == {
        "kind": "rigid",
        "procs": 64,
        "time_limit": 1800.0,
        "weight": 2.0,
        "memory_mb_per_proc": 2048,
        "one_cluster": True,
    }
    assert body["batch"] == {"account": "chem", "partition": "main"}
    assert body["launch"]["argv"] == ["job.sh", "--exclusive", "-n", "3"]
    assert body["launch"]["script"].startswith("#!/bin/bash\n")
    assert "requeue" not in body
    late = "coalloc: warning: job.sh: options behind the first command are not read, in line 9\n"
    assert capsys.readouterr() == ("Submitted batch job 7\n", late)


@pytest.mark.parametrize(
    ("words", "procs"),
    [
        ("-N 4 --ntasks-per-node=16", 64),
        ("--ntasks-per-node=16", 16),
        ("--nodes=3", 3),
        ("-N1", 1),
        ("-n 10 -N 4", 10),
        ("-n 1-8", (1, 8)),
        ("-N 2-2 --tasks-per-node 2", 4),
    ],
)
def test_processes_of_nodes(client: FakeClient, words: str, procs: object) -> None:
    job = queued(client, *words.split(), "--wrap", "srun x")["job"]
    found = job["procs"] if "procs" in job else (job["min_procs"], job["max_procs"])
    assert found == procs


@pytest.mark.parametrize(
    ("words", "mb"),
    [
        ("--mem=4G", 4096),
        ("-N 2 -n 10 --mem=1000", 200),
        ("--ntasks-per-node=3 --mem=1000", 334),
        ("-n 8 --mem=0", None),
        ("-n 8 --mem-per-cpu=1G", 1024),
    ],
)
def test_memory_of_nodes(client: FakeClient, words: str, mb: int | None) -> None:
    body = queued(client, *words.split(), "--wrap", "srun x")
    assert body["job"].get("memory_mb_per_proc") == mb


def test_devices_of_nodes_are_generic_resources(client: FakeClient) -> None:
    body = queued(client, "--gpus-per-node=a100:2", "--gres=nvme", "--wrap", "x")
    assert body["batch"] == {"gres": "nvme,gpu:a100:2"}


def test_each_option_without_an_equal_is_named_with_its_line(
    client: FakeClient, capsys: pytest.CaptureFixture[str]
) -> None:
    name = script(
        "#!/bin/sh\n#SBATCH --exclusive\n#SBATCH --mail-type=END,FAIL\n#SBATCH --nice=5 -N 2\n"
        "#SBATCH --open-mode=append --mail-type=NONE\ntrue\n"
    )
    queued(client, name)
    told = capsys.readouterr().err.splitlines()
    assert told == [
        "coalloc: warning: job.sh:2: --exclusive: is not passed on; a site says whether a slot is "
        "a whole node",
        "coalloc: warning: job.sh:4: --nice=5: is not passed on; --weight says how important",
        "coalloc: warning: job.sh:4: --nodes=2: 2 processes, on nodes that the planner chooses",
    ]
    queued(client, "--exclusive", "--wrap", "true")
    assert "warning: sbatch: --exclusive: is not" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("-w n1", "job.sh:3: --nodelist=n1: nodes cannot be named"),
        ("--signal=B:USR1@60", "job.sh:3: --signal=B:USR1@60: no signal is sent ahead"),
        ("--gpus=4", "job.sh:3: --gpus=4: GPUs are asked for on each node"),
        ("-c 8", "job.sh:3: --cpus-per-task=8: a process takes one slot"),
        ("-N 1", "job.sh:3: --nodes=1: 4 processes may get slots of several nodes"),
        ("--mem=4G", "job.sh:3: --mem=4096M: is of a node, and nothing says how many"),
        ("hetjob", "job.sh:3: hetjob: jobs of several components are not run here"),
        ("--no-such-option", "job.sh:3: unrecognized arguments: --no-such-option"),
        ("words", "job.sh:3: 'words' is no option"),
        ("-t soon", "job.sh:3: argument -t/--time: 'soon' is not a time"),
        ("-J 'open", "job.sh:3: no closing quotation '"),
        ("-N 2-4", "job.sh:3: --nodes=2-4: a range of nodes is not taken; write --nodes=2 or"),
        ("-J ''", "job.sh:3: sbatch knows no empty word"),
        ("--nta=4", "job.sh:3: unrecognized arguments: --nta=4"),
        ("--hold=1", "job.sh:3: argument --hold: takes no value"),
        ("-t", "job.sh:3: argument --time: expected one argument"),
        ("--divisible 5h", "job.sh:3: unrecognized arguments: --divisible"),
    ],
)
def test_what_would_change_what_runs_is_refused(
    client: FakeClient, capsys: pytest.CaptureFixture[str], line: str, told: str
) -> None:
    name = script(f"#!/bin/sh\n#SBATCH -n 4\n#SBATCH {line}\nsrun true\n")
    assert refused(capsys, name).startswith(told)
    assert not client.sent


def test_all_refusals_are_told_at_once(
    client: FakeClient, capsys: pytest.CaptureFixture[str]
) -> None:
    name = script(
        "#!/bin/sh\n#SBATCH -c 4 -n 4\n#SBATCH --mem=4G -t soon\n#SBATCH --signal=USR1\ntrue\n"
    )
    assert main.main(["sbatch", name]) == 2
    lines = [line.split(": ")[2:4] for line in capsys.readouterr().err.splitlines()]
    assert lines == [
        ["job.sh:2", "--cpus-per-task=4"],
        ["job.sh:3", "argument -t/--time"],
        ["job.sh:3", "--mem=4096M"],
        ["job.sh:4", "--signal=USR1"],
    ]


def test_variables_of_sbatch_stand_over_the_script_and_below_the_command_line(
    client: FakeClient, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    name = script("#!/bin/sh\n#SBATCH -t 5 -J of-the-script -o of-the-script\ntrue\n")
    monkeypatch.setenv("SBATCH_TIMELIMIT", "1")
    monkeypatch.setenv("SBATCH_JOB_NAME", "of-the-variable")
    monkeypatch.setenv("SBATCH_REQUEUE", "no")
    monkeypatch.setenv("SBATCH_SPREAD_JOB", "")
    body = queued(client, "-J", "typed", name)
    assert (body["name"], body["job"]["time_limit"]) == ("typed", 60.0)
    assert body["launch"]["stdout"] == "of-the-script"
    assert "requeue" not in body
    assert "warning: SBATCH_SPREAD_JOB: --spread-job: is not" in capsys.readouterr().err
    monkeypatch.setenv("SBATCH_TIMELIMIT", "soon")
    assert refused(capsys, name).startswith("SBATCH_TIMELIMIT: argument -t/--time: 'soon' is not")


def test_an_option_is_completed_as_sbatch_does_and_said(
    client: FakeClient, capsys: pytest.CaptureFixture[str]
) -> None:
    name = script("#!/bin/sh\n#SBATCH --tasks=4\ntrue\n")
    assert queued(client, name)["job"]["procs"] == 4
    assert "job.sh:2: --tasks is taken for --ntasks-per-node" in capsys.readouterr().err
    assert main.main(["sbatch", "--tasks=4", name]) == 2


def test_the_command_line_overrules_what_is_refused(client: FakeClient) -> None:
    name = script("#!/bin/sh\n#SBATCH -c 8 -n 2 --input=data\ntrue\n")
    assert queued(client, "-c1", "-i", "/dev/null", name)["job"]["procs"] == 2


def test_what_is_printed(client: FakeClient, capsys: pytest.CaptureFixture[str]) -> None:
    queued(client, "--parsable", "--wrap", "true")
    queued(client, "-Q", "--wrap", "true")
    assert capsys.readouterr() == ("7\n", "")


def test_a_command_is_no_script(client: FakeClient, capsys: pytest.CaptureFixture[str]) -> None:
    assert refused(capsys, "--", "srun", "x").startswith("sbatch: a script is wanted")
    assert refused(capsys, "--wrap", "x", "job.sh").startswith("sbatch: --wrap takes no script")
    assert refused(capsys, "absent.sh").startswith("absent.sh: ")
    assert not client.sent


def test_submit_starts_a_command_once(client: FakeClient) -> None:
    assert main.main(["submit", "--once", "-n", "4", "--", "./driver"]) == 0
    assert main.main(["submit", "--one-cluster", "--", "./driver"]) == 0
    once, whole = client.sent
    assert (once["once"], once["job"]["one_cluster"]) == (True, True)
    assert ("once" in whole, whole["job"]["one_cluster"]) == (False, True)
    assert main.main(["submit", "--divisible", "1h", "--chunk", "1m", "--once", "--", "x"]) == 2
