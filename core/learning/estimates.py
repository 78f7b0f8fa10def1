"""Defaults and history for run time, sigma and bandwidth where a user names none.

In this order: the user, the site's defaults for that user and command, the history of the
same user and command, the time limit (run time only), the model's own default. A speed-up comes
from the user, the history, the site's defaults: what was measured is better than what all
commands share.

References
----------
Tsafrir, Etsion, Feitelson, "Backfilling using system-generated predictions rather than
user runtime estimates", IEEE TPDS 18(6), 2007: the mean of the last two runs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any, TypeVar

from msgspec import Struct

from coalloc.core.base.plain_jobs import Kind
from coalloc.core.base.records import JobRecord
from coalloc.core.base.speedup_fit import SizedRun, fitted
from coalloc.model.errors import InputError
from coalloc.model.formats.job_json import read_speedup, write_speedup
from coalloc.model.formats.speedup_text import shape_of
from coalloc.model.history import History
from coalloc.model.ranges import SPAN
from coalloc.model.settings import JobMatchConfig, JobsConfig

T = TypeVar("T")

MOST_KEYS = 10_000
"""Programs and names remembered; the one whose last run is longest ago is forgotten first."""
_NUMBER = re.compile(r"[0-9]+")
KEPT = 32
"""Run times kept of each user and command."""
POOLED = 64
"""Commands whose ratios, the newest, stand for all others."""


class UserProgram(Struct, frozen=True, kw_only=True):
    """A user's program, by which its earlier runs and a site's defaults are found."""

    user: str
    command: str
    """The program; defaults may name what launches it, too."""
    name: str = ""
    launcher: str = ""
    """The first word of the command line; empty: the program."""

    @classmethod
    def of(cls, record: JobRecord) -> UserProgram:
        return cls(user=record.user, command=record.command, name=record.name)

    @property
    def history_keys(self) -> tuple[str, ...]:
        """Names under which a run is remembered: the job's among the program's, then all of it.

        Numbers in a job's name do not count: ``run-7`` is like ``run-8``.
        """
        general = f"{self.user}\n{self.command}"
        if self.name in {"", self.command}:
            return (general,)
        return (f"{general}\n{_NUMBER.sub('#', self.name)}", general)


def best_known(table: Mapping[str, tuple[T, ...]], keys: Sequence[str]) -> tuple[T, ...]:
    """History under the first of these keys that has any."""
    return next((table[key] for key in keys if key in table), ())


def remembered(values: Sequence[float], base_time: float) -> tuple[float, ...]:
    """The history with one more run, seconds on dedicated full-speed nodes."""
    return (*values, base_time)[-KEPT:]


def history_for(
    ratios: Mapping[str, tuple[float, ...]], of_kind: Mapping[Kind, Iterable[str]]
) -> History:
    """Of jobs by their kinds, how long those like them took by what was planned.

    The ratios of real by planned run times are by history key, the newest last; of the keys of a
    job, the first that has anything counts.
    """
    places: dict[str, int] = {}
    of: dict[str, int] = {}
    for ((user, command, name), _), jobs in of_kind.items():
        keys = UserProgram(user=user, command=command, name=name).history_keys
        known = next((key for key in keys if key in ratios), None)
        if known is not None:
            of.update(dict.fromkeys(jobs, places.setdefault(known, len(places))))
    newest = list(ratios.values())[-POOLED:]
    return History(
        pool=tuple(value for values in newest for value in values),
        samples=tuple(ratios[key] for key in places),
        of=of,
    )


def predicted(values: Sequence[float]) -> float | None:
    """Expected base time: the mean of the last two runs, as far as it may be planned."""
    recent = values[-2:]
    return planned(sum(recent) / len(recent)) if recent else None


def planned(seconds: float) -> float:
    """A run time that was measured or derived, within what may be planned."""
    return min(max(seconds, SPAN.low), SPAN.high)


def completed(
    fields: Mapping[str, Any],
    program: UserProgram,
    settings: JobsConfig,
    *,
    history: Sequence[float] = (),
    runs: tuple[SizedRun, ...] = (),
) -> tuple[dict[str, Any], Mapping[str, str]]:
    """Fill in what a submitted job leaves out, in the snapshot format's keys.

    Of the site's defaults the first that matches and has a value gives it; `history` has base times
    of earlier runs, seconds, `runs` those by size. Returns the fields, and the source of each
    (`JobRecord.sources`). `InputError`: nothing says how a moldable job's run time falls with its
    processes.
    """
    out = dict(fields)
    commands = {program.command, program.launcher or program.command}
    matching = [
        d
        for d in settings.in_order
        if fnmatchcase(program.user, d.user) and any(fnmatchcase(c, d.command) for c in commands)
    ]
    sources = _fill_from(out, matching)
    unknown_s = settings.fallback_base_time_s
    if out.get("kind", "rigid") == "rigid":
        limit = out.get("time_limit")
        value, source = _base_time(out.get("base_time"), matching, history, limit, unknown_s)
        if source == "history" and limit is not None:
            value = min(value, limit)
        out["base_time"] = value
        sources["base_time"] = source
        sources.setdefault("sigma", "built-in")
        sources.setdefault("proc_gbps", "built-in")
    elif out.get("kind") == "moldable":
        _fill_speedup(out, sources, matching, runs, program.command, unknown_s)
    return out, _shared(*sources.items())


@lru_cache(maxsize=256)
def _shared(*sources: tuple[str, str]) -> Mapping[str, str]:
    """One mapping for all jobs with these sources, which are few."""
    return dict(sources)


def _fill_from(out: dict[str, Any], matching: Sequence[JobMatchConfig]) -> dict[str, str]:
    """Fill in limit, sigma and communication from a site's defaults; the source of each."""
    sources: dict[str, str] = {}
    known = {"time_limit": "time_limit_s", "sigma": "sigma"}
    if out.get("kind", "rigid") in ("rigid", "moldable"):  # A list is no kind either.
        known["proc_gbps"] = "proc_gbps"
    for key, name in known.items():
        if out.get(key) is not None:
            sources[key] = "user"
            continue
        value = next((v for d in matching if (v := getattr(d, name)) is not None), None)
        if value is not None:
            out[key] = value
            sources[key] = "defaults"
    return sources


def _base_time(
    given: float | None,
    matching: Sequence[JobMatchConfig],
    known: Sequence[float],
    limit: float | None,
    fallback: float,
) -> tuple[float, str]:
    """Base time, seconds, and where it comes from: `known` are those of earlier runs."""
    if given is not None:
        return given, "user"
    value = next((d.base_time_s for d in matching if d.base_time_s is not None), None)
    if value is not None:
        return value, "defaults"
    value = predicted(known)
    if value is not None:
        return value, "history"
    return (fallback, "built-in") if limit is None else (limit, "time_limit")


def _fill_speedup(
    out: dict[str, Any],
    sources: dict[str, str],
    matching: Sequence[JobMatchConfig],
    runs: tuple[SizedRun, ...],
    command: str,
    fallback: float,
) -> None:
    if out.get("speedup") is not None or out.get("times") is not None:
        sources["speedup"] = "user"
        return
    base_time = out.pop("base_time", None)
    fit = fitted(runs)
    if fit is not None:
        out["speedup"] = write_speedup(fit.speedup)
        out["speedup"]["time"] = planned(out["speedup"]["time"])
        sources["speedup"] = "history"
        sources["speedup_fit"] = (
            f"{fit.runs} runs of {command} at {fit.sizes} sizes, error {100.0 * fit.error:.2g} %"
        )
        if base_time is not None:
            out["speedup"]["time"], sources["base_time"] = base_time, "user"
        return
    text = next((d.speedup for d in matching if d.speedup is not None), None)
    if text is None:
        sizes = len({size for size, _ in runs})
        raise InputError(
            "job.speedup",
            f"is missing, and runs of {command!r} at {sizes} sizes are remembered, where a fit "
            "needs 2; give a speed-up (--speedup amdahl:0.95 --base-time TIME) or run times "
            "(--times 1:100,2:55)",
        )
    model = shape_of(text)
    shape = read_speedup({**model, "time": 1.0}, "speedup")
    known = [time / shape.time(size) for size, time in runs]
    limit, low = out.get("time_limit"), out.get("min_procs", 1)
    if isinstance(limit, int | float) and isinstance(low, int) and low > 0:
        limit = planned(limit / shape.time(low))  # the least allotment is to end in time
    else:
        limit = None
    time_1, sources["base_time"] = _base_time(base_time, matching, known, limit, fallback)
    out["speedup"], sources["speedup"] = {**model, "time": time_1}, "defaults"
