"""Wishes for the streams of parts: each is answered, also where the runner takes no more orders."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from coalloc.core.base.messages import Stream, Streamed
from coalloc.executor.streams import PartStreams
from coalloc.model.sites.parts import PartKey

KEY = PartKey(job="7", attempt=1, part=0)


@pytest.mark.parametrize("is_over", [False, True])
def test_a_wish_for_a_part_that_ends_or_has_ended_is_given_up(
    is_over: bool, tmp_path: Path
) -> None:
    called: list[PartKey] = []
    said: list[Streamed] = []

    async def wish() -> None:
        streams = PartStreams("a", tmp_path, called.append, said.append)
        streams.wish(Stream(number=3, job="7", attempt=1, part=0, at={}), KEY, is_over=is_over)
        if not is_over:
            assert (called, said) == ([KEY], [])
            streams.end(PartKey(job="7", attempt=2, part=0))
            assert said == []
        streams.end(KEY)

    asyncio.run(wish())
    assert said == [Streamed(cluster="a", number=3, gone=True)]
