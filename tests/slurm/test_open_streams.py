"""Open streams over two busy clusters: every job once, and Slurm's accounts as ours."""

from __future__ import annotations

import os

import pytest

from tests.slurm.account_audit import audit
from tests.slurm.administrator import Administrator, with_long
from tests.slurm.open_runs import arms, drive, never, told, with_limits
from tests.slurm.open_stream import CoallocArm, drawn, faults
from tests.testbeds.processes import BedError
from tests.testbeds.slurm_accounting import missing

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="only root can make accounts")

nightly = pytest.mark.nightly
DRAIN_S = 240.0


def differences(arm: CoallocArm) -> list[str]:
    """What our accounts have otherwise than Slurm's, once those have come."""
    seen: list[str] = []

    def agree() -> bool:
        found = [audit(arm.site.endpoint, cluster) for cluster in arm.bed]
        assert all(count for count, _ in found)
        seen[:] = [str(difference) for _, each in found for difference in each]
        return not seen

    try:
        arm.bed.wait(agree, "accounts that agree", 20.0)
    except BedError:
        return seen
    return []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("scale", "pace", "names"),
    [
        (0.3, 0.35, ("coalloc",)),
        pytest.param(1.0, 1.0, ("coalloc", "plain"), marks=nightly),
    ],
)
def test_every_job_of_an_open_stream_runs_once(
    scale: float, pace: float, names: tuple[str, ...]
) -> None:
    items = with_limits(drawn(0.9, seed=11, scale=scale, pace=pace), 11)
    with arms(names, accounting=not missing()) as running:
        drive(running, items, DRAIN_S)
        for arm in running:
            assert not faults(arm, items), never(told(arm, items))
            if isinstance(arm, CoallocArm) and not missing():
                assert not differences(arm)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("count", "seed", "scale", "pace"),
    [(40, 5, 0.35, 0.3), pytest.param(500, 6, 5.0, 0.6, marks=nightly)],
)
def test_an_administrator_is_obeyed(count: int, seed: int, scale: float, pace: float) -> None:
    items = with_long(drawn(1.0, seed=seed, scale=scale, pace=pace), seed)
    span_s = max(item.at for item in items)
    with arms(("coalloc",)) as (arm,):
        assert isinstance(arm, CoallocArm)
        admin = Administrator(arm, items, count, seed=seed, span_s=span_s)
        drive([arm], items, DRAIN_S, admin.turn)
        print("\n".join(admin.told()))
        assert not admin.judge()
        assert len(admin.acts) > count // 2
