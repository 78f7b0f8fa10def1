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
        "shape": {"cpus_per_proc": 1},
        "one_cluster": True,
    }
    assert body["batch"] == {"account": "chem", "partition": "main"}
    assert body["launch"]["argv"] == ["job.sh", "--exclusive", "-n", "3"]
    assert body["launch"]["script"].startswith("#!/bin/bash\n")
    assert "requeue" not in body
    late = "coalloc: warning: job.sh: options behind the first command are not read, in line 9\n"
    assert capsys.readouterr() == ("Submitted batch job 7\n", late)


def test_a_range_of_processes_has_a_shape_too(client: FakeClient) -> None:
    job = queued(client, *["-n", "1-8", "-N", "2-9", "--mem=4G", "--wrap", "x"])["job"]
    assert (job["min_procs"], job["max_procs"]) == (1, 8)
    assert job["shape"] == {
        "cpus_per_proc": 1,
        "memory_mb_per_node": 4096,
        "max_nodes": 8,
    }


def test_each_option_without_an_equal_is_named_with_its_line(
    client: FakeClient, capsys: pytest.CaptureFixture[str]
) -> None:
    name = script(
        "#!/bin/sh\n#SBATCH --exclusive -x n1\n#SBATCH --mail-type=END,FAIL\n"
        "#SBATCH --nice=5 -N 3 -n 2 --contiguous\n"
        "#SBATCH --open-mode=append --mail-type=NONE\ntrue\n"
    )
    body = queued(client, name)
    told = capsys.readouterr().err.splitlines()
    assert told == [
        "coalloc: warning: job.sh:4: --nice=5: is not passed on; --weight says how important",
        "coalloc: warning: job.sh:4: can't run 2 processes on 3 nodes, setting nnodes to 2",
    ]
    assert body["batch"] == {"passed": ("--exclude=n1", "--contiguous")}
    assert body["job"]["shape"]["exclusive"] is True


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("--gpus-per-socket=4", "job.sh:3: --gpus-per-socket=4: GPUs are asked for by"),
        ("--gpus=6", "job.sh:3: --gpus: 6 in all are not the same on each node or for each"),
        ("--cpus-per-gpu=3 --gpus-per-node=1", "job.sh:3: --cpus-per-gpu: 3 CPUs of a node's"),
        ("--gres=gpu:1,gpu:a:1", "job.sh:3: argument --gres: Invalid GRES specification (with"),
        ("--gres=gpu:1 --gpus-per-task=a:1", "job.sh:3: --gres: Invalid GRES specification (with"),
        ("--mem=4G --mem-per-cpu=1G", "job.sh:3: --mem is mutually exclusive with --mem-per-cpu"),
        ("--mem-per-proc=4G --mem-per-cpu=1G", "job.sh:3: --mem-per-cpu is mutually exclusive wi"),
        ("--exclusive=some", "job.sh:3: argument --exclusive: invalid choice: 'some'"),
        ("hetjob", "job.sh:3: hetjob: jobs of several components are not run here"),
        ("--no-such-option", "job.sh:3: unrecognized arguments: --no-such-option"),
        ("words", "job.sh:3: 'words' is no option"),
        ("-t soon", "job.sh:3: argument -t/--time: 'soon' is not a time"),
        ("-J 'open", "job.sh:3: no closing quotation '"),
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
        "#!/bin/sh\n#SBATCH --bb=4 -n 4\n#SBATCH --gpus=6 -t soon\n#SBATCH --uid=0\ntrue\n"
    )
    assert main.main(["sbatch", name]) == 2
    lines = [line.split(": ")[2:4] for line in capsys.readouterr().err.splitlines()]
    assert lines == [
        ["job.sh:2", "--bb=4"],
        ["job.sh:3", "argument -t/--time"],
        ["job.sh:3", "--gpus"],
        ["job.sh:4", "--uid=0"],
    ]


def test_variables_of_sbatch_stand_over_the_script_and_below_the_command_line(
    client: FakeClient, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    name = script("#!/bin/sh\n#SBATCH -t 5 -J of-the-script -o of-the-script\ntrue\n")
    monkeypatch.setenv("SBATCH_TIMELIMIT", "1")
    monkeypatch.setenv("SBATCH_JOB_NAME", "of-the-variable")
    monkeypatch.setenv("SBATCH_REQUEUE", "no")
    monkeypatch.setenv("SBATCH_OPEN_MODE", "truncate")
    body = queued(client, "-J", "typed", name)
    assert (body["name"], body["job"]["time_limit"]) == ("typed", 60.0)
    assert body["launch"]["stdout"] == "of-the-script"
    assert "requeue" not in body
    assert "warning: SBATCH_OPEN_MODE: --open-mode=truncate: out" in capsys.readouterr().err
    monkeypatch.setenv("SBATCH_TIMELIMIT", "soon")
    assert refused(capsys, name).startswith("SBATCH_TIMELIMIT: argument -t/--time: 'soon' is not")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("-N 2 --gpus-per-node=2", {"SLURM_GPUS_PER_NODE": "2"}),
        ("--gpus=a100:1", {"SLURM_GPUS": "a100:1"}),
        ("-N 1 --gres=gpu:2", {}),
    ],
)
def test_variables_repeat_the_gpus_that_were_asked_for(
    client: FakeClient, monkeypatch: pytest.MonkeyPatch, words: str, told: dict[str, str]
) -> None:
    monkeypatch.setenv("SLURM_GPUS", "8")  # of the job in which it is submitted
    env = queued(client, *words.split(), "--wrap", "true")["launch"]["env"]
    assert {name: env[name] for name in env if name.startswith("SLURM_GPUS")} == told


def test_an_option_is_completed_as_sbatch_does_and_said(
    client: FakeClient, capsys: pytest.CaptureFixture[str]
) -> None:
    name = script("#!/bin/sh\n#SBATCH --tasks=4\ntrue\n")
    assert queued(client, name)["job"]["procs"] == 4
    assert "job.sh:2: --tasks is taken for --ntasks-per-node" in capsys.readouterr().err
    assert main.main(["sbatch", "--tasks=4", name]) == 2


def test_the_command_line_overrules_what_is_refused(client: FakeClient) -> None:
    name = script("#!/bin/sh\n#SBATCH -c 8 -n 2 --input=data\ntrue\n")
    assert queued(client, "-c1", "-i", "/dev/null", name)["job"]["shape"] == {"cpus_per_proc": 1}


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
