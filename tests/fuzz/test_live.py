"""A real daemon under attack: it serves, stays as large as it was, and keeps nobody waiting."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fuzz.live import Outcome, attacked
from tests.integration.conftest import root

__all__ = ["root"]
PATIENCE = 4.0
"""The machine is shared."""
WAITS = {"submit", "queue", "status"}


@pytest.mark.alone
@pytest.mark.slow
def test_an_attack_on_every_socket_harms_nobody(
    root: Path,
    record_property: Callable[[str, object], None],
) -> None:
    outcome = attacked(root, 20_000, seed=31)
    print("\n".join(outcome.lines()))
    record_property("outcome", outcome.lines())
    assert outcome.faults_found(PATIENCE) == []
    assert set(outcome.sent) == {"clients", "executors", "watchers", "enrolment", "raw"}
    assert sum(outcome.sent.values()) >= 20_000
    assert {"client_bad_json", "client_bad_field", "executor_bad_field"} <= set(outcome.faults)
    assert outcome.answers["done"] > 0, "some inputs must be good, or only the reader is tried"
    assert set(outcome.waits) == WAITS


def test_what_an_attack_has_broken_is_told() -> None:
    outcome = Outcome(
        waits={"submit": [0.01] * 90 + [0.4] * 10, "queue": [0.01], "status": []},
        resident=[(0.05, 50.0), (0.1, 60.0), (1.0, 200.0)],
        broken=["event_failed"],
    )
    assert outcome.faults_found() == [
        "event_failed",
        "the daemon does not serve any more",
        "the daemon has grown by 140 MB, at most 64",
        "submit: p99 0.400 s, at most 0.25 s",
        "status: p99 inf s, at most 0.25 s",
    ]
