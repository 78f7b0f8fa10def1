"""``coalloc account``: the jobs it asks for, its table and its CSV."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import pytest

from coalloc.cli import account
from coalloc.cli.main import main
from coalloc.core.base.records import JobState
from coalloc.wire.share_answers import AccountRow


class Accounts:
    """A client whose daemon has one account for each job that is asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def account(self, *, job: str, **_: Any) -> Iterator[AccountRow]:
        self.asked.append(job)
        yield AccountRow(
            id=job or "7",
            name="model",
            user="ada",
            project="",
            state=JobState.COMPLETED,
            submitted=0.0,
            eligible=0.0,
            started=60.0,
            ended=3660.0,
            procs=3,
            requested_s=None,
            proc_s=10800.0,
            clusters={"a": 2, "b": 1},
            nodes={"a1": 2, "b1": 1},
        )


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Accounts:
    made = Accounts()
    monkeypatch.setattr(account, "connect", lambda args: nullcontext(made))
    return made


@pytest.mark.parametrize(
    ("words", "asked"), [("", [""]), ("12 13_[0-1],5", ["12", "13_0", "13_1", "5"])]
)
def test_csv_of_all_or_of_single_jobs(
    client: Accounts, capsys: pytest.CaptureFixture[str], words: str, asked: list[str]
) -> None:
    assert main(["account", "--csv", *words.split()]) == 0
    rows = list(csv.DictReader(capsys.readouterr().out.splitlines()))
    assert client.asked == asked
    assert [row["id"] for row in rows] == [job or "7" for job in asked]
    assert (rows[0]["clusters"], rows[0]["nodes"]) == ("a:2+b:1", "a1:2+b1:1")
    assert rows[0]["ended"] == "3660.0"


def test_the_table(client: Accounts, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["account", "12"]) == 0
    row = capsys.readouterr().out.splitlines()[1].split()
    assert row[:3] == ["12", "model", "ada"]
    assert row[7:11] == ["1:00", "1:00:00", "3", "3.000"]
