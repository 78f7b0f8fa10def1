"""Patience of `coalloc demo`."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from coalloc.cli import demo


@pytest.mark.parametrize("steps", [13, 2])
def test_a_solver_that_gets_on_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: int
) -> None:
    """Each step done gives the next as long; one that takes longer than the limit is too much."""
    clock = [0.0]

    def sleep(seconds: float) -> None:
        clock[0] += seconds
        if clock[0] > 13 * 60:
            show.daemon_log.write_text('{"event": "solver_warmed"}\n')

    def done() -> int:
        return min(int(clock[0] / 60), steps)

    monkeypatch.setattr(demo, "time", SimpleNamespace(monotonic=lambda: clock[0], sleep=sleep))
    show = demo.Show(tmp_path)
    show.daemon_log.write_text("")
    if steps == 13:
        show.until("warm", 100, "solver_warmed", 1, done)
        return
    with pytest.raises(demo.DemoError, match="not after 100 s without a step: warm"):
        show.until("warm", 100, "solver_warmed", 1, done)
    assert 220 <= clock[0] <= 250
