"""Origin of a row of figures: coalloc, its commit, Python, and the packages that compute."""

from __future__ import annotations

import platform
import subprocess
from contextlib import suppress
from functools import cache
from importlib import metadata
from pathlib import Path

import coalloc

PACKAGES = ("numpy", "numba", "pulp", "highspy")


@cache
def made_by() -> str:
    """The programs here: coalloc with its commit, Python, and the packages that count."""
    commit = _commit()
    found = [f"coalloc {coalloc.__version__}" + (f" at {commit}" if commit else "")]
    found.append(f"Python {platform.python_version()}")
    for package in PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            found.append(f"{package} {metadata.version(package)}")
    return ", ".join(found)


def _commit() -> str:
    """The commit of the checkout that this file lies in; empty without one."""

    def git(*words: str) -> str:
        command = ["git", "-C", str(Path(__file__).resolve().parent), *words]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    try:
        changed = git("status", "--porcelain", "--untracked-files=no")
        return git("rev-parse", "--short=12", "HEAD") + ("+" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return ""
