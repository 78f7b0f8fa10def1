"""What the launcher looks at when runners tell it something, and when they do not."""

from __future__ import annotations

import select

import pytest

from coalloc.adapters import launcher
from coalloc.adapters.part_folder import PartFolder
from coalloc.model.sites.parts import PartKey, PartReport, PartState
from tests.support.launch_bed import LIMIT_S, LaunchTestbed


def test_news_of_one_part_are_no_reason_to_look_at_the_others(
    bed: LaunchTestbed, monkeypatch: pytest.MonkeyPatch
) -> None:
    specs = [bed.spec("true", job=str(n)) for n in range(1, 5)]
    for spec in specs:
        assert bed.claim(spec).state is PartState.READY
    bed.launcher.poll()
    looked: list[PartKey] = []
    report = PartFolder.report

    def counted(folder: PartFolder) -> PartReport:
        looked.append(folder.key)
        return report(folder)

    monkeypatch.setattr(PartFolder, "report", counted)
    monkeypatch.setattr(launcher, "LOOK_S", float("inf"))
    mine = specs[2].key
    bed.launcher.go(mine)
    news = bed.launcher.fileno()
    state = PartState.READY
    while state is not PartState.FINISHED:
        assert select.select([news], [], [], LIMIT_S)[0]
        reports = {report.key: report.state for report in bed.launcher.poll()}
        assert reports.keys() == {spec.key for spec in specs}
        state = reports[mine]
    assert set(looked) == {mine}
    # Without news everything is looked at.
    bed.launcher.poll()
    assert set(looked) == {spec.key for spec in specs}


def test_slots_of_parts_that_ended_unnoticed_can_be_claimed(bed: LaunchTestbed) -> None:
    full = bed.spec("true", job="1", nodes=(("n1", 4),))
    assert bed.claim(full).state is PartState.READY
    bed.launcher.go(full.key)
    folder = next(bed.state.glob("part+*"))
    reader = PartFolder.load(folder)
    assert reader is not None
    while not reader.report().is_ended:
        assert select.select([bed.launcher.fileno()], [], [], LIMIT_S)[0]
    # The launcher itself has not looked since, and does so before it refuses.
    bed.launcher.claim(bed.spec("true", job="2", nodes=(("n1", 4),)))
