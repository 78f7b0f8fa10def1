"""The asyncio client against a real daemon that is restarted, and one that wants keys."""

from __future__ import annotations

import asyncio
import os
from contextlib import aclosing
from pathlib import Path

import pytest

from coalloc import AsyncClient
from coalloc.runtime.key_files import KeyFile, write_key
from coalloc.wire.client import KeyRefusedError
from tests.support.live_site import Running
from tests.support.multi_user import ADA, MultiUser

pytestmark = pytest.mark.slow


def test_events_and_waits_go_on_over_a_restart(root: Path) -> None:
    site = Running(root)
    flag = site.work / "go"

    async def scene() -> None:
        shell = f"until test -e {flag}; do sleep 0.1; done"
        async with AsyncClient(config=site.config, timeout_s=2.0) as client:
            done = await client.submit(["sh", "-c", shell], procs=6, cwd=str(site.work))
            ended = asyncio.create_task(client.wait(done.job))
            async with aclosing(client.events(0, follow=True, job=done.job)) as events:
                kinds = []
                async for event in events:
                    kinds.append(event.kind)
                    if event.kind == "job_started":
                        await asyncio.to_thread(site.kill, "coallocd")
                        await asyncio.to_thread(site.start_daemon)
                        flag.touch()
                    if event.kind == "job_ended":
                        break
            assert kinds == ["job_submitted", "job_placed", "job_started", "job_ended"]
            (job,) = await ended
            assert (job.id, job.state) == (done.job, "completed")
            assert [row.id async for row in client.account()] == [done.job]

    with site:
        asyncio.run(scene())


@pytest.mark.skipif(os.geteuid() != 0, reason="only root is more than one user")
def test_a_key_is_shown_and_a_wrong_one_refused(root: Path) -> None:
    site = MultiUser(root)
    site.start()
    keys = {"ada": site.key(ADA), "thief": site.unknown_key()}
    for name, calling in keys.items():
        write_key(root / f"{name}.json", KeyFile(pair=calling.pair, server=site.server))

    async def scene() -> None:
        async with AsyncClient(config=site.config, key=root / "ada.json") as client:
            done = await client.submit(["true"], cwd=str(site.work))
            async with aclosing(client.events(0, follow=True, job=done.job)) as events:
                async for event in events:
                    if event.kind == "job_ended":
                        break
            assert (await client.status()).user == ADA
        async with AsyncClient(config=site.config, key=root / "thief.json") as client:
            with pytest.raises(KeyRefusedError):
                await asyncio.gather(*(client.cancel(done.job) for _ in range(3)))

    try:
        asyncio.run(scene())
    finally:
        site.stop()
