"""The first reading of this machine."""

from __future__ import annotations

import pytest

from coalloc.adapters.local.reader import LocalReader
from coalloc.adapters.local.settings import read_settings
from coalloc.adapters.machine_load import MachineSample


def test_the_first_reading_knows_the_load(monkeypatch: pytest.MonkeyPatch) -> None:
    samples = iter(
        MachineSample(at=at, busy=(busy, busy), processes={})
        for at, busy in ((0.0, 5.0), (10.0, 11.0))
    )
    monkeypatch.setattr(LocalReader, "_sample", lambda reader: next(samples))
    (node,) = LocalReader(read_settings({"power": 0.5}, "c")).read().nodes
    assert node.load == pytest.approx(0.6)
    assert node.power == pytest.approx(0.2)
