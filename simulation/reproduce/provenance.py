"""Origin of results: `RUNS` says what made each NAME.csv beside it, and how long that took."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from importlib import metadata
from pathlib import Path

import coalloc
from coalloc.simulation.reproduce.rows import Row, from_csv, to_csv

RUNS = "runs.csv"
COLUMNS: Mapping[str, str] = {
    "experiment": "its name",
    "cpu_s": "processor time of the study it is read from, child processes too, s",
    "seed": "as given",
    "quick": "1 where reduced",
    "made_by": "coalloc, its commit (with + where files were changed), Python, what computes",
}
PACKAGES = ("numpy", "numba", "pulp", "highspy")


def processor_time() -> float:
    """Of this process and its children that ended, seconds."""
    return sum(os.times()[:4])


def note(folder: Path, name: str, *, cpu_s: float, seed: int, quick: bool) -> None:
    """Say of an experiment how its file came about. Raises `OSError`."""
    runs = origins(folder)
    mine = {
        "experiment": name,
        "cpu_s": cpu_s,
        "seed": seed,
        "quick": int(quick),
        "made_by": _made_by(),
    }
    text = to_csv(COLUMNS, (runs | {name: mine}).values())
    (folder / RUNS).write_text(text, encoding="utf-8")


def origins(folder: Path) -> dict[str, Row]:
    """The lines of `RUNS`, by experiment; none where there is no such file."""
    path = folder / RUNS
    rows = from_csv(path.read_text(encoding="utf-8")) if path.exists() else ()
    return {row["experiment"]: row for row in rows}


def _made_by() -> str:
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
