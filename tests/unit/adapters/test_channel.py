"""The frames between a login node's agent and the link."""

from __future__ import annotations

import asyncio
from typing import cast

from coalloc.adapters.ssh.agent import Channel


def test_the_late_end_of_a_former_channel_leaves_the_present_one_open() -> None:
    async def replaced() -> tuple[bool, bool]:
        channel = Channel()
        readers = [asyncio.StreamReader(), asyncio.StreamReader()]
        writers = [cast("asyncio.StreamWriter", object()) for _ in readers]
        ends = []
        for reader, writer in zip(readers, writers, strict=True):
            ends.append(asyncio.ensure_future(channel.hear(reader, writer)))
            await asyncio.sleep(0)
        readers[0].feed_eof()
        await ends[0]
        is_open = channel.writer is writers[1]
        readers[1].feed_eof()
        await ends[1]
        return is_open, channel.writer is None

    assert asyncio.run(replaced()) == (True, True)
