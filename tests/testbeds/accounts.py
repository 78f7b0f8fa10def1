"""Accounts of this machine, made for a test and removed after it."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pwd import getpwuid, struct_passwd


@contextlib.contextmanager
def accounts(*names: str) -> Iterator[list[struct_passwd]]:
    """So many new ordinary users, each with a group of its own; needs root.

    Their names on the machine begin with this process's number, so that tests that run side by
    side have accounts of their own.
    """
    with contextlib.ExitStack() as stack:
        made = []
        for name in names:
            full = f"co{os.getpid()}{name}"
            # A password that nobody can type leaves logins by key.
            _run(
                *("useradd", "--system", "--user-group", "--password", "*"),
                *("--no-create-home", "--home-dir", "/", full),
            )
            stack.callback(_run, "userdel", "--force", full)
            made.append(getpwuid(_uid(full)))
        yield made


def _uid(name: str) -> int:
    return int(subprocess.run(["id", "-u", name], check=True, capture_output=True).stdout)


def _run(*words: str) -> None:
    done = subprocess.run(words, check=False, capture_output=True, text=True)
    if done.returncode:
        raise OSError(f"{words[0]}: {done.stderr.strip()}")
