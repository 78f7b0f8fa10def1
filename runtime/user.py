"""Name and home of a user of this machine, which may know neither.

A container may run under any uid, and a directory of users may be down.
"""

from __future__ import annotations

import os
import pwd
from collections.abc import Mapping
from pathlib import Path


def user_name(uid: int | None = None) -> str:
    """Name of a user, by default the one whom this process is; the number where there is none."""
    uid = os.getuid() if uid is None else uid
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def user_folder(environ: Mapping[str, str], name: str, below: str) -> Path | None:
    """A folder of the XDG specification: the variable's, else below home; None: there is no home.

    A path that is not absolute is to be ignored.
    """
    if environ.get(name, "").startswith("/"):
        return Path(environ[name])
    if environ.get("HOME", "").startswith("/"):
        return Path(environ["HOME"]) / below
    try:
        return Path(pwd.getpwuid(os.getuid()).pw_dir) / below
    except KeyError:
        return None
