"""Speed-ups fitted to the history, and where else a range of processes gets its run times."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import pytest

from coalloc.core.base.speedup_fit import (
    KEPT_OF_A_SIZE,
    KEPT_SIZES,
    SizedRun,
    fitted,
    remembered_runs,
)
from coalloc.core.learning.estimates import UserProgram, completed
from coalloc.model.errors import InputError
from coalloc.model.settings import JobMatchConfig, JobsConfig
from coalloc.model.speedup import AmdahlSpeedup, DowneySpeedup, Speedup

SIZES = (1, 2, 4, 8, 16, 32)


def runs_of(speedup: Speedup, noise: float, times: int = 3, seed: int = 1) -> tuple[SizedRun, ...]:
    rng = random.Random(seed)
    return tuple(
        (n, speedup.time(n) * rng.lognormvariate(0.0, noise)) for n in SIZES for _ in range(times)
    )


AMDAHL = AmdahlSpeedup(time_1=3600.0, parallel_fraction=0.97)
NEAR = AmdahlSpeedup(time_1=10.0, parallel_fraction=0.9999)
DOWNEY = DowneySpeedup(time_1=500.0, parallelism=12.0, variance=0.5)
FLAT = AmdahlSpeedup(time_1=7.0, parallel_fraction=0.0)


@pytest.mark.parametrize("true", [AMDAHL, NEAR, DOWNEY, FLAT], ids=repr)
def test_a_curve_without_noise_is_found(true: Speedup) -> None:
    fit = fitted(runs_of(true, 0.0, times=1))
    assert fit is not None
    assert type(fit.speedup) is type(true)
    assert (fit.runs, fit.sizes) == (6, 6)
    assert fit.error < 1e-5
    for n in (1, 3, 20, 64):
        assert fit.speedup.time(n) == pytest.approx(true.time(n), rel=1e-4)


@pytest.mark.parametrize("true", [AMDAHL, DOWNEY], ids=["amdahl", "downey"])
@pytest.mark.parametrize("seed", range(5))
def test_noise_is_averaged_and_told(true: Speedup, seed: int) -> None:
    fit = fitted(runs_of(true, 0.1, seed=seed))
    assert fit is not None
    assert 0.04 < fit.error < 0.2
    for n in (1, 3, 8, 32):
        assert fit.speedup.time(n) == pytest.approx(true.time(n), rel=0.15)


def test_two_sizes_give_amdahl_through_both() -> None:
    fit = fitted(((1, 100.0), (4, 40.0)))
    assert fit is not None
    assert fit.speedup.time(1) == pytest.approx(100.0)
    assert fit.speedup.time(4) == pytest.approx(40.0)


@pytest.mark.parametrize("runs", [(), ((4, 9.0),), ((4, 9.0), (4, 8.0))])
def test_one_size_says_nothing(runs: tuple[SizedRun, ...]) -> None:
    assert fitted(runs) is None


def test_a_command_that_slows_down_is_flat_and_badly_fitted() -> None:
    fit = fitted(((1, 10.0), (8, 20.0)))
    assert fit is not None
    assert fit.speedup.time(1) == fit.speedup.time(8)
    assert fit.error > 0.3


def test_old_runs_and_old_sizes_are_forgotten() -> None:
    runs: tuple[SizedRun, ...] = ((64, 1.0),)
    for number in range(KEPT_OF_A_SIZE + 3):
        runs = remembered_runs(runs, 2, float(number))
    assert [time for size, time in runs if size == 2] == [3.0 + n for n in range(KEPT_OF_A_SIZE)]
    assert (64, 1.0) in runs
    for size in range(100, 100 + KEPT_SIZES):
        runs = remembered_runs(runs, size, 1.0)
    assert {size for size, _ in runs} == set(range(100, 100 + KEPT_SIZES))


SITE = JobMatchConfig(speedup="amdahl:0.5")


def filled(
    fields: dict[str, Any],
    *,
    runs: tuple[SizedRun, ...] = (),
    defaults: tuple[JobMatchConfig, ...] = (SITE,),
) -> tuple[dict[str, Any], Mapping[str, str]]:
    return completed(
        {"kind": "moldable", "min_procs": 1, "max_procs": 8, **fields},
        UserProgram(user="ann", command="solver"),
        JobsConfig(match=defaults),
        runs=runs,
    )


def test_measured_comes_before_the_site_and_given_before_measured() -> None:
    runs = ((1, 100.0), (2, 50.0), (4, 25.0))
    given = {"model": "amdahl", "time": 5.0, "parallel_fraction": 0.1}
    out, sources = filled({"speedup": given}, runs=runs)
    assert (out["speedup"], sources["speedup"]) == (given, "user")
    out, sources = filled({}, runs=runs)
    assert out["speedup"]["parallel_fraction"] == pytest.approx(1.0)
    assert out["speedup"]["time"] == pytest.approx(100.0)
    assert sources["speedup"] == "history"
    assert sources["speedup_fit"].startswith("3 runs of solver at 3 sizes, error ")
    out, _ = filled({"base_time": 900.0}, runs=runs)
    assert out["speedup"]["time"] == 900.0
    assert "base_time" not in out


@pytest.mark.parametrize(
    ("fields", "runs", "defaults", "time_1", "source"),
    [
        pytest.param({"base_time": 9.0}, ((2, 6.0),), (SITE,), 9.0, "user", id="given"),
        pytest.param(
            {}, ((2, 6.0),), (SITE, JobMatchConfig(base_time_s=5.0)), 5.0, "defaults", id="site"
        ),
        # at half parallel, 6 s on two processes are 8 s on one
        pytest.param({}, ((2, 6.0),), (SITE,), 8.0, "history", id="runs of one size"),
        pytest.param(
            {"time_limit": 6.0, "min_procs": 2}, (), (SITE,), 8.0, "time_limit", id="limit"
        ),
        pytest.param({}, (), (SITE,), 3600.0, "built-in", id="nothing known"),
    ],
)
def test_where_the_time_on_one_process_comes_from(
    fields: dict[str, Any],
    runs: tuple[SizedRun, ...],
    defaults: tuple[JobMatchConfig, ...],
    time_1: float,
    source: str,
) -> None:
    out, sources = filled(fields, runs=runs, defaults=defaults)
    assert out["speedup"] == {"model": "amdahl", "parallel_fraction": 0.5, "time": time_1}
    assert (sources["speedup"], sources["base_time"]) == ("defaults", source)


def test_nothing_to_go_by_is_refused_with_what_to_give() -> None:
    with pytest.raises(InputError, match=r"runs of 'solver' at 1 sizes.*give a speed-up"):
        filled({}, runs=((4, 9.0),), defaults=())
