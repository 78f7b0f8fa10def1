"""``coalloc`` itself: help pages, exit codes, one line for every error; commands off line."""

from __future__ import annotations

import argparse
import errno
import io
import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from coalloc.cli import main, nodes, operate, queue
from coalloc.cli.command import error_line
from coalloc.cli.files import load_snapshot
from coalloc.client.client import NoAnswerError, RefusedError
from coalloc.model.jobs import WorkflowJob
from coalloc.policies.registry import POLICIES
from coalloc.wire.answers import ClusterRow, NodesAnswer, Why

ROOT = Path(__file__).resolve().parents[3]
SNAPSHOT = {
    "format": "coalloc-snapshot/1",
    "time": 0.0,
    "clusters": [
        {"name": "alpha", "link_gbps": 1.0, "nodes": [{"name": "a[1-2]"}]},
        {"name": "beta", "link_gbps": 1.0, "nodes": [{"name": "b1"}]},
    ],
    "queue": [
        {"id": "1", "kind": "rigid", "procs": 3, "base_time": 60.0},
        {"id": "2", "kind": "rigid", "procs": 1, "base_time": 30.0},
        {"id": "3", "kind": "rigid", "procs": 9, "base_time": 30.0},
    ],
}


def run(*words: str) -> int:
    return main.main(list(words))


def error_of(capsys: pytest.CaptureFixture[str]) -> str:
    out, err = capsys.readouterr()
    assert not out
    assert err.startswith("coalloc: error: ")
    assert err.count("\n") == 1
    return err.removeprefix("coalloc: error: ")


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
        (["solve", "x.json"], "solve: the following arguments are required: --policy"),
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
    assert error_of(capsys).startswith(f"{path}:2: daemon.frob: ")


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


class Refusing:
    """A connection over which job 2 is refused."""

    asked: list[tuple[str, str]]

    def __init__(self) -> None:
        self.asked = []

    def __enter__(self) -> Refusing:
        return self

    def __exit__(self, *args: object) -> None:
        pass

    def why(self, job: str) -> Why:
        state = {"2": "completed", "4": "cancelled"}[job]
        return Why(job=job, state=state, reason="", detail="")

    def ask(self, kind: str, *, job: str) -> dict[str, Any]:
        self.asked.append((kind, job))
        if job in ("2", "4"):
            raise RefusedError("wrong_state", f"job {job} has ended already")
        return {"jobs": [job]}


def test_one_refusal_does_not_keep_the_others_back(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    client = Refusing()
    monkeypatch.setattr(operate, "connect", lambda args: client)
    assert run("cancel", "1", "2", "3") == 1
    assert client.asked == [("cancel", "1"), ("cancel", "2"), ("cancel", "3")]
    assert error_of(capsys) == "job 2 has ended already\n"


def test_what_was_cancelled_with_another_job_is_no_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(operate, "connect", lambda args: Refusing())
    assert run("cancel", "1", "4") == 0
    assert capsys.readouterr().err == ""
    assert run("cancel", "4") == 1
    assert run("hold", "1", "4") == 1


@pytest.fixture
def snapshot(tmp_path: Path) -> Path:
    path = tmp_path / "s.json"
    path.write_text(json.dumps(SNAPSHOT))
    return path


def test_policies_lists_the_registry(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("policies") == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(POLICIES)
    assert run("policies", "--json") == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["name"] for row in rows] == list(POLICIES)
    assert run("policies", "fcfs") == 0
    assert '--set coallocation="sooner"' in capsys.readouterr().out


def test_solve_check_and_plan_go_together(
    snapshot: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = tmp_path / "p.json"
    words = ["solve", "--policy", "fcfs", "--seed", "3", "--time-limit", "60"]
    assert run(*words, str(snapshot), "-o", str(plan)) == 0
    out, err = capsys.readouterr()
    assert not out
    assert re.search(r"p\.json: fcfs, heuristic: makespan 90; 2 jobs placed, 1 deferred", err)
    assert json.loads(plan.read_text())["stats"]["elapsed_s"] >= 0.0

    assert run("check", str(snapshot), str(plan)) == 0
    assert re.search(r"^makespan +90$", capsys.readouterr().out, re.MULTILINE)

    assert run("plan", str(plan), "--snapshot", str(snapshot), "--gantt", "text") == 0
    out = capsys.readouterr().out
    assert "alpha:a1" in out
    assert "2 jobs placed, 1 deferred" in out
    assert run("plan", str(plan)) == 0
    assert "needs 9" in capsys.readouterr().out
    picture = tmp_path / "p.svg"
    assert run("plan", str(plan), "--gantt", "svg", "-o", str(picture)) == 0
    assert picture.read_text().startswith("<svg")


def test_solve_writes_to_standard_output_and_reads_standard_input(
    snapshot: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Stdin:
        buffer = io.BytesIO(snapshot.read_bytes())

    monkeypatch.setattr(sys, "stdin", Stdin())
    assert run("solve", "--policy", "plain", "-") == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["format"] == "coalloc-plan/1"
    assert not err


def test_check_lists_violations(
    snapshot: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = tmp_path / "p.json"
    assert run("solve", "--policy", "fcfs", str(snapshot), "-o", str(plan)) == 0
    body = json.loads(plan.read_text())
    body["placements"][0]["nodes"] = {"a1": 3}
    plan.write_text(json.dumps(body))
    capsys.readouterr()
    assert run("check", str(snapshot), str(plan)) == 1
    out, err = capsys.readouterr()
    assert "a1" in out
    assert re.search(r"not allowed: \d+ violations?", err)
    assert run("check", str(snapshot), str(plan), "--json") == 1
    assert json.loads(capsys.readouterr().out)["violations"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "s.json: is not JSON"),
        ("{", "s.json: is not JSON"),
        ("[" * 100_000, "s.json: is not JSON"),
        ("[]", "s.json: [] is not an object"),
        ('{"format": "coalloc-snapshot/1"}', "s.json: clusters: is missing"),
        (
            json.dumps({**SNAPSHOT, "queue": [{**SNAPSHOT["queue"][0], "sigma": 1.7}]}),  # type: ignore[index]
            "s.json: queue[0].sigma: 1.7 is outside 0..1",
        ),
    ],
)
def test_a_snapshot_that_cannot_be_read(
    snapshot: Path, text: str, expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    snapshot.write_text(text)
    assert run("solve", "--policy", "fcfs", str(snapshot)) == 2
    assert expected in error_of(capsys)
    assert run("check", str(snapshot), str(snapshot)) == 2
    assert expected in error_of(capsys)


def test_words_that_are_no_text_are_named() -> None:
    with pytest.raises(UnicodeEncodeError) as caught:
        "--job-name=a\udcff".encode()
    expected = "coalloc: error: '--job-name=a\\udcff' is not UTF-8 text"
    assert error_line(caught.value) == expected


def test_files_that_are_not_there(
    tmp_path: Path, snapshot: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    absent = str(tmp_path / "none.json")
    assert run("solve", "--policy", "fcfs", absent) == 2
    assert error_of(capsys) == f"{absent}: No such file or directory\n"
    snapshot.write_bytes(b'{"format": "\xff"}')
    assert run("solve", "--policy", "fcfs", str(snapshot)) == 2
    assert "is not UTF-8" in error_of(capsys)
    snapshot.write_text(json.dumps(SNAPSHOT))
    assert run("solve", "--policy", "plain", str(snapshot), "-o", f"{tmp_path}/no/p.json") == 1
    assert "no/p.json: No such file or directory" in error_of(capsys)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--policy", "best"], "there is no policy 'best'"),
        (["--policy", "fcfs", "--set", "frob=1"], "--set frob: unknown option"),
        (["--policy", "fcfs", "--set", "skip=3"], "skip"),
        (["--policy", "fcfs", "--seed", "x"], "argument --seed"),
    ],
)
def test_solve_refuses(
    words: list[str], expected: str, snapshot: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("solve", *words, str(snapshot)) == 2
    assert expected in error_of(capsys)


def test_a_snapshot_of_a_log_and_a_platform(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "log.swf"
    lines = [f"{i} {i * 10} 0 60 2 -1 -1 2 60 -1 1 1 1 1 1 1 -1 -1" for i in range(1, 6)]
    log.write_text("; Version: 2.2\n" + "\n".join(lines) + "\n")
    platform = tmp_path / "site.toml"
    platform.write_text('[[clusters]]\nname = "alpha"\n[[clusters.nodes]]\nname = "a[1-4]"\n')
    out = tmp_path / "s.json"
    words = ["snapshot", "--workload", str(log), "--platform", str(platform), "--limit", "3"]
    assert run(*words, "-o", str(out)) == 0
    made = load_snapshot(out)
    assert [job.id for job in made.queue] == ["1", "2", "3"]
    assert made.time == made.queue[-1].submitted
    assert len(list(made.nodes())) == 4
    assert run("solve", "--policy", "plain", str(out)) == 0
    capsys.readouterr()
    assert run("snapshot", "--workload", f"{log}x", "--platform", str(platform)) == 2
    assert "log.swfx: No such file" in error_of(capsys)


def test_a_snapshot_of_a_workflow_and_a_platform(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flow = tmp_path / "flow.dax"
    flow.write_text('<adag><job id="x"/><job id="y" runtime="5" cores="2"/></adag>')
    platform = tmp_path / "site.toml"
    platform.write_text('[[clusters]]\nname = "alpha"\n[[clusters.nodes]]\nname = "a[1-4]"\n')
    words = ["snapshot", "--workload", str(flow), "--platform", str(platform)]
    assert run(*words, "-o", f"{tmp_path}/s.json") == 0
    assert "flow.dax: 1 of 2 tasks name no run time; 60 s are assumed" in capsys.readouterr().err
    (job,) = load_snapshot(tmp_path / "s.json").queue
    assert isinstance(job, WorkflowJob)
    assert [(task.id, task.work, task.min_procs) for task in job.tasks] == [
        ("x", 60.0, 1),
        ("y", 5.0, 2),
    ]
    assert run(*words, "--limit", "1") == 2
    assert "--limit is for logs" in error_of(capsys)
    flow.write_text('<adag><job id="x" runtime="-1"/></adag>')
    assert run(*words) == 2
    assert "flow.dax: task 'x': runtime: -1 is below 0" in error_of(capsys)


def test_a_workflow_is_no_log_to_replay(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flow = tmp_path / "flow.dot"
    flow.write_text("digraph G { 1 -> 2 }")
    platform = Path(__file__).resolve().parents[3] / "etc/platforms/das3.toml"
    assert run("simulate", "--workload", str(flow), "--platform", str(platform)) == 2
    assert "flow.dot: is a workflow: plan it with coalloc snapshot" in error_of(capsys)


HEAVY = ("numpy", "numba", "rich", "ClusterShell", "apscheduler", "pulp", "sqlite3", "structlog")


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
    assert "coalloc.core.messages" not in done.stdout.split()


def test_the_entry_point_is_installed() -> None:
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert scripts["coalloc"] == "coalloc.cli.main:main"


def test_an_error_repeats_nothing_that_a_terminal_would_act_on() -> None:
    refused = RefusedError("not_found", "there is no cluster or node \x1b[31mq")
    assert error_line(refused) == "coalloc: error: there is no cluster or node ?[31mq"


def test_a_plan_of_a_live_queue_shows_dates(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    now = 1_900_000_000.0
    path, plan = tmp_path / "s.json", tmp_path / "p.json"
    path.write_text(json.dumps({**SNAPSHOT, "time": now}))
    assert run("solve", "--policy", "fcfs", str(path), "-o", str(plan)) == 0
    for words in ([], ["--snapshot", str(path)]):
        assert run("plan", str(plan), *words) == 0
        out = capsys.readouterr().out
        assert re.search(r"^\S+ +20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d", out, re.MULTILINE)
        assert "e+09" not in out


def test_a_new_key_is_not_written_for_a_server_that_is_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    key = tmp_path / "key.json"
    assert run("keys", "new", "--file", str(key), "--offline", "--server", "x") == 2
    assert "--server: 'x' is not a public key of 40 characters" in capsys.readouterr().err
    assert not key.exists()


def test_nodes_waits_until_every_cluster_is_read(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    away = {
        "cluster": "alpha",
        "connected": False,
        "stale": True,
        "drained": False,
        "nodes": [],
        "age_s": None,
        "link_gbps": None,
        "link_used_gbps": 0.0,
    }
    there = {**away, "connected": True, "stale": False}

    class Starting(Refusing):
        answers: Iterator[Any] = iter([NoAnswerError("not yet"), away, there])

        def known_nodes(self) -> NodesAnswer:
            answer = next(self.answers)
            if isinstance(answer, Exception):
                raise answer
            return NodesAnswer(clusters=(msgspec.convert(answer, ClusterRow),))

    monkeypatch.setattr(nodes, "connect", lambda args: Starting())
    monkeypatch.setattr(nodes, "LOOK_EVERY_S", 0.0)
    assert run("nodes", "--wait", "60s") == 0
    assert re.search(r"^alpha +up ", capsys.readouterr().out, re.MULTILINE)
    monkeypatch.setattr(Starting, "answers", iter([away] * 100_000))
    assert run("nodes", "--wait", ".05s") == 1
    assert "not read within 0:00: alpha" in capsys.readouterr().err


def test_a_reader_that_has_seen_enough_is_no_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def read_no_more(args: argparse.Namespace) -> int:
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")

    monkeypatch.setattr("coalloc.simulation.command._run", read_no_more)
    assert main.main(["simulate", "--workload", "x", "--platform", "y", "--policy", "fcfs"]) == 141
    assert capsys.readouterr().err == ""
