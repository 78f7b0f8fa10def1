"""Garbage that was frozen with what lives."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from coalloc.daemon import garbage


class Knot:
    """Refers to itself."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture
def collected() -> Iterator[None]:
    gc.collect()
    before = gc.get_freeze_count()
    callback = garbage.FrozenGarbage()
    gc.callbacks.append(callback)
    yield
    gc.callbacks.remove(callback)
    gc.unfreeze()
    if before:
        gc.freeze()


def test_what_is_frozen_is_looked_at_again_when_twice_as_much_is(
    collected: None,
) -> None:
    knot = Knot()
    gone = weakref.ref(knot)
    gc.collect()
    assert gc.get_freeze_count() > 0
    del knot
    gc.collect()
    assert gone() is not None, "it was frozen while it lived"
    others = [[number] for number in range(2 * max(garbage.LEAST, gc.get_freeze_count()))]
    for _ in range(3):
        gc.collect()
    assert gone() is None
    assert len(others) > garbage.LEAST
