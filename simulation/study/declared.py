"""Declaration of a study: policies, job logs and scenarios, in one TOML file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal

import tomli
from msgspec import Meta, Struct

from coalloc.adapters.formats.files import read_bytes
from coalloc.adapters.formats.swf_jobs import read_bandwidth, read_sigma
from coalloc.model.errors import InputError
from coalloc.model.formats.structs import read_json
from coalloc.model.values import replace
from coalloc.simulation.kinds import Mix, read_shape
from coalloc.simulation.replay import Path as ReplayPath

CHOOSE, REPORT, BOTH = "choose", "report", "both"
LARGEST_FILE = 10_000_000
NO_MIX = Mix()
Count = Annotated[int, Meta(ge=1)]
Share = Annotated[float, Meta(ge=0.0, le=1.0)]


class Log(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A log and the machine that it is replayed on; files lie in the folder of the logs."""

    name: str = ""
    """Its key in the file."""
    files: tuple[str, ...]
    """Logs that `coalloc simulate` reads; several are merged."""
    nodes: Annotated[int, Meta(ge=0)] = 0
    """Of the machine as one cluster: its nodes, and the slots of each."""
    slots: Count = 1
    platform: str = ""
    """In place of these: file with its clusters."""
    clusters: str = ""
    """File with the clusters of scenarios that have several. Without one the nodes are shared out
    (`pieces.SHARES`)."""
    keep_clusters: bool = False
    """Jobs stay on the clusters that the log names."""
    limit: Count | None = None
    """The first so many jobs alone."""
    kept_back: bool = False
    """No piece of it is used for choosing."""


class Scenario(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One circumstance."""

    name: str = ""
    """Its key in the file."""
    doc: str = ""
    """One line for the report."""
    load: Annotated[float, Meta(ge=0.0)] = 0.0
    """0: as logged."""
    exact: bool = False
    """Estimates are the real run times."""
    clusters: bool = False
    """Several clusters."""
    coallocation: Literal["sooner", "needed", "forbidden"] = "sooner"
    """The option of all policies."""
    sigma: str = "1"
    """Weight of processing of each job, as `coalloc simulate --sigma` has it."""
    bandwidth: str = "0"
    """Of one process, as `coalloc simulate --bandwidth` has it."""
    wide: bool = False
    """Of several clusters: keep jobs wider than the largest one."""
    history: bool = True
    """What ended in the log before the piece is known; else the site is in its first week."""
    moldable: Share = 0.0
    """Share of the jobs that are."""
    speedup: str = "amdahl:0.8,0.98"
    """Theirs, as `coalloc simulate --moldable` has it."""
    mix: Mix = NO_MIX
    """Shares of the jobs that are workflows or arrays."""
    study: str = ""
    """Name that stands for this scenario and others; those without one are the default."""
    against: str = ""
    """Scenario of the same jobs that this one is compared with."""


class StudyFile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All that a study replays: every policy on every piece in every scenario."""

    policies: tuple[str, ...]
    """With options as ``auto:window=50:patience=10``."""
    base: tuple[str, ...] = ()
    """Policy that the others are compared with: the first one, if none is named. Of several the
    better counts, on each piece, figure by figure."""
    logs: dict[str, Log]
    scenarios: dict[str, Scenario]
    piece_jobs: Count = 1500
    """Jobs of a piece of a log."""
    pieces: Count | None = None
    """Of each log, evenly spread; null: all."""
    half: Literal["choose", "report", "both"] = "both"
    """Pieces to choose by, or those to report on."""
    jobs: Count | None = None
    """The first so many jobs of each piece alone."""
    seed: int = 0
    """The first seed, and how many: each is another draw of all that is drawn."""
    seeds: Count = 1
    work: Count | None = None
    """Work limit of each call of a search."""
    path: ReplayPath = "auto"
    """As `coalloc simulate --path`."""
    shapes: str = ""
    """Folder of workflow files, whose shapes workflows take (`simulation.kinds`)."""

    @property
    def bases(self) -> tuple[str, ...]:
        """The policies that others are compared with."""
        return self.base or self.policies[:1]


def read_study(path: Path) -> StudyFile:
    """Read the file of a study. Raises `InputError`."""
    raw = read_bytes(path, LARGEST_FILE)
    try:
        value = tomli.loads(raw.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise InputError(str(path), f"byte {error.start} is not UTF-8") from error
    except (ValueError, RecursionError) as error:
        raise InputError(str(path), f"is no study: {error}") from error
    found: StudyFile = read_json(value, StudyFile, f"{path}: ")
    if not (found.policies and found.logs):
        raise InputError(str(path), "names no policy, or no log")
    if odd := set(found.bases) - set(found.policies):
        raise InputError(f"{path}: base", f"{min(odd)!r} is not among the policies")
    for key, log in found.logs.items():
        if bool(log.platform) == bool(log.nodes) or not log.files:
            what = "needs files, and a platform or a number of nodes, not both"
            raise InputError(f"{path}: logs.{key}", what)
    for key, one in found.scenarios.items():
        where = f"{path}: scenarios.{key}"
        if one.against not in ("", *found.scenarios):
            raise InputError(where, f"there is no scenario {one.against!r}")
        read_sigma(one.sigma, where=f"{where}.sigma")
        read_bandwidth(one.bandwidth, where=f"{where}.bandwidth")
        read_shape(one.speedup, where=f"{where}.speedup")
    return replace(
        found,
        logs={name: replace(log, name=name) for name, log in found.logs.items()},
        scenarios={name: replace(one, name=name) for name, one in found.scenarios.items()},
    )


def choose_scenarios(known: Mapping[str, Scenario], names: Sequence[str]) -> dict[str, Scenario]:
    """Scenarios by name; that of a group stands for its own, and what these are compared with.

    Without a name: those of no group. Raises `InputError`.
    """
    groups: dict[str, list[str]] = {}
    for name, one in known.items():
        groups.setdefault(one.study, []).append(name)
        if one.study and one.against:
            groups[one.study].append(one.against)
    wanted = {member for name in names or ("",) for member in groups.get(name, [name])}
    if odd := wanted - known.keys():
        there = ", ".join(filter(None, (*known, *groups)))
        raise InputError("--scenarios", f"there is no {min(odd)!r}; there are {there}")
    return {name: one for name, one in known.items() if name in wanted}
