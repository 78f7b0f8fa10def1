"""Commands without a daemon: ``policies``, ``solve``, ``check``, ``plan`` and ``snapshot``."""

from __future__ import annotations

import io
import json
import re
import sys
from pathlib import Path

import pytest

from coalloc.cli.command import error_line
from coalloc.cli.files import load_snapshot
from coalloc.model.jobs import WorkflowJob
from coalloc.policies.registry import POLICIES, PUBLISHED
from tests.support.command_line import error_of, run

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


@pytest.fixture
def snapshot(tmp_path: Path) -> Path:
    path = tmp_path / "s.json"
    path.write_text(json.dumps(SNAPSHOT))
    return path


def test_policies_lists_the_registry(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("policies") == 0
    heading, *lines = capsys.readouterr().out.splitlines()
    assert heading == "for a site:"
    cut = lines.index("published, to compare with:")
    published = {policy.name for policy in PUBLISHED}
    names = [line.split()[0] for line in (*lines[:cut], *lines[cut + 1 :])]
    assert sorted(names) == sorted(POLICIES)
    assert set(names[cut:]) == published
    assert run("policies", "--json") == 0
    rows = json.loads(capsys.readouterr().out)
    assert sorted(row["name"] for row in rows) == sorted(POLICIES)
    assert {row["name"] for row in rows if "published" in row["group"]} == published
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
    assert "alpha:a[1-2]" in out
    assert "beta:b1" in out
    assert "2 jobs placed, 1 deferred" in out
    assert run("plan", str(plan)) == 0
    assert "needs 9" in capsys.readouterr().out


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


def test_solve_plans_with_auto_where_no_policy_is_named(
    snapshot: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("solve", str(snapshot), "--work", "100") == 0
    assert json.loads(capsys.readouterr().out)["policy"] == "auto"


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
