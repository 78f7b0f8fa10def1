"""Divisible jobs in the real daemon: every chunk once in spite of kills; failures; answers."""

from __future__ import annotations

import uuid
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from coalloc.cli import main
from tests.support.live_site import ENDED, Running
from tests.support.loads import kill_in_between

SCRIPT = """\
#!/bin/sh
chunk=$COALLOC_CHUNK_FIRST
end=$((COALLOC_CHUNK_FIRST + COALLOC_CHUNKS))
while [ $chunk -lt $end ]; do
    {each}
    echo "$chunk $COALLOC_CHUNKS_TOTAL $COALLOC_JOB_ID" >> {work}/ran
    chunk=$((chunk + 1))
done
"""


def scan(site: Running, each: str = "sleep 0.05") -> list[str]:
    """The command of a job whose processes write down their chunks, after doing something."""
    script = site.work / "scan.sh"
    script.write_text(SCRIPT.format(each=each, work=site.work))
    return ["sh", str(script)]


def submit(site: Running, argv: list[str], chunks: int, chunk_s: float, **fields: Any) -> str:
    job = {"kind": "divisible", "work": chunks * chunk_s, "chunk_s": chunk_s}
    launch = site.submission(argv)["launch"] | {"stdout": "/dev/null"}
    answer = site.ask("submit", token=uuid.uuid4().hex, job=job, launch=launch, **fields)
    assert answer["type"] == "done", answer
    return str(answer["job"])


def ran(site: Running) -> Counter[int]:
    """How often each chunk ran."""
    path = site.work / "ran"
    lines = path.read_text().splitlines() if path.exists() else []
    return Counter(int(line.split()[0]) for line in lines)


@pytest.mark.parametrize(
    ("policy", "chunks", "kills"),
    [
        pytest.param("plain", 60, 2, marks=pytest.mark.slow),
        pytest.param("easy", 1500, 6, marks=pytest.mark.slow),
    ],
)
def test_every_chunk_runs_once_whoever_is_killed(
    root: Path, policy: str, chunks: int, kills: int
) -> None:
    with Running(root, policy=policy, rounds="piece_s = 0.6") as site:
        number = submit(site, scan(site), chunks, 0.1)
        rigid = site.submit(["true"], procs=3)
        kill_in_between(site, kills, chunks, lambda: ran(site).total())
        site.until(lambda: site.job(number)["state"] in ENDED, 600.0)
        shown = site.job(number)
        assert (shown["state"], shown["exit_code"]) == ("completed", 0), shown["detail"]
        assert ran(site) == Counter(range(chunks))
        held = [c for p in shown["pieces"] for c in range(p["first"], p["first"] + p["chunks"])]
        assert sorted(held) == list(range(chunks))
        assert {piece["failures"] for piece in shown["pieces"]} == {0}
        assert shown["progress"] == {
            "total": chunks,
            "completed": chunks,
            "running": 0,
            "failed": 0,
            "unit": "chunks",
        }
        assert site.wait(rigid)["state"] == "completed"


def test_failure_and_what_is_shown(
    root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Running(root, policy="plain", start="backoff_first_s = 0.1", rounds="piece_s = 0.2")
    monkeypatch.setenv("COALLOC_CONFIG", str(site.config))
    monkeypatch.chdir(site.work)
    with site:
        words = ["--divisible", "2s", "--chunk", "0.1s", "-o", "/dev/null", "--retries", "1", "-k"]
        command = scan(site, "test $chunk -ne 13 || exit 7")
        assert main.main(["submit", *words, "--wait", "--", *command]) == 7
        out = capsys.readouterr()
        assert out.out == "Submitted job 1\n"
        assert "failed" in out.err
        shown = site.job("1")
        bad = [piece for piece in shown["pieces"] if piece["state"] == "failed"]
        # Of a second try with less room, a new piece has the rest, and the failure.
        assert [(p["failures"], p["exit_code"]) for p in bad] == [(1, 7)]
        lost = set(range(bad[0]["first"], bad[0]["first"] + bad[0]["chunks"]))
        assert 13 in lost
        others = set(range(20)) - lost
        assert others <= ran(site).keys()
        assert shown["progress"]["completed"] == len(others)
        assert main.main(["queue", "--all"]) == 0
        (line,) = capsys.readouterr().out.splitlines()[1:]
        assert f"{len(others)}/20 chunks" in line
        assert main.main(["show", "1"]) == 0
        text = capsys.readouterr().out
        assert f"{len(others)} of 20 chunks completed, 0 placed, {len(lost)} failed" in text
        assert "2 s in 20 chunks of 0.1 s" in text
        assert main.main(["show", bad[0]["id"]]) == 0
        assert f"({len(lost)} in all) of divisible job 1" in capsys.readouterr().out
        assert main.main(["wait", bad[0]["id"]]) == 7
        capsys.readouterr()
        assert main.main(["show", "1.99"]) == 1
        assert "job 1 has no piece 99" in capsys.readouterr().err


def test_processes_share_chunks_hold_starts_none_and_cancel_ends_all(root: Path) -> None:
    with Running(root, policy="plain", rounds="piece_s = 0.3") as site:
        assert_shared(site)
        number = submit(site, scan(site), 10_000, 0.1)
        site.until(lambda: ran(site).total() > 4)
        assert site.ask("hold", job=number)["type"] == "done"
        site.until(lambda: site.job(number)["progress"]["running"] == 0)
        before = len(site.job(number)["pieces"])
        assert site.ask("round_now")["type"] == "done"
        site.until(lambda: site.ask("status")["waiting"] == 1)
        assert len(site.job(number)["pieces"]) == before
        assert site.ask("release", job=number)["type"] == "done"
        site.until(lambda: site.job(number)["progress"]["running"] > 0)
        assert site.ask("cancel", job=number)["type"] == "done"
        shown = site.wait(number)
        assert shown["state"] == "cancelled"
        assert {piece["state"] for piece in shown["pieces"]} == {"completed", "cancelled"}


def assert_shared(site: Running) -> None:
    """Each process of a piece is told chunks of its own, in a row."""
    line = "echo $COALLOC_RANK $COALLOC_SIZE $COALLOC_CHUNK_FIRST $COALLOC_CHUNKS"
    number = submit(site, ["sh", "-c", f"{line} >> {site.work}/shares"], 11, 0.1)
    expected = []
    for piece in site.wait(number)["pieces"]:
        size, first = sum(piece["nodes"].values()), piece["first"]
        for rank in range(size):
            count = piece["chunks"] // size + (rank < piece["chunks"] % size)
            expected.append((rank, size, first, count))
            first += count
    lines = (site.work / "shares").read_text().splitlines()
    told = [tuple(map(int, row.split())) for row in lines]
    assert sorted(told) == sorted(expected)
    assert sum(count for *_, count in told) == 11
