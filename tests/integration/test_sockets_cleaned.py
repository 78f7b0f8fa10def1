"""A runtime folder that is cleaned under a running site."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest

from coalloc.client.enrolment import EnrolmentError
from coalloc.wire.client import NoAnswerError
from tests.support.multi_user import BOB, MultiUser

SOCKETS = {"clients", "executors", "watchers", "enrolment"}


@pytest.mark.slow
def test_a_cleaned_runtime_folder_is_made_again() -> None:
    root = Path(tempfile.mkdtemp(prefix="co-"))
    site = MultiUser(root)
    site.start()
    try:
        shutil.rmtree(root / "run")

        def is_reachable() -> bool:
            """By a new connection, with a new key."""
            try:
                with site.asking(site.key(BOB), 1.0) as asker:
                    return str(asker.ask({"type": "status"})["user"]) == BOB
            except (NoAnswerError, EnrolmentError):
                return False

        site.until(is_reachable)
        assert {line["socket"] for line in site.lines("socket_restored")} == SOCKETS
        job = site.submit(["true"])
        assert site.wait(job)["state"] == "completed", "the executors have stayed"
        site.processes["alpha"].terminate()
        site.processes["alpha"].wait(20.0)
        site.start_executor("alpha")
        site.until(site.is_complete)
    finally:
        site.stop()
        shutil.rmtree(root, ignore_errors=True)
