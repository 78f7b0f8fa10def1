"""Commands run in this process, and the one line that they refuse with."""

from __future__ import annotations

import pytest

from coalloc.cli import main


def run(*words: str) -> int:
    return main.main(list(words))


def error_of(capsys: pytest.CaptureFixture[str]) -> str:
    out, err = capsys.readouterr()
    assert not out
    assert err.startswith("coalloc: error: ")
    assert err.count("\n") == 1
    return err.removeprefix("coalloc: error: ")
