"""Files that a part's runner has on disk before anything is started."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from coalloc.adapters.runner import durable
from coalloc.adapters.runner.runner import Runner
from coalloc.adapters.runner.status import READY, START, StatusFile
from coalloc.adapters.runner.streams import Streams


def test_the_names_are_on_disk_before_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[object] = []
    write = StatusFile.write

    def note(file: StatusFile, slot: int, record: dict[str, object], durable: bool = False) -> None:
        done.append(slot)
        write(file, slot, record, durable)

    monkeypatch.setattr(StatusFile, "write", note)
    monkeypatch.setattr(durable, "synchronise", done.append)
    folder = tmp_path / "part"
    folder.mkdir()
    ready, go = os.pipe(), os.pipe()
    runner = Runner(str(folder), -1, -1)
    runner.spec = {"time_limit_s": None}  # type: ignore[typeddict-item]
    runner.streams = Streams(lambda _: None, lambda _: None)
    runner.codes, runner.go_asked = [None], True
    runner.say_fd, runner.go_fd = ready[0], go[1]
    os.write(ready[1], b"R 0\n")
    runner._take(ready[0])
    assert done == [READY, str(folder), str(tmp_path), START]
    assert os.read(go[0], 9) == b"g"
    for fd in (*ready, *go):
        os.close(fd)
