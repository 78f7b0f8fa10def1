"""The real daemon with real executors: jobs run, rounds start when they should."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.live_site import Running
from tests.support.loads import all_ended

SHOW = 'echo "$COALLOC_JOB_ID $COALLOC_RANK $COALLOC_SIZE $COALLOC_PART $COALLOC_CLUSTER"'


@pytest.fixture(scope="module")
def common() -> Iterator[Running]:
    """One site for what changes nothing but jobs."""
    with (
        tempfile.TemporaryDirectory(prefix="co-", ignore_cleanup_errors=True) as root,
        Running(Path(root)) as running,
    ):
        yield running


@pytest.fixture
def site(common: Running) -> Iterator[Running]:
    """The common site; what a test has left there ends with it."""
    yield common
    left = [row["id"] for row in common.ask("queue")["jobs"]]
    for job in left:
        common.ask("cancel", job=job)
    common.until(lambda: all_ended(common, left))


@pytest.fixture
def own_site(root: Path) -> Iterator[Running]:
    """For one test: its processes are killed, or its configuration changes."""
    with Running(root) as running:
        yield running


def output(site: Running, job: str) -> list[str]:
    return (site.work / f"coalloc-{job}.out").read_text().split("\n")[:-1]


def test_a_job_wider_than_any_cluster_runs_on_both_as_one(site: Running) -> None:
    job = site.submit(["sh", "-c", SHOW], 6, job={"proc_gbps": 0.05})
    details = site.wait(job)
    assert details["state"] == "completed"
    rows = sorted(line.split() for line in output(site, job))
    assert [row[1] for row in rows] == [str(rank) for rank in range(6)]
    assert {row[2] for row in rows} == {"6"}
    assert [(row[3], row[4]) for row in rows] == [("0", "alpha")] * 4 + [("1", "beta")] * 2
    assert 0.0 <= details["skew_ms"] < 1000.0
    assert site.lines("job_started")[-1]["skew_ms"] == details["skew_ms"]


MEET = """
import os, socket, time
place = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
if os.environ["RANK"] == "0":
    with socket.create_server(place) as server:
        others = range(int(os.environ["WORLD_SIZE"]) - 1)
        met = [server.accept()[0].recv(9).decode() for _ in others]
    print(*sorted(met))
else:
    for _ in range(500):
        try:
            with socket.create_connection(place) as talk:
                talk.sendall(os.environ["RANK"].encode())
            break
        except ConnectionRefusedError:
            time.sleep(0.02)
"""


def test_the_ranks_of_a_job_meet_without_being_told_where(site: Running) -> None:
    job = site.submit([sys.executable, "-c", MEET], 6)
    assert site.wait(job)["state"] == "completed"
    assert output(site, job) == ["1 2 3 4 5"]


@pytest.mark.parametrize(
    ("argv", "state", "words"),
    [
        pytest.param(["sh", "-c", "exit 3"], "failed", ": rank 0 exited with 3", id="exit code"),
        pytest.param(["/nowhere/frob"], "failed", "frob", id="no such command"),
        pytest.param(["/etc/passwd"], "failed", "/etc/passwd", id="not executable"),
    ],
)
def test_a_job_that_fails_says_why(site: Running, argv: list[str], state: str, words: str) -> None:
    details = site.wait(site.submit(argv))
    assert details["state"] == state
    assert words in details["detail"]


def test_a_time_limit_ends_a_job_and_its_children(site: Running) -> None:
    job = site.submit(["sh", "-c", "sleep 1000 & sleep 1000"], job={"time_limit": 0.5})
    details = site.wait(job)
    assert details["state"] == "timeout"


def test_cancel_hold_release_and_dependencies(site: Running) -> None:
    blockers = [site.submit(["sleep", "1000"], 8, job={"proc_gbps": 0.0})]
    held = site.submit(["true"], hold=True)
    after = site.submit(["true"], needs=[["afterok", blockers[0]]])
    anyway = site.submit(["true"], needs=[["afterany", blockers[0]]])
    site.until(lambda: site.job(blockers[0])["state"] == "running")
    assert site.job(held)["reason"] == "held"
    assert site.job(after)["reason"] == "dependency"
    assert site.ask("cancel", job=blockers[0])["type"] == "done"
    assert site.wait(blockers[0])["state"] == "cancelled"
    assert site.wait(after)["state"] == "cancelled"
    assert site.wait(anyway)["state"] == "completed"
    assert site.job(held)["state"] == "held"
    site.ask("release", job=held)
    assert site.wait(held)["state"] == "completed"


def test_an_array_is_one_submit_and_many_jobs(site: Running) -> None:
    of_array = "$COALLOC_ARRAY_TASK_COUNT $COALLOC_ARRAY_TASK_MIN $COALLOC_ARRAY_TASK_MAX"
    script = f'echo "$COALLOC_ARRAY_TASK_ID of {of_array} by $COALLOC_ARRAY_TASK_STEP"'
    answer = site.ask("submit", **site.submission(["sh", "-c", script], array=[3, 5, 8]))
    assert answer["jobs"] == [f"{answer['job']}_{index}" for index in (3, 5, 8)]
    ended = site.asker.ask({"type": "wait", "job": answer["job"]}, timeout_s=30.0)
    assert {job["state"] for job in ended["jobs"]} == {"completed"}
    assert [output(site, job) for job in answer["jobs"]] == [
        [f"{index} of 3 3 8 by 1"] for index in (3, 5, 8)
    ]


def test_the_same_token_is_the_same_job(site: Running) -> None:
    body = site.submission(["true"], token="abc")
    first, second = site.ask("submit", **body), site.ask("submit", **body)
    assert first["job"] == second["job"]
    assert (first["again"], second["again"]) == (False, True)


def test_an_impossible_job_is_refused_with_what_does_exist(site: Running) -> None:
    answer = site.ask("submit", **site.submission(["true"], 9))
    assert answer["code"] == "infeasible"
    assert answer["message"] == "needs 9 processes; 8 slots exist"
    kept = site.ask("submit", **site.submission(["true"], 9, hold_infeasible=True))
    assert site.job(kept["job"])["state"] == "held"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        pytest.param({"job": {"sigma": 1.7}}, "job.sigma: 1.7 is outside 0..1", id="bound"),
        pytest.param({"job": {"sigmma": 1}}, "job.sigmma: unknown key", id="unknown key"),
        pytest.param({"job": {"procs": 0}}, "job.procs: 0 is outside 1..1e+09", id="zero"),
        pytest.param({"job": {"clusters": ["nix"]}}, "there is no cluster 'nix'", id="cluster"),
        pytest.param({"needs": [["afterok", "99"]]}, "there is no job 99", id="dependency"),
        pytest.param({"token": 5}, "token: expected str", id="type"),
    ],
)
def test_a_wrong_submit_is_refused_in_one_line(
    site: Running, change: dict[str, Any], words: str
) -> None:
    body = site.submission(["true"])
    for key, value in change.items():
        body[key] = {**body[key], **value} if isinstance(value, dict) else value
    answer = site.ask("submit", **body)
    assert answer["type"] == "refused"
    assert words in answer["message"]
    assert "\n" not in answer["message"]


def test_the_nth_submit_starts_a_round_and_not_the_one_before(root: Path) -> None:
    rounds = """
[[rounds.trigger]]
kind = "timer"
every_s = 3600.0
[[rounds.trigger]]
kind = "queue_length"
at_least = 3
"""
    with Running(root, rounds=rounds) as site:
        for _ in range(2):
            site.submit(["true"])
        assert site.ask("status")["rounds"] == 0
        last = site.submit(["true"])
        site.wait(last)
        assert site.lines("round_finished")[0]["trigger"] == "queue_length"
        assert site.lines("round_finished")[0]["started"] == 3


def test_with_no_submits_the_timer_starts_rounds(root: Path) -> None:
    site = Running(root, rounds='[[rounds.trigger]]\nkind = "timer"\nevery_s = 0.2\n')
    site.start_daemon()
    try:
        site.until(lambda: len(site.lines("round_finished")) >= 3)
        assert {line["trigger"] for line in site.lines("round_finished")} == {"timer"}
    finally:
        site.stop()


def test_a_reload_applies_and_a_wrong_one_keeps_the_old(own_site: Running) -> None:
    site = own_site
    daemon = site.processes["coallocd"]
    good = site.config.read_text()
    site.config.write_text(good.replace("max_age_s = 30.0", 'max_age_s = "old"'))
    daemon.send_signal(signal.SIGHUP)
    site.until(lambda: bool(site.lines("reload_failed")))
    assert "coallocd.toml: readings.max_age_s" in site.lines("reload_failed")[0]["why"]
    assert site.ask("status")["type"] == "status"
    site.config.write_text(good.replace("max_age_s = 30.0", "max_age_s = 45.0"))
    daemon.send_signal(signal.SIGHUP)
    site.until(lambda: bool(site.lines("configuration_reloaded")))
    assert site.lines("configuration_reloaded")[0]["changed"] == ["readings.max_age_s"]
    assert site.wait(site.submit(["true"]))["state"] == "completed"


def test_a_reload_names_what_differs_from_what_runs(own_site: Running) -> None:
    """Also where a change is taken back, which needs no restart."""
    site = own_site
    daemon = site.processes["coallocd"]
    first = site.config.read_text()
    other = first.replace("[daemon]", '[daemon]\nmetrics_address = "127.0.0.1:9090"', 1)
    for reloads, text in enumerate((other, other, first), 1):
        site.config.write_text(text)
        daemon.send_signal(signal.SIGHUP)
        site.until(lambda n=reloads: len(site.lines("configuration_reloaded")) == n)  # type: ignore[misc]
    needs = [line["needs_restart"] for line in site.lines("configuration_reloaded")]
    assert needs == [["daemon.metrics_address"], ["daemon.metrics_address"], []]


def test_a_cluster_that_leaves_and_returns_runs_jobs_again(own_site: Running) -> None:
    """Its executor has seen the first numbers of its orders already."""
    site = own_site
    daemon = site.processes["coallocd"]
    both = site.config.read_text()
    assert site.wait(site.submit(["true"], 6))["state"] == "completed"
    for reloads, text in enumerate((both[: both.rindex("[[clusters]]")], both), 1):
        site.config.write_text(text)
        daemon.send_signal(signal.SIGHUP)
        site.until(lambda n=reloads: len(site.lines("configuration_reloaded")) == n)  # type: ignore[misc]
    details = site.wait(site.submit(["true"], 6))
    assert (details["state"], details["attempt"]) == ("completed", 1)


def test_sigterm_stops_the_daemon_and_the_jobs_go_on(own_site: Running) -> None:
    site = own_site
    marker = site.work / "go"
    os.mkfifo(marker)
    job = site.submit(["sh", "-c", f"read line < {marker}; exit 7"])
    site.until(lambda: site.job(job)["state"] == "running")
    assert site.kill("coallocd", signal.SIGTERM) == 0
    with open(marker, "w") as fifo:
        fifo.write("on\n")
    site.start_daemon()
    details = site.wait(job)
    assert (details["state"], details["exit_code"]) == ("failed", 7)


def test_parts_survive_their_executor_and_are_adopted(own_site: Running) -> None:
    site = own_site
    marker = site.work / "go"
    os.mkfifo(marker)
    job = site.submit(["sh", "-c", f"read line < {marker}; echo done"])
    site.until(lambda: site.job(job)["state"] == "running")
    site.kill("alpha")
    with open(marker, "w") as fifo:
        fifo.write("on\n")
    site.start_executor("alpha")
    assert site.wait(job)["state"] == "completed"
    assert output(site, job) == ["done"]


def test_a_full_queue_is_answered_and_the_log_names_each_round(own_site: Running) -> None:
    site = own_site
    jobs = [site.submit(["true"], procs) for procs in (1, 2, 3, 4, 8, 1, 2)]
    for job in jobs:
        assert site.wait(job)["state"] == "completed"
    site.ask("round_now")  # which counts what has started since the last one
    site.until(
        lambda: (
            len(jobs)
            == sum(line["started"] + line["between"] for line in site.lines("round_finished"))
        )
    )
    assert all(line["total_s"] >= 0.0 for line in site.lines("round_finished"))
