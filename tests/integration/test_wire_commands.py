"""Every command, and the Python client, against a real daemon and real executors."""

from __future__ import annotations

import io
import json
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from coalloc import Client
from coalloc.cli import main
from coalloc.client.client import RefusedError
from coalloc.client.submission import submission
from coalloc.wire.answers import Submitted
from tests.support.live_site import Running

LIMIT_S = 60.0


@pytest.fixture(scope="module")
def site() -> Iterator[Running]:
    """One site for the module: 4 + 4 nodes."""
    with (
        tempfile.TemporaryDirectory(prefix="co-", ignore_cleanup_errors=True) as root,
        Running(Path(root)) as running,
    ):
        yield running


def coalloc(site: Running, *words: str, code: int = 0, stdin: str = "") -> str:
    """Run ``coalloc`` in this process, from the folder of a site; returns what it printed."""
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.chdir(site.work)
        patch.setenv("COALLOC_CONFIG", str(site.config))
        patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        assert main.main(list(words)) == code, err.getvalue()
    if code == 0:
        return out.getvalue()
    assert "Traceback" not in err.getvalue()
    return err.getvalue()


@pytest.fixture
def client(site: Running, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    monkeypatch.chdir(site.work)  # jobs write their output where they are submitted
    with Client(config=site.config) as connected:
        yield connected


def test_a_script_from_submit_to_its_output(site: Running) -> None:
    (site.work / "job.sh").write_text(
        "#!/bin/sh\n#COALLOC -n 2 --base-time 5s -J pair -o out-%j\n"
        'echo "$1 $COLOUR $COALLOC_RANK"\nexit 0\n'
    )
    job = coalloc(
        site, "submit", "--parsable", "--wait", "--export=ALL,COLOUR=red", "job.sh", "hello"
    ).strip()
    lines = (site.work / f"out-{job}").read_text().splitlines()
    assert sorted(lines) == ["hello red 0", "hello red 1"]
    assert "pair" in coalloc(site, "show", job)
    row = json.loads(coalloc(site, "queue", "--json", "-j", job))["jobs"][0]
    assert (row["name"], row["state"], row["exit_code"]) == ("pair", "completed", 0)


def test_several_jobs_are_shown_in_one_command(site: Running) -> None:
    first, second = (
        coalloc(site, "submit", "--parsable", "--base-time", "5s", "-J", name, "--", "true").strip()
        for name in ("red", "blue")
    )
    coalloc(site, "wait", "-q", first, second)
    said = coalloc(site, "show", first, second)
    assert [line.split()[2] for line in said.splitlines() if line.startswith("Job ")] == [
        "red",
        "blue",
    ]
    bodies = json.loads(coalloc(site, "show", "--json", f"{first},{second}"))["jobs"]
    assert [body["job"]["id"] for body in bodies] == [first, second]
    assert bodies[0] == json.loads(coalloc(site, "show", "--json", first)) | {
        "time": bodies[0]["time"]
    }


def test_jobs_of_a_node(site: Running) -> None:
    job = coalloc(site, "submit", "--parsable", "--base-time", "5s", "--", "true").strip()
    coalloc(site, "wait", "-q", job)
    (node,) = json.loads(coalloc(site, "queue", "--json", "-j", job))["jobs"][0]["nodes"]
    other = next(n for n in ("a1", "b1") if n != node)
    for nodes, jobs in ((f"{node},{other}", [job]), (other, [])):
        rows = json.loads(coalloc(site, "queue", "--json", "-j", job, "-w", nodes))["jobs"]
        assert [row["id"] for row in rows] == jobs


def test_a_script_from_standard_input(site: Running) -> None:
    text = "#!/bin/sh\n#COALLOC --base-time 5s -o stdin.out\necho piped\n"
    coalloc(site, "submit", "-W", stdin=text)
    assert (site.work / "stdin.out").read_text() == "piped\n"


def test_the_exit_code_of_the_job_is_that_of_wait(site: Running) -> None:
    words = ("--base-time", "5s", "--", "sh", "-c", "exit 7")
    assert "exit code 7" in coalloc(site, "submit", "--wait", *words, code=7)
    job = coalloc(site, "submit", "--parsable", *words).strip()
    coalloc(site, "wait", job, code=7)
    assert "failed" in coalloc(site, "why", job)


def test_hold_release_cancel(site: Running, client: Client) -> None:
    job = coalloc(site, "submit", "-H", "--parsable", "-t", "5", "--", "sleep", "60").strip()
    assert "held" in coalloc(site, "why", job)
    assert "(JobHeldUser" in coalloc(site, "queue", "-j", job)
    coalloc(site, "release", job)
    site.until(lambda: client.show(job).state == "running")
    assert "is running, not pending" in coalloc(site, "hold", job, code=1)
    coalloc(site, "cancel", job)
    coalloc(site, "wait", job, code=128 + 15)  # it ran: its processes were ended by SIGTERM
    assert client.show(job).state == "cancelled"
    assert "has ended already" in coalloc(site, "cancel", job, code=1)


def test_an_array_is_one_submit(site: Running, client: Client) -> None:
    done = client.submit(["sh", "-c", "exit $COALLOC_ARRAY_TASK_ID"], array=[0, 2], base_time=5.0)
    assert done.jobs == (f"{done.job}_0", f"{done.job}_2")
    # one member's end does not wait for the others, and says nothing of them
    (one,) = client.wait(done.jobs[0], LIMIT_S)
    assert (one.id, one.exit_code) == (done.jobs[0], 0)
    codes = {ended.id: ended.exit_code for ended in client.wait(done.job, LIMIT_S)}
    assert codes == {done.jobs[0]: 0, done.jobs[1]: 2}


def test_a_token_is_one_job(client: Client) -> None:
    first = client.submit(["true"], token="once", base_time=5.0)
    again = client.submit(["true"], token="once", base_time=5.0)
    assert (again.job, again.again) == (first.job, True)


def test_impossible_jobs(site: Running, client: Client) -> None:
    refused = coalloc(site, "submit", "-n", "99", "--", "true", code=1)
    assert "needs 99 processes; 8 slots exist (--hold-infeasible" in refused
    job = coalloc(site, "submit", "--parsable", "-n", "99", "--hold-infeasible", "--", "true")
    assert client.show(job.strip()).state == "held"
    with pytest.raises(RefusedError) as caught:
        client.submit(["true"], procs=99)
    assert caught.value.code == "infeasible"
    unknown = coalloc(site, "submit", "-M", "gamma", "--", "true", code=1)
    assert "there is no cluster 'gamma'" in unknown


TOO_LONG = r"17,000,[0-9]{3} bytes; a message holds at most 16,777,216"


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"cwd": "\0x"}, "launch.cwd: holds a NUL character"),
        ({"stdout": "a\0"}, "launch.stdout: holds a NUL character"),
        ({"name": "a\0b"}, "name: holds a NUL character"),
        ({"env": {"A": "\0"}}, "launch.env.A: holds a NUL character"),
        ({"env": {"A\0B": ""}}, "launch.env: a name: holds a NUL character"),
        ({"array": [0, 1], "script": "#!/bin/sh\n\0"}, "launch.script: holds a NUL character"),
        ({"cwd": "/" + "x" * 5000}, "launch.cwd: is 5,001 bytes; a path holds at most 4,095"),
        ({"env": {"A": "x" * 200_000}}, "launch.env: is 200,002 bytes; the variable A holds"),
        ({"env": {}, "script": "x" * 17_000_000}, TOO_LONG),
    ],
)
def test_what_can_never_be_started_is_refused(
    client: Client, options: dict[str, Any], why: str
) -> None:
    """And nothing of it is queued, one by one, many at a time or asked about."""
    before = client.status()
    with pytest.raises(RefusedError, match=why) as refused:
        client.submit(["true"], **options)
    assert refused.value.code == "bad_request"
    with pytest.raises(RefusedError, match=why):
        client.test_submit(["true"], **options)
    bodies = [submission(["true"], **given) for given in (options, {"hold": True}, options)]
    first, good, last = client.submit_many(bodies)
    assert isinstance(good, Submitted)
    for outcome in (first, last):
        assert isinstance(outcome, RefusedError)
        assert re.search(why, outcome.message)
    client.cancel(good.job)
    assert client.status().waiting == before.waiting


def test_a_change_holds_no_nul_character(client: Client) -> None:
    job = client.submit(["true"], hold=True).job
    with pytest.raises(RefusedError, match="name: holds a NUL character"):
        client.update(job, name="\0")
    client.cancel(job, reason="so it is")
    with pytest.raises(RefusedError, match=r"commands.a\[1\]: holds a NUL character"):
        client.ask("submit_workflow", commands={"a": ["true", "\0"]})


def test_an_estimate_queues_nothing(site: Running, client: Client) -> None:
    before = client.status().waiting
    words = ("-n", "6", "-t", "1", "--", "true")
    assert "nothing was queued" in coalloc(site, "submit", "--test-only", *words)
    assert client.test_submit(["true"], procs=2, base_time=5.0).start_estimate is not None
    assert client.status().waiting == before


def test_deadlines_that_cannot_be_kept_are_refused_and_told(site: Running, client: Client) -> None:
    before = client.status().waiting
    for test in ("--test-only", "--parsable"):
        late = ("submit", test, "-t", "2h", "--deadline", "now+1hour", "--", "true")
        assert "too late at the earliest" in coalloc(site, *late, code=1)
    words = ("--test-only", "-t", "1", "--deadline", "now+1hour", "--", "true")
    assert "nothing was queued" in coalloc(site, "submit", *words)
    assert client.status().waiting == before


def test_a_throttle_is_kept_changed_and_shown(site: Running, client: Client) -> None:
    done = coalloc(site, "submit", "--parsable", "-a", "0-3%1", "--", "sleep", "600").strip()
    site.until(lambda: client.show(f"{done}_0").state == "running")
    assert f"{done}_[1-3%1]" in coalloc(site, "queue")
    assert "at most 1" in coalloc(site, "show", done)
    coalloc(site, "update", done, "--throttle", "2", "--deadline", "now+2days")
    assert {client.show(f"{done}_{n}").throttle for n in range(4)} == {2}
    assert client.show(f"{done}_3").finish_by is not None
    coalloc(site, "update", done, "--throttle", "none", "--deadline", "none")
    assert client.show(f"{done}_3").finish_by is None
    coalloc(site, "cancel", done)
    client.wait(done, LIMIT_S)


def test_operators_verbs(site: Running, client: Client) -> None:
    coalloc(site, "drain", "alpha", "--reason", "test")
    assert "drained" in coalloc(site, "nodes")
    assert {row.cluster: row.drained for row in client.nodes()}["alpha"]
    coalloc(site, "resume", "alpha")
    assert "no cluster and no node gamma" in coalloc(site, "drain", "gamma", code=1)
    coalloc(site, "pause", "rounds")
    assert "paused" in coalloc(site, "status")
    job = client.submit(["true"], base_time=5.0).job
    assert client.why(job).reason == "rounds_paused"
    coalloc(site, "resume", "rounds")
    coalloc(site, "round", "now")
    client.wait(job, LIMIT_S)
    kinds = [event.kind for event in client.events()]
    assert {"drained", "resumed", "rounds_paused", "rounds_resumed", "round_requested"} <= {*kinds}


def test_plan_snapshot_solve_check(site: Running) -> None:
    coalloc(site, "snapshot", "-o", "now.json")
    coalloc(site, "solve", "--policy", "plain", "now.json", "-o", "plan.json")
    assert "makespan" in coalloc(site, "check", "now.json", "plan.json")
    coalloc(site, "plan", "--gantt", "text")
    body = json.loads(coalloc(site, "plan", "--json"))
    assert body["plan"]["plan"]["format"] == "coalloc-plan/1"


def test_events_are_numbered_without_gaps(site: Running, client: Client) -> None:
    lines = coalloc(site, "events", "--json", "--since", "0").splitlines()
    seqs = [json.loads(line)["seq"] for line in lines]
    assert seqs == list(range(1, len(seqs) + 1))
    following = client.events(seqs[-1], follow=True)
    job = client.submit(["true"], base_time=5.0).job
    kinds = []
    for event in following:
        if event.job == job:
            kinds.append(event.kind)
        if event.kind == "job_ended" and event.job == job:
            break
    following.close()
    assert kinds == ["job_submitted", "job_placed", "job_started", "job_ended"]


def test_many_submits_at_once(client: Client) -> None:
    bodies = [submission(["true"], base_time=5.0, hold=True) for _ in range(300)]
    outcomes = list(client.submit_many(bodies))
    jobs = [outcome.job for outcome in outcomes if not isinstance(outcome, RefusedError)]
    assert len(set(jobs)) == 300
    for job in jobs:
        client.cancel(job)


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        ("events", {"since": 2**70}),  # more than SQLite takes
        ("events", {"since": -1}),
        ("events", {"since": 1.5}),
        ("show", {"job": "x" * 10_000}),
        ("show", {"job": None}),
        ("wait", {"job": ["1"]}),
        ("queue", {"user": {"a": 1}, "all": "yes"}),
        ("frobnicate", {}),
        ("hello", {"cluster": "alpha"}),  # an executor's word
        ("submit", {"token": "x", "job": {"kind": "rigid", "procs": 1e300}, "launch": {}}),
        ("submit", {"token": "x", "job": [], "launch": {"argv": ["true"]}}),
        ("cancel", {"job": "1" * 5000}),
        ("drain", {"target": "\x00"}),
    ],
)
def test_odd_requests_are_answered(client: Client, kind: str, fields: dict[str, object]) -> None:
    code = "answered"
    try:
        client.ask(kind, **fields)  # type: ignore[arg-type]
    except RefusedError as error:
        code = error.code
    assert code in {"answered", "bad_request", "not_found"}
    assert client.status().writable


def test_nodes_are_empty_by_the_time_that_drain_names(site: Running) -> None:
    """A short job goes first, a long one stays off them until the reservation is taken back.

    However busy the machine is: it makes the short one look up to a hundred times longer.
    """
    try:
        made = coalloc(site, "drain", "alpha", "--by", "now+20hours", "--reason", "new switch")
        name = made.partition(" as ")[2].partition(":")[0]
        assert made.startswith("Reserved alpha[1-4] as r")
        listed = coalloc(site, "reserve").splitlines()[1].split()
        assert (listed[0], listed[-2:]) == (name, ["new", "switch"])
        short = coalloc(site, "submit", "-n", "8", "-t", "10", "--", "true").split()[-1]
        coalloc(site, "wait", short)
        long = coalloc(site, "submit", "-n", "8", "-t", "2-00:00:00", "--", "true").split()[-1]
        site.until(lambda: "reserv" in coalloc(site, "why", long))
        assert site.job(long)["state"] == "pending"
        assert "is not a time" in coalloc(site, "drain", "alpha", "--by", "soon", code=2)
    finally:
        coalloc(site, "unreserve", name)
    coalloc(site, "wait", long)
