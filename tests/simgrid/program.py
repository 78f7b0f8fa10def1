"""The program that replays tasks in SimGrid: what it needs, building it, running it."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

SOURCE = Path(__file__).with_name("replay.cpp")
VERSION = (3, 32)
PACKAGES = "g++ libsimgrid-dev"
EXACT = ("--cfg=network/model:CM02", "--cfg=network/crosstraffic:0")
"""Flows without the corrections for protocol overhead: a link carries its capacity each way."""
MEASURED_TCP = ("--cfg=network/model:LV08",)
"""SimGrid's default: 97 % of a link's capacity is payload, and acknowledgements take a share."""
RUN_S = 300.0


class ReplayError(Exception):
    """The program could not be built, or refused its input."""


def missing() -> str:
    """What has to be installed before the program can be built; empty: nothing."""
    if shutil.which("g++") is None:
        return f"g++ not found; as root: apt-get install {PACKAGES}"
    macros = subprocess.run(
        ["g++", "-E", "-dM", "-include", "simgrid/version.h", "-x", "c++", "/dev/null"],
        capture_output=True,
        text=True,
        check=False,
    )
    found = re.findall(r"^#define SIMGRID_VERSION_(MAJOR|MINOR) (\d+)", macros.stdout, re.M)
    version = {name: int(text) for name, text in found}
    if not version:
        return f"SimGrid's headers not found; as root: apt-get install {PACKAGES}"
    if (version["MAJOR"], version["MINOR"]) != VERSION:
        return f"SimGrid 3.32 is wanted, not {version['MAJOR']}.{version['MINOR']}"
    return ""


def build(folder: Path) -> Path:
    """Compile the program into a folder, unless this version of it is there; return its path.

    Raises
    ------
    ReplayError
    """
    program = folder / f"replay-{hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:16]}"
    if program.exists():
        return program
    made = program.with_suffix(".new")
    command = ["g++", "-std=c++17", "-O1", "-o", str(made), str(SOURCE), "-lsimgrid"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ReplayError(f"{SOURCE.name} does not compile: {done.stderr}")
    return made.rename(program)


def run(
    program: Path,
    records: Sequence[str],
    *,
    share: str = "rate",
    traffic: str = "phases",
    network: Sequence[str] = EXACT,
) -> Mapping[str, tuple[float, float]]:
    """Replay records as the head of the program lists them.

    Parameters
    ----------
    share, traffic : str
        The program's arguments.
    network : sequence of str
        SimGrid's options.

    Returns
    -------
    mapping of task name to (began, ended)
        Seconds.

    Raises
    ------
    ReplayError
    """
    command = [str(program), f"--share={share}", f"--traffic={traffic}", *network]
    command += ["--cfg=surf/precision:1e-9", "--log=root.thres:warning"]
    done = subprocess.run(
        command,
        input="".join(f"{line}\n" for line in records),
        capture_output=True,
        text=True,
        timeout=RUN_S,
        check=False,
    )
    if done.returncode:
        raise ReplayError(done.stderr.strip())
    rows = [line.split() for line in done.stdout.splitlines()]
    return {name: (float(began), float(ended)) for name, began, ended in rows}
