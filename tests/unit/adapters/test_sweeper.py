"""Folders go, whatever a job has left in them, and nothing outside them does."""

from __future__ import annotations

import os
import select
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from coalloc.adapters.sweeper import MOST_FILES, OLD, Sweeper

NESTED = 1200
"""More than Python's recursion limit."""
NOBODY = 65534
DEEP = f"import os\nfor _ in range({NESTED}): os.mkdir('d'); os.chdir('d')"


def deep(folder: Path) -> None:
    subprocess.run(["python3", "-c", DEEP], cwd=folder, check=True)


def crowded(folder: Path) -> None:
    for number in range(10 * MOST_FILES):
        (folder / str(number)).touch()


def closed(folder: Path) -> None:
    (folder / "a" / "b").mkdir(parents=True)
    (folder / "a" / "b").chmod(0)
    (folder / "a").chmod(0)


def linked(folder: Path) -> None:
    (folder / "more").mkdir()
    for link in (folder / "out", folder / "more" / "out"):
        link.symlink_to(folder.parent.parent / "outside")


@pytest.fixture
def part(tmp_path: Path) -> Path:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "precious").touch()
    part = tmp_path / "part"
    (part / "user").mkdir(parents=True)
    (part / "spec.json").touch()
    return part


def swept(sweeper: Sweeper, root: Path) -> None:
    """Go on until nothing is left to remove."""
    while sweeper._waiting:
        sweeper.step()
        if sweeper._child is not None:
            child = os.pidfd_open(sweeper._child.pid)
            assert select.select([child], [], [], 60.0)[0]
            os.close(child)
    assert sorted(path.name for path in root.iterdir()) == ["outside"]
    assert (root / "outside" / "precious").exists()


def test_few_files_go_at_once(part: Path) -> None:
    (part / "user" / "script").touch()
    Sweeper().remove(part)
    assert sorted(path.name for path in part.parent.iterdir()) == ["outside"]


@pytest.mark.parametrize("fill", [deep, crowded, closed, linked])
def test_what_a_job_has_left_goes_without_a_wait(part: Path, fill: Callable[[Path], None]) -> None:
    fill(part / "user")
    sweeper = Sweeper()
    sweeper.remove(part)
    assert not part.exists()
    swept(sweeper, part.parent)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root is more than one user")
@pytest.mark.parametrize("fill", [deep, crowded, closed, linked])
def test_what_belongs_to_another_is_removed_as_that_user(
    part: Path, fill: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(part / "user")
    subprocess.run(["chown", "-Rh", f"{NOBODY}:{NOBODY}", part / "user"], check=True)
    for folder in (part, *part.parents[:-2]):
        folder.chmod(0o755)
    users: list[object] = []
    popen = subprocess.Popen

    def noted(*args: object, **fields: object) -> object:
        users.append(fields["user"])
        return popen(*args, **fields)  # type: ignore[call-overload]

    monkeypatch.setattr(subprocess, "Popen", noted)
    sweeper = Sweeper()
    sweeper.remove(part)
    swept(sweeper, part.parent)
    assert set(users) == {NOBODY}


def test_a_folder_that_cannot_be_moved_is_where_it_was(
    part: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: Path, target: Path) -> Path:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(Path, "rename", refuse)
    with pytest.raises(OSError, match="Read-only"):
        Sweeper().remove(part)
    assert (part / "spec.json").exists()


def test_what_cannot_be_removed_is_given_up_until_the_next_start(
    part: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    deep(part / "user")
    monkeypatch.setattr("coalloc.adapters.sweeper._REMOVE", "exit 1")
    sweeper = Sweeper()
    sweeper.remove(part)
    while sweeper._waiting:
        sweeper.step()
        if sweeper._child is not None:
            sweeper._child.wait()
    assert "cannot be removed" in caplog.text
    monkeypatch.undo()
    (left,) = part.parent.glob(f"{OLD}*")
    again = Sweeper()
    again.take(left)
    swept(again, part.parent)


def test_closing_ends_the_child(part: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep(part / "user")
    monkeypatch.setattr("coalloc.adapters.sweeper._REMOVE", "exec sleep 600")
    sweeper = Sweeper()
    sweeper.remove(part)
    sweeper.step()
    child = sweeper._child
    assert child is not None
    sweeper.close()
    assert child.returncode == -9
    shutil.rmtree(part.parent / "outside")
    subprocess.run(["rm", "-rf", *part.parent.glob(f"{OLD}*")], check=True)
