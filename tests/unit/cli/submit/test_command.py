"""``coalloc submit``: from a command line and a script to the body of a request."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from coalloc.adapters.part_folder import write_users
from coalloc.cli import main
from coalloc.cli.submit import options as submit_options
from coalloc.client.client import Client
from coalloc.model.sites.parts import Launch
from coalloc.model.values import replace
from coalloc.wire.answers import EndedJob, Estimate, Submitted
from tests.support.part_specs import part_spec


class FakeClient:
    """Stands in for the connection; keeps what would have been sent."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.sent: list[dict[str, Any]] = []
        self.ended: tuple[EndedJob, ...] = (EndedJob(id="7", state="completed", exit_code=0),)

    def __enter__(self) -> FakeClient:
        return self

    def __exit__(self, *args: object) -> None:
        pass

    def send_submission(self, body: dict[str, Any]) -> Submitted:
        self.sent.append(body)
        return Submitted(job="7", jobs=("7",), token=body["token"])

    def test_submission(self, body: dict[str, Any]) -> Estimate:
        self.sent.append(body)
        return Estimate(start_estimate=None, reason="insufficient", detail="no node is up")

    def wait(self, job: str, timeout: float | None = None) -> tuple[EndedJob, ...]:
        return self.ended


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeClient:
    fake = FakeClient()
    monkeypatch.setattr(submit_options, "connect", lambda args: fake)
    monkeypatch.chdir(tmp_path)
    return fake


def script(text: str, name: str = "job.sh") -> str:
    Path(name).write_text(text)
    return name


def sent(client: FakeClient, *words: str) -> dict[str, Any]:
    assert main.main(["submit", *words]) == 0
    return client.sent[-1]


def refusal(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """The one line of a command line that is refused."""
    assert main.main(["submit", *words]) == 2
    out, err = capsys.readouterr()
    assert not out
    assert err.startswith("coalloc: error: ")
    assert err.count("\n") == 1
    return err


def test_a_command(client: FakeClient, capsys: pytest.CaptureFixture[str]) -> None:
    body = sent(client, "-n", "4", "-t", "2:30", "--", "ls", "-n", "9", "--help")
    assert body["job"] == {"kind": "rigid", "procs": 4, "time_limit": 150.0}
    assert body["launch"]["argv"] == ["ls", "-n", "9", "--help"]
    assert "script" not in body["launch"]
    assert body["launch"]["cwd"] == os.getcwd()
    assert body["token"]
    assert capsys.readouterr().out == "Submitted job 7\n"


def test_every_option(client: FakeClient) -> None:
    Path("there").mkdir()
    words = (
        "--ntasks=4 --base-time 1h --sigma .7 --bandwidth 75Mbps --mem-per-proc 2G -M alpha,beta"
        " -C fast&ib --priority 3 -d afterok:1,afterany:2 -a 0-2%2 -H --hold-infeasible -J name"
        " --requeue --deadline now+2days"
        " -o out.%j -e err.%j -D there --export NONE --begin now+1hour --token t -A chem -q long"
        " -p main,short --reservation course -L matlab:2 --gres gpu:2 -- true"
    )
    body = sent(client, *words.split())
    earliest = body["job"].pop("earliest")
    assert earliest > 1e9
    assert body["job"] == {
        "kind": "rigid",
        "procs": 4,
        "base_time": 3600.0,
        "sigma": 0.7,
        "proc_gbps": 0.075,
        "memory_mb_per_proc": 2048,
        "clusters": ("alpha", "beta"),
        "features": ("fast", "ib"),
        "weight": 3.0,
        "shape": {"per_node": {"gpu": 2}},  # a process is a slot where no CPUs are asked for
    }
    assert body["launch"].pop("env").keys() <= {
        *("HOME", "LANG", "LOGNAME", "PATH", "SHELL", "USER")
    }
    assert body["launch"] == {
        "argv": ["true"],
        "cwd": os.path.abspath("there"),
        "stdout": "out.%j",
        "stderr": "err.%j",
    }
    assert body["needs"] == [["afterok", "1"], ["afterany", "2"]]
    assert (body["array"], body["throttle"]) == ([0, 1, 2], 2)
    assert 86_000.0 < body["finish_by"] - time.time() < 2 * 86_400.0 + 1.0
    assert (body["name"], body["token"]) == ("name", "t")
    assert body["hold"] is True
    assert body["hold_infeasible"] is True
    assert body["requeue"] is True
    assert body["batch"] == {
        "account": "chem",
        "qos": "long",
        "partition": "main,short",
        "reservation": "course",
        "licenses": "matlab:2",
    }


def test_constraint_beyond_a_list_of_features_is_for_the_batch_systems(client: FakeClient) -> None:
    body = sent(client, "-C", "[rack1|rack2]", "--", "true")
    assert body["batch"] == {"constraint": "[rack1|rack2]"}
    assert "features" not in body["job"]


@pytest.mark.parametrize(
    ("words", "job"),
    [
        (
            ["--ntasks=1-64", "--speedup", "amdahl:0.95", "--base-time", "100s"],
            {
                "kind": "moldable",
                "speedup": {"model": "amdahl", "parallel_fraction": 0.95, "time": 100.0},
                "min_procs": 1,
                "max_procs": 64,
            },
        ),
        (
            ["--times", "1:100,8:20,2:55"],  # the table is the range
            {
                "kind": "moldable",
                "speedup": {"model": "table", "procs": [1, 2, 8], "times": [100.0, 55.0, 20.0]},
            },
        ),
        (
            ["-n", "2-8", "--times", "2:55,8:20", "--bandwidth", "1Gbps"],
            {
                "kind": "moldable",
                "speedup": {"model": "table", "procs": [2, 8], "times": [55.0, 20.0]},
                "min_procs": 2,
                "max_procs": 8,
                "proc_gbps": 1.0,
            },
        ),
        (["-t", "UNLIMITED"], {"kind": "rigid", "procs": 1}),
        (  # the daemon knows how this command's run time falls
            ["-n", "2-8", "--base-time", "90s"],
            {"kind": "moldable", "min_procs": 2, "max_procs": 8, "base_time": 90.0},
        ),
    ],
)
def test_shapes(client: FakeClient, words: list[str], job: dict[str, Any]) -> None:
    assert sent(client, *words, "--", "true")["job"] == job


def test_a_script_with_options(client: FakeClient) -> None:
    text = "#!/bin/sh\n#COALLOC -n 4 -J mine\n#COALLOC -t 5 --hold\necho\n#COALLOC -n 99\n"
    body = sent(client, script(text), "-n", "arg")
    assert body["job"] == {"kind": "rigid", "procs": 4, "time_limit": 300.0}
    assert body["name"] == "mine"
    assert body["hold"] is True
    assert body["launch"]["script"] == text
    assert body["launch"]["argv"] == ["job.sh", "-n", "arg"]


def test_the_command_line_wins_over_the_script(client: FakeClient) -> None:
    text = "#!/bin/sh\n#COALLOC -n 4 -J mine --export NONE\ntrue\n"
    body = sent(client, "-n", "6", "--job-name", "ours", "--export=A=1", script(text))
    assert body["job"]["procs"] == 6
    assert body["name"] == "ours"
    assert body["launch"]["env"]["A"] == "1"


def test_the_script_may_say_what_is_printed(
    client: FakeClient, capsys: pytest.CaptureFixture[str]
) -> None:
    sent(client, script("#!/bin/sh\n#COALLOC --parsable\n"))
    assert capsys.readouterr().out == "7\n"


def test_a_script_need_not_be_executable_and_lies_in_any_folder(client: FakeClient) -> None:
    Path("sub").mkdir()
    path = script("#!/bin/sh\ntrue\n", "sub/a.sh")
    os.chmod(path, 0o600)
    assert sent(client, path)["launch"]["argv"] == ["a.sh"]


def test_wrap(client: FakeClient) -> None:
    body = sent(client, "--wrap", "echo $A | wc")
    assert body["launch"]["script"] == "#!/bin/sh\necho $A | wc\n"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty"),
        (b"echo hello\n", "its first line must begin with #!"),
        (b"\x7fELF\x02\x01", "is a program, no script"),
        (b"#!/bin/sh\r\ntrue\r\n", "DOS line breaks"),
        (b"\xef\xbb\xbf#!/bin/sh\ntrue\n", "begins with a byte order mark"),
        (b"#!/bin/sh\n\0\n", "zero byte"),
        (b"#!/bin/sh\n" + b"#" * (5 << 20), "larger than 4 MiB"),
        (b"#!/bin/sh\n#COALLOC -n x\n", "job.sh:2: argument -n/--ntasks: 'x' is not a number"),
        (b"#!/bin/sh\n\n#COALLOC --fast\n", "job.sh:3: "),
        (b"#!/bin/sh\n#COALLOC -n 2 extra\n", "job.sh:2: 'extra' is no option"),
        (b"#!/bin/sh\n#COALLOC -J 'a\n", "job.sh:2: no closing quotation"),
    ],
)
def test_scripts_that_are_refused(
    client: FakeClient, capsys: pytest.CaptureFixture[str], content: bytes, words: str
) -> None:
    Path("job.sh").write_bytes(content)
    assert words in refusal(capsys, "job.sh")
    assert not client.sent


def test_any_bytes_of_a_script_reach_the_job(client: FakeClient, tmp_path: Path) -> None:
    raw = b"#!/bin/sh\n# f\xfcr \xe2\x82\xac\n#COALLOC -n 2\ntrue\n"
    Path("job.sh").write_bytes(raw)
    body = sent(client, "job.sh")
    assert body["job"]["procs"] == 2
    launch = msgspec.json.decode(msgspec.json.encode(body["launch"]), type=Launch)
    write_users(tmp_path / "user", replace(part_spec("1"), launch=launch))
    assert (tmp_path / "user" / "script").read_bytes() == raw


def test_words_of_sbatch_are_answered(
    client: FakeClient, capsys: pytest.CaptureFixture[str]
) -> None:
    for words, told in (
        ("-x n1", "submit: --exclude=n1: is for the Slurm of one cluster; coalloc sbatch"),
        ("--exclusive=user", "submit: --exclusive=user: is for the Slurm of one cluster"),
        ("--gpus-per-socket=1", "submit: --gpus-per-socket=1: GPUs are asked for by"),
        ("--mail-type=Never", "argument --mail-type: 'Never': there are ARRAY_TASKS, BEGIN"),
        ("--pty", "submit: --pty: coalloc run --pty gives a terminal"),
        ("--mem-per=1G", "unrecognized arguments: --mem-per=1G"),
        ("--divisible 9h --chunk 1h -N 2", "--divisible and --nodes exclude each other"),
    ):
        assert told in refusal(capsys, *words.split(), "--", "true")
    body = sent(client, "--mail-type=end,No,ALL", "--mail-user=a@b", "--", "true")
    assert body["mail_type"] == ("END", "BEGIN", "FAIL", "INVALID_DEPEND", "REQUEUE")
    assert body["mail_user"] == "a@b"
    body = sent(client, "--once", "-x", "n1", "--exclusive=user", "--", "true")
    assert body["batch"] == {"passed": ("--exclude=n1", "--exclusive=user")}


@pytest.mark.parametrize(
    ("words", "shape"),
    [
        ("-n 4 --mem=16G", {"memory_mb_per_node": 16384}),  # a process is a slot
        ("-c 4", {"cpus_per_proc": 4}),
        ("--exclusive", {"cpus_per_proc": 1, "exclusive": True}),
        (
            "-N 6 --ntasks-per-node=8",
            {"cpus_per_proc": 1, "min_nodes": 6, "max_nodes": 6, "procs_per_node": 8},
        ),
        ("-n 4 --gpus-per-task=1", {"cpus_per_proc": 1, "per_proc": {"gpu": 1}}),
    ],
)
def test_words_of_sbatch_mean_the_same(
    client: FakeClient, words: str, shape: dict[str, Any]
) -> None:
    assert sent(client, *words.split(), "--", "true")["job"]["shape"] == shape


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("missing.sh", "missing.sh: No such file or directory; to submit a command write"),
        (".", ".: Is a directory"),
        ("--", "no command after --"),
        ("-n", "argument -n/--ntasks: expected one argument"),
        ("-n 0 -- true", "'0' is not a number of processes"),
        ("--frob -- true", "--frob"),
        ("-n 1-4 --speedup amdahl:.5 -- true", "--speedup needs --base-time"),
        ("--speedup amdahl:.5 --base-time 9 -- true", "--speedup needs --ntasks"),
        ("--times 1:5 --speedup amdahl:.5 -- true", "exclude each other"),
        ("--times 1:5 --base-time 9 -- true", "leave --base-time out"),
        ("-D nowhere -- true", "--chdir: nowhere: there is no such folder"),
        ("--begin soon -- true", "argument -b/--begin: 'soon' is not a time"),
        ("--deadline soon -- true", "argument --deadline: 'soon' is not a time"),
        ("-a 0-9%x -- true", "'x' is not how many run at once"),
        ("--export COLOUR,NONE -- true", "argument --export"),
        ("--wrap x job.sh", "--wrap takes no script"),
    ],
)
def test_lines_that_are_refused(
    client: FakeClient, capsys: pytest.CaptureFixture[str], line: str, words: str
) -> None:
    assert words in refusal(capsys, *line.split())
    assert not client.sent


def test_an_unreadable_script_is_refused(
    client: FakeClient, capsys: pytest.CaptureFixture[str]
) -> None:
    os.chmod(script("#!/bin/sh\n"), 0)
    if os.access("job.sh", os.R_OK):
        pytest.skip("this user may read everything")
    assert "job.sh: Permission denied" in refusal(capsys, "job.sh")


def test_the_environment_of_an_outer_job_stays_behind(
    client: FakeClient, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COALLOC_JOB_ID", "3")
    monkeypatch.setenv("COALLOC_CONFIG", "/etc/x.toml")
    monkeypatch.setenv("COLOUR", "red")
    monkeypatch.setenv("ODD", "caf\udce9")  # a byte that is not UTF-8
    env = sent(client, "--", "true")["launch"]["env"]
    assert env["COLOUR"] == "red"
    assert env["COALLOC_CONFIG"] == "/etc/x.toml"
    assert "COALLOC_JOB_ID" not in env
    assert "ODD" not in env
    assert capsys.readouterr().err == (
        "coalloc: not passed on, because it is not UTF-8 text: ODD\n"
    )


def test_wait_ends_with_the_jobs_exit_code(
    client: FakeClient, capsys: pytest.CaptureFixture[str]
) -> None:
    client.ended = (
        EndedJob(id="7_0", state="completed", exit_code=0),
        EndedJob(id="7_1", state="failed", exit_code=3, detail="exit code 3"),
        EndedJob(id="7_2", state="cancelled"),
    )
    assert main.main(["submit", "--wait", "--parsable", "--", "true"]) == 3
    out, err = capsys.readouterr()
    assert out == "7\n"
    assert err == "coalloc: job 7_1 failed, exit code 3\ncoalloc: job 7_2 cancelled\n"


def test_an_interrupted_wait_says_that_the_job_goes_on(
    client: FakeClient, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(job: str, timeout: float | None = None) -> tuple[EndedJob, ...]:
        raise KeyboardInterrupt

    monkeypatch.setattr(client, "wait", interrupted)
    assert main.main(["submit", "-W", "--", "true"]) == 130
    assert capsys.readouterr().err == "coalloc: no longer waiting; job 7 goes on\n"


def test_an_estimate_that_there_is_none_of(
    client: FakeClient, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.main(["submit", "--test-only", "--", "true"]) == 1
    expected = "coalloc: error: no start can be estimated: no node is up\n"
    assert capsys.readouterr().err == expected


def test_the_fake_has_the_clients_methods() -> None:
    for name in ("send_submission", "test_submission", "wait"):
        assert callable(getattr(Client, name))


def test_a_refused_option_of_a_workflow_names_its_command(
    client: FakeClient, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("two.dot").write_text("digraph { a -> b }")
    words = ("two.dot", "--command-template", "work {task}", "-D", "nowhere")
    assert main.main(["submit-workflow", *words]) == 2
    told = "submit-workflow: argument -D/--chdir: nowhere: there is no such folder"
    assert told in capsys.readouterr().err
    assert not client.sent
