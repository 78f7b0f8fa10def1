"""``coalloc`` itself: help pages, exit codes, one line for every error."""

from __future__ import annotations

import argparse
import errno
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from coalloc.cli import arguments, main
from coalloc.cli.command import error_line
from coalloc.cli.jobs import queue
from coalloc.client.client import NoAnswerError, RefusedError
from tests.support.command_line import error_of, run

ROOT = Path(__file__).resolve().parents[3]


def test_every_command_is_listed_once() -> None:
    listed = [name for _, names in main.GROUPS for name in names]
    assert sorted(listed) == sorted(main.MODULES)


@pytest.mark.parametrize("name", main.MODULES)
def test_every_help_page_has_an_example(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    if name == "simulate":
        pytest.importorskip("coalloc.simulation.command")
    assert run(name, "--help") == 0
    page = capsys.readouterr().out
    assert page.startswith(f"usage: coalloc {name}")
    assert f"example:\n  coalloc {name}" in page


def test_the_whole_parser_builds() -> None:
    names = re.findall(r"^    ([a-z-]+)(?: |$)", main.build_parser().format_help(), re.MULTILINE)
    assert sorted(names) == sorted(main.MODULES)


def parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """A parser, and those of its commands."""
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for each in action.choices.values():
                yield from parsers(each)


def test_no_option_of_any_command_can_be_shortened() -> None:
    assert [each.prog for each in parsers(main.build_parser()) if each.allow_abbrev] == []
    made = [
        call
        for file in subprocess.check_output(["git", "ls-files", "*.py"], text=True).split()
        if not file.startswith(("tests/", "benchmarks/", "docs/", "examples/", "integrations/"))
        for call in re.findall(r"[^(]ArgumentParser\(.*?\)", Path(file).read_text(), re.DOTALL)
        if "__init__" not in call and "allow_abbrev=False" not in call
    ]
    assert made == []


def test_every_command_takes_jobs_as_the_queue_prints_them() -> None:
    taken = {
        each.prog: action.type
        for each in parsers(main.build_parser())
        for action in each._actions
        if action.metavar in {"JOB", "JOBS"}
    }
    assert taken.pop("coalloc why") is None  # with --snapshot, any name
    assert len(taken) >= 8
    assert set(taken.values()) == {arguments.jobs}
    assert arguments.grouped(arguments.jobs("12_[0-9],13,14_[1-2]")) == [
        ("12", [f"12_{index}" for index in range(10)]),
        ("13", ["13"]),
        ("14_1", ["14_1"]),
        ("14_2", ["14_2"]),
    ]


def test_help_and_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--help") == 0
    page = capsys.readouterr().out
    assert all(re.search(rf"^  {name} ", page, re.MULTILINE) for name in main.MODULES)
    assert run() == 2
    assert capsys.readouterr().out == page
    assert run("--version") == 0
    assert capsys.readouterr().out.startswith("coalloc ")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["qeue"], "there is no command 'qeue'; did you mean queue?"),
        (["srun", "--pty", "bash"], "there is no command 'srun'; coalloc run COMMAND"),
        (["salloc", "-n", "4"], "there is no command 'salloc'; coalloc run --pty bash"),
        (["queue", "--forma=x"], "unrecognized arguments: --forma=x"),
        (["--frob"], "unrecognized arguments: --frob"),
        (["queue", "--frob"], "queue: unrecognized arguments: --frob (see coalloc queue --help)"),
        (["queue", "-t", "melted"], "queue: argument -t/--states: 'melted' is not one of"),
        (["show"], "show: the following arguments are required: JOB"),
        (["show", "x"], "show: argument JOB: 'x' is not the number of a job"),
        (["wait", "1", "--for", "x"], "wait: argument --for: 'x' is not a time"),
        (["cancel"], "cancel: no job is named"),
        (["pause", "jobs"], "pause: argument what: invalid choice: 'jobs'"),
        (["events", "--since", "-1"], "events: argument --since"),
        (["plan", "--snapshot", "s.json"], "plan: --snapshot needs PLAN"),
        (["snapshot", "--workload", "x.swf"], "snapshot: --workload and --platform belong"),
        (["snapshot", "--limit", "5"], "snapshot: --limit needs --workload"),
        (["solve"], "solve: the following arguments are required: SNAPSHOT"),
        (["policies", "best"], "policy: there is no policy 'best'; there are auto"),
    ],
)
def test_bad_usage_is_one_line(
    words: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*words) == 2
    assert expected in error_of(capsys)


def test_a_missing_daemon_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("queue", "--endpoint", f"ipc://{tmp_path}/none", "--timeout", ".05") == 1
    assert error_of(capsys) == (
        f"no daemon listens at ipc://{tmp_path}/none; is coallocd running?\n"
    )


def test_a_broken_configuration_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "c.toml"
    path.write_text("[daemon]\nfrob = 1\n")
    assert run("queue", "--config", str(path)) == 2
    assert error_of(capsys).startswith(f"{path}: daemon.frob: ")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (RefusedError("not_found", "there is no job 9"), 1),
        (RefusedError("bad_request", "job: is missing"), 1),
        (NoAnswerError("no answer"), 1),
        (OSError(28, "No space left on device"), 1),
        (KeyboardInterrupt(), 130),
    ],
)
def test_what_goes_wrong_later(
    error: BaseException,
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(args: Any) -> None:
        raise error

    monkeypatch.setattr(queue, "connect", fail)
    assert run("queue") == code
    err = capsys.readouterr().err
    assert "Traceback" not in err
    assert err.count("\n") == (0 if code == 130 else 1)


def test_a_defect_of_ours_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(args: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(queue, "connect", fail)
    with pytest.raises(ZeroDivisionError):
        run("queue")


def test_a_reader_that_goes_away_is_no_error() -> None:
    command = f"{sys.executable} -m coalloc.cli.main policies --json"
    shell = f"{command} | head -c 1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert done.stdout.split("\n")[0] in {"[0", "[141"}


def test_closed_output_ends_quietly(monkeypatch: pytest.MonkeyPatch) -> None:
    read, write = os.pipe()
    os.close(read)
    with open(write, "w") as closed:
        monkeypatch.setattr(sys, "stdout", closed)
        assert run("policies") == 141
        monkeypatch.undo()


HEAVY = (
    "numpy",
    "numba",
    "rich",
    "ClusterShell",
    "apscheduler",
    "pulp",
    "sqlite3",
    "structlog",
    "asyncio",
)


def test_queue_starts_light(tmp_path: Path) -> None:
    """What is slow to import is not imported to ask a question."""
    code = (
        "import sys; from coalloc.cli import main as cli;"
        f"cli.main(['queue', '--endpoint', 'ipc://{tmp_path}/none', '--timeout', '0.01']);"
        "print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {name.partition(".")[0] for name in done.stdout.split()}
    assert loaded.isdisjoint(HEAVY)
    unused = {"coalloc.core.base.messages", "coalloc.model.formats.job_json"}
    assert unused.isdisjoint(done.stdout.split())


def test_the_version_loads_no_command() -> None:
    code = (
        "import sys; from coalloc.cli import main as cli; cli.main(['--version']);"
        "print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert not loaded & set(main.MODULES.values())
    assert "msgspec" not in loaded


def test_the_entry_point_is_installed() -> None:
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert scripts["coalloc"] == "coalloc.programs:command"


def test_an_error_repeats_nothing_that_a_terminal_would_act_on() -> None:
    refused = RefusedError("not_found", "there is no cluster or node \x1b[31mq")
    assert error_line(refused) == "coalloc: error: there is no cluster or node ?[31mq"


def test_a_new_key_is_not_written_for_a_server_that_is_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    key = tmp_path / "key.json"
    assert run("keys", "new", "--file", str(key), "--offline", "--server", "x") == 2
    assert "--server: 'x' is not a public key of 40 characters" in capsys.readouterr().err
    assert not key.exists()


def test_a_reader_that_has_seen_enough_is_no_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def read_no_more(args: argparse.Namespace) -> int:
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")

    monkeypatch.setattr("coalloc.simulation.command._run", read_no_more)
    assert main.main(["simulate", "--workload", "x", "--platform", "y", "--policy", "fcfs"]) == 141
    assert capsys.readouterr().err == ""
