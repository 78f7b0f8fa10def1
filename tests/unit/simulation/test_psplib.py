"""PSPLIB's projects: both forms of a file, and the command."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from coalloc.cli import main
from coalloc.model.errors import InputError
from coalloc.model.formats.snapshot_json import read_snapshot
from coalloc.policies.checking.check import check
from coalloc.simulation.reproduce.psplib import read_projects
from coalloc.simulation.reproduce.solving import solve

FILE = "data/psplib/j3010_1.sm"


def test_a_file_and_the_list_tell_the_same_project(shared_file: Callable[[str], Path]) -> None:
    (file,) = read_projects(shared_file(FILE))
    listed = {one.name: one for one in read_projects(shared_file(FILE).parent)}
    assert len(listed) == 780
    assert listed["j3010_1"].best_makespan == 42
    assert file.best_makespan is None
    assert file.snapshot() == listed["j3010_1"].snapshot()


def test_one_project_is_planned_checked_and_written(
    shared_file: Callable[[str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["reproduce", "psplib", str(shared_file(FILE)), "-o", str(tmp_path), "--work", "200000"]
    assert main.main([*words, "--report", str(tmp_path / "page.html")]) == 0
    assert "| j30 | 1 |" in capsys.readouterr().out
    assert "psplib" in (tmp_path / "page.html").read_text()
    written = read_snapshot(json.loads((tmp_path / "j3010_1.json").read_text()))
    found = solve(written, "auto", {"objective": "makespan"}, work=60_000)
    assert check(written, found.plan).ok
    assert 42 <= found.makespan <= 46
    assert (tmp_path / "psplib.csv").read_text().splitlines()[1].startswith("j30,j3010_1,4")


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.sm", "no project\n", "a.sm: is no project of PSPLIB in a single mode"),
        ("a.json", "[{}]", "set: is missing"),
        ("a.txt", "", "holds no project"),
        (
            "a.json",
            json.dumps(
                [{"set": "a", "name": "x", "durations": [0, 1, 0], "requests": [[1]]}]
            ).replace("]]}", ']], "successors": [[1], [2], []], "capacities": [1]}'),
            "x: has tasks without",
        ),
    ],
)
def test_what_is_no_project_is_said_in_one_line(
    tmp_path: Path, name: str, text: str, said: str
) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(InputError) as caught:
        read_projects(tmp_path)[0].snapshot()
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
