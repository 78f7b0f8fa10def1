"""Compiling is announced, told apart from planning, and silent where it takes no time."""

from __future__ import annotations

import threading

import pytest

from coalloc.cli import compiling


def test_a_long_compilation_is_said_again_and_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    said = threading.Semaphore(0)

    def note(text: str) -> None:
        print(text)
        said.release()

    monkeypatch.setattr(compiling, "note", note)
    monkeypatch.setattr(compiling, "FIRST_S", 0.0)
    monkeypatch.setattr(compiling, "EVERY_S", 0.01)
    with compiling.compiling() as watch:
        for _ in range(3):
            assert said.acquire(timeout=60.0)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "compiling, once for this machine and version"
    assert lines[1].endswith(" s so far")
    assert watch.seconds > 0.0


def test_a_filled_cache_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with compiling.compiling():
        pass
    assert capsys.readouterr().err == ""
