"""Garbage that was frozen with what lives."""

from __future__ import annotations

import gc
import weakref

import pytest

from coalloc.daemon import garbage

MARGIN = 10_000


class Knot:
    """Refers to itself."""

    def __init__(self) -> None:
        self.itself = self


def test_what_is_frozen_is_looked_at_again_when_much_more_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gc.collect()
    frozen = gc.get_freeze_count()
    monkeypatch.setattr(garbage, "LEAST", frozen + len(gc.get_objects()) + MARGIN)
    callback = garbage.FrozenGarbage()
    try:
        knot = Knot()
        gone = weakref.ref(knot)
        gc.collect()
        callback("stop", {"generation": 2})
        del knot
        gc.collect()
        assert gone() is not None, "it was frozen while it lived"
        others = [[number] for number in range(2 * MARGIN)]
        for _ in range(2):
            callback("stop", {"generation": 2})
            gc.collect()
        assert gone() is None
        assert len(others) > MARGIN
    finally:
        gc.unfreeze()
        if frozen:
            gc.freeze()
