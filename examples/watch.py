"""Submit a job for each value, and tell what happens to them as it happens; with asyncio.

python examples/watch.py 0.1 0.2 0.3
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import aclosing

from coalloc import AsyncClient


async def main(values: list[str]) -> int:
    """Submit and follow; returns how many jobs did not complete."""
    async with AsyncClient() as client:
        since = await client.last_event()
        command = ["sh", "-c", 'echo "$0: rank $COALLOC_RANK of $COALLOC_SIZE"']
        submitted = await asyncio.gather(
            *(client.submit([*command, value], procs=2, base_time=5) for value in values)
        )
        running = dict(zip((done.job for done in submitted), values, strict=True))
        failed = 0
        async with aclosing(client.events(since, follow=True)) as events:
            async for event in events:
                if event.job not in running:
                    continue
                print(f"{running[event.job]}: {event.kind}")
                if event.kind == "job_ended":
                    failed += event.fields["state"] != "completed"
                    del running[event.job]
                if not running:
                    break
    return failed


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[1:] or ["0.1", "0.2", "0.3"])))
