"""Windows of real logs, and what is said where the logs are absent."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from coalloc.cli import main
from coalloc.core.learning.estimates import KEPT
from coalloc.simulation.reproduce.oas.stochastic import OAS, POLICIES, SEARCH, compared
from coalloc.simulation.reproduce.oas.windows import LOAD, LOGS, replay_window, windows
from coalloc.simulation.reproduce.rows import Rows


def test_absent_logs_are_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COALLOC_SHARED", str(tmp_path / "none"))
    assert main.main(["reproduce", "oas-stochastic", "-o", str(tmp_path / "out")]) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"coalloc: error: {tmp_path}/none/data/swf: is absent")
    assert err.count("\n") == 1


def test_a_window_keeps_the_log_but_for_its_pace(
    shared_file: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    log = LOGS[0]
    monkeypatch.setenv("COALLOC_SHARED", str(shared_file(f"data/swf/{log.file}").parents[2]))
    first, second = windows(log, 2, 12, 0)
    assert windows(log, 1, 12, 0)[0] == first
    assert first.first < second.first != windows(log, 2, 12, 1)[1].first
    work = sum(logged.run_s * logged.job.procs for logged in first.workload.jobs)
    span = first.workload.submit[-1] - first.workload.submit[0]
    assert work / (span * log.nodes * log.slots) == pytest.approx(LOAD)
    assert len(first.workload.jobs) == 12
    assert first.ratios
    for values in first.ratios.values():
        assert 0 < len(values) <= KEPT
        assert all(0.0 < value <= 1.0 for value in values)
    found = [
        replay_window(first, "oas", {**SEARCH, "scenarios": count}, 500, 0) for count in (0, 3)
    ]
    for result in found:
        assert result["makespan_s"] >= max(logged.run_s for logged in first.workload.jobs)
        assert result["mean_wait_s"] <= result["makespan_s"]
        assert result["mean_bounded_slowdown"] >= 1.0
    assert found[0]["promised"] is None
    assert found[1]["promised"] is not None


def test_windows_are_compared_one_by_one() -> None:
    rows = Rows(
        {"log": "x", "window": n, "policy": name, "mean_wait_s": wait}
        for n, waits in enumerate(((2.0, 1.0), (2.0, 2.001), (0.0, 0.0), (1.0, 2.0)))
        for name, wait in zip((OAS, "other"), waits, strict=True)
    )
    assert compared(rows, "other", OAS, "mean_wait_s") == (1, 2, 1)
    assert OAS in POLICIES
