"""Workflows in the real daemon: order, failures, progress, and kills in mid-run."""

from __future__ import annotations

import json
import uuid
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from coalloc.cli import main
from tests.support.live_site import ENDED, Running
from tests.support.loads import kill_in_between

WIDTH = 8


def layered(count: int) -> dict[str, Any]:
    """Tasks in rows of eight; each needs the one above it and that one's left neighbour."""
    tasks = [{"id": f"t{i}", "work": 0.05} for i in range(count)]
    edges = [
        {"from": f"t{i - back}", "to": f"t{i}"}
        for i in range(WIDTH, count)
        for back in {WIDTH, WIDTH + 1 if i % WIDTH else WIDTH}
    ]
    return {"kind": "workflow", "tasks": tasks, "edges": edges}


def submit(site: Running, job: dict[str, Any], argv: Sequence[str], **fields: Any) -> str:
    launch = site.submission(argv)["launch"] | {"stdout": "/dev/null"}
    body = {"token": uuid.uuid4().hex, "job": job, "launch": launch, **fields}
    answer = site.ask("submit_workflow", **body)
    assert answer["type"] == "done", answer
    return str(answer["job"])


def ran(site: Running) -> list[str]:
    path = site.work / "ran"
    return path.read_text().split() if path.exists() else []


def assert_in_order(job: dict[str, Any], lines: Sequence[str]) -> None:
    """Every task once, and behind all that it needs."""
    place = {task: number for number, task in enumerate(lines)}
    doubled = {task: count for task, count in Counter(lines).items() if count > 1}
    assert not doubled
    assert place.keys() == {task["id"] for task in job["tasks"]}
    for edge in job["edges"]:
        assert place[edge["from"]] < place[edge["to"]], edge


@pytest.mark.parametrize(
    ("policy", "count", "kills"),
    [
        pytest.param("plain", 24, 2, marks=pytest.mark.slow),
        pytest.param("easy", 1000, 6, marks=pytest.mark.slow),
    ],
)
def test_a_workflow_survives_kills_and_every_task_runs_exactly_once(
    root: Path, policy: str, count: int, kills: int
) -> None:
    site = Running(root, policy=policy)
    job = layered(count)
    with site:
        number = submit(site, job, ["sh", "-c", f"echo {{task}} >> {site.work}/ran"])
        kill_in_between(site, kills, count, lambda: len(ran(site)))
        site.until(lambda: site.job(number)["state"] in ENDED, 600.0)
        shown = site.job(number)
        assert (shown["state"], shown["exit_code"]) == ("completed", 0), shown["detail"]
        assert shown["progress"]["completed"] == count
        assert_in_order(job, ran(site))


def test_commands_variables_failure_and_what_is_shown(
    root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Running(root, start="backoff_first_s = 0.1")
    monkeypatch.setenv("COALLOC_CONFIG", str(site.config))
    monkeypatch.chdir(site.work)
    file = site.work / "two.json"
    words = ["sh", "-c", 'echo "$COALLOC_WORKFLOW $COALLOC_TASK $COALLOC_JOB_ID"']
    tasks = [
        {"id": "first", "work": 0.1, "command": words},
        {"id": "bad", "work": 0.1, "command": ["sh", "-c", "exit 7"]},
        {"id": "after", "work": 0.1, "command": ["true"]},
        {"id": "free", "work": 0.1, "command": ["true"]},
    ]
    edges = [{"from": "first", "to": "bad"}, {"from": "bad", "to": "after"}]
    file.write_text(json.dumps({"name": "two", "tasks": tasks, "edges": edges}))
    with site:
        code = main.main(["submit-workflow", str(file), "--retries", "1", "-k", "--wait"])
        out = capsys.readouterr()
        assert out.out == "Submitted workflow 1 (4 tasks)\n"
        assert "task bad failed" in out.err
        assert code == 7
        assert (site.work / "coalloc-1.1.out").read_text() == "1 first 1.1\n"
        tasks_shown = {task["task"]: task for task in site.job("1")["tasks"]}
        assert {name: task["state"] for name, task in tasks_shown.items()} == {
            "first": "completed",
            "bad": "failed",
            "after": "not_run",
            "free": "completed",
        }
        assert tasks_shown["bad"]["attempt"] == 2
        assert site.job("1.bad")["exit_code"] == 7
        assert site.job("1.2")["id"] == "1.2"
        assert site.job("1.after")["reason"] == "not_run"
        assert main.main(["wait", "1.after", "1.free"]) == 1
        assert "job 1.3 cancelled: never runs" in capsys.readouterr().out
        assert main.main(["queue", "--all"]) == 0
        (line,) = capsys.readouterr().out.splitlines()[1:]
        assert "2/4 tasks" in line
        assert main.main(["show", "1"]) == 0
        assert "2 of 4 tasks completed, 0 placed, 1 failed" in capsys.readouterr().out
        assert main.main(["show", "1.nothing"]) == 1
        assert "job 1 has no task nothing" in capsys.readouterr().err


def test_a_template_stands_for_the_commands_and_is_needed_where_there_are_none(
    root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Running(root)
    monkeypatch.setenv("COALLOC_CONFIG", str(site.config))
    monkeypatch.chdir(site.work)
    file = site.work / "bare.json"
    file.write_text(json.dumps({"tasks": [{"id": "a b", "work": 0.1}, {"id": "c", "work": 0.1}]}))
    with site:
        assert main.main(["submit-workflow", str(file)]) == 2
        assert "task a b: has no command" in capsys.readouterr().err
        template = "echo {task} {name} {id} {procs}"
        words = ["--command-template", template, "-J", "named", "--wait", "--parsable"]
        assert main.main(["submit-workflow", str(file), *words]) == 0
        assert capsys.readouterr().out == "1\n"
        assert (site.work / "coalloc-1.1.out").read_text() == "a b named 1.1 1\n"
        assert (site.work / "coalloc-1.2.out").read_text() == "c named 1.2 1\n"
        _deadlines(site, file, capsys)


def _deadlines(site: Running, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Workflows and divisible jobs that can be kept run, one that cannot is refused."""
    workflow = ["submit-workflow", str(file), "--command-template", "true", "--wait"]
    assert main.main([*workflow, "--deadline", "now+9hours"]) == 0
    chunks = ["submit", "--divisible", "2", "--chunk", "1", "--wait"]
    assert main.main([*chunks, "--deadline", "now+9hours", "--", "true"]) == 0
    assert site.job("2")["finish_by"] > site.job("2")["ended"]
    long = site.work / "long.json"
    tasks = [{"id": name, "work": 100.0, "command": ["true"]} for name in "ab"]
    long.write_text(json.dumps({"tasks": tasks, "edges": [{"from": "a", "to": "b"}]}))
    capsys.readouterr()
    assert main.main(["submit-workflow", str(long), "--deadline", "now+100seconds"]) == 1
    assert "error: deadline: with a run time of at least 200 s it" in capsys.readouterr().err


def test_a_cancelled_workflow_ends_its_tasks(root: Path) -> None:
    site = Running(root)
    job = {"kind": "workflow", "tasks": [{"id": "a", "work": 60.0}, {"id": "b", "work": 60.0}]}
    job["edges"] = [{"from": "a", "to": "b"}]
    with site:
        number = submit(site, job, ["sleep", "60"])
        site.until(lambda: site.job(f"{number}.a")["state"] == "running")
        assert site.ask("cancel", job=number)["type"] == "done"
        shown = site.wait(number)
        assert shown["state"] == "cancelled"
        assert [task["state"] for task in shown["tasks"]] == ["cancelled", "not_run"]
