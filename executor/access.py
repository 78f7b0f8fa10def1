"""Access at an executor: its key, the daemon's, and the users whose jobs it starts."""

from __future__ import annotations

import pwd
from pathlib import Path

from msgspec import Struct

from coalloc.core.base.messages import ROOT_REFUSED, Prepare
from coalloc.model.settings import Config
from coalloc.runtime.key_files import calling, read_key
from coalloc.wire.curve import CurveClient


class ExecutorAccess(Struct, frozen=True, kw_only=True):
    """An executor's keys, and its check that a job's user has an account here."""

    security: CurveClient | None = None
    """None: single-user mode, where every job is the daemon's user's."""
    root_jobs: bool = False
    """Start jobs that root has submitted."""
    owner: str = ""
    """The user whose cluster it is, and whose jobs alone it starts."""

    def may_run(self, order: Prepare) -> str:
        """Reason why this order's processes are not started; empty: they are.

        A job that was handed over in the batch system runs there as its owner, whom that system
        has authenticated.
        """
        if self.security is None:
            return ""
        if self.owner and (order.foreign or order.user != self.owner):
            return f"this executor starts jobs of {self.owner} only"
        if order.foreign:
            return ""
        if order.uid < 0:
            return "the daemon names no user whose processes these are"
        if order.uid == 0 and not self.root_jobs:
            return ROOT_REFUSED
        try:
            name = pwd.getpwuid(order.uid).pw_name
        except KeyError:
            return f"there is no account with uid {order.uid} here"
        if order.user and order.user != name:
            return f"uid {order.uid} is {name} here, and not {order.user}"
        return ""


OPEN_ACCESS = ExecutorAccess()


def access_of(config: Config, path: Path, owner: str = "") -> ExecutorAccess:
    """Access by the configuration, with the executor's key of this file. Raises `KeyFileError`."""
    if config.daemon.mode == "single-user":
        return OPEN_ACCESS
    security = calling(read_key(path), config.access.server_key, path)
    return ExecutorAccess(security=security, root_jobs=config.access.root_jobs, owner=owner)
