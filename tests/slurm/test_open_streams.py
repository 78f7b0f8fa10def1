"""Open streams over two busy clusters: every job once, and Slurm's accounts as ours."""

from __future__ import annotations

import os
from collections.abc import Sequence

import pytest

from tests.slurm.account_audit import audit
from tests.slurm.administrator import Act, Administrator
from tests.slurm.open_jobs import drawn, with_limits, with_long
from tests.slurm.open_runs import arms, drive, never, told
from tests.slurm.open_stream import CoallocArm, faults
from tests.testbeds.processes import BedError
from tests.testbeds.slurm_accounting import missing

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="only root can make accounts")

DRAIN_S = 240.0


def differences(arm: CoallocArm, acts: Sequence[Act]) -> list[str]:
    """What our accounts have otherwise than Slurm's, once those have come.

    One that was cancelled as its processes ended may be both.
    """
    seen: list[str] = []
    cancelled = {arm.jobs[act.target] for act in acts if act.kind == "cancel_running"}

    def agree() -> bool:
        found = [audit(arm.site.endpoint, cluster) for cluster in arm.bed]
        assert all(count for count, _ in found)
        seen[:] = [str(each) for _, some in found for each in some if each.job not in cancelled]
        return not seen

    try:
        arm.bed.wait(agree, "accounts that agree", 20.0)
    except BedError:
        return seen
    return []


@pytest.mark.slow
@pytest.mark.skipif(bool(missing()), reason=missing())
@pytest.mark.parametrize(
    ("count", "seed", "scale", "pace"),
    [(26, 5, 0.15, 0.3), pytest.param(500, 6, 5.0, 0.6, marks=pytest.mark.nightly)],
)
def test_administrators_are_obeyed_and_accounts_agree(
    count: int, seed: int, scale: float, pace: float
) -> None:
    """What nobody touches runs once, also where a QOS keeps it waiting."""
    drawn_items = drawn(1.0, seed=seed, scale=scale, pace=pace)
    items = with_limits(with_long(drawn_items, seed), seed)
    span_s = max(item.at for item in items)
    with arms(("coalloc",), accounting=True) as (arm,):
        assert isinstance(arm, CoallocArm)
        admin = Administrator(arm, items, count, seed=seed, span_s=span_s)
        drive([arm], items, DRAIN_S, admin.turn)
        print("\n".join(admin.told()))
        found = admin.judge()
        assert not found, "\n".join(found)
        assert len(admin.acts) > count // 2
        untried = set(admin.KINDS) - {act.kind for act in admin.acts}
        assert count < 100 or not untried, f"no act of {sorted(untried)} in so many"
        assert not differences(arm, admin.acts)


@pytest.mark.nightly
@pytest.mark.parametrize(("load", "share"), [(1.1, 0.0), (0.9, 0.5)])
def test_every_job_of_both_arms_runs_once(load: float, share: float) -> None:
    items = drawn(load, seed=11)
    given = {"max_share": share} if share else {}
    with arms(("coalloc", "plain"), given=given, as_root=bool(share)) as running:
        drive(running, items, 2.0 * DRAIN_S)
        for arm in running:
            assert not faults(arm, items), never(told(arm, items))
