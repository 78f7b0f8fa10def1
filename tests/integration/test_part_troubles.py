"""What fails at one part of a launcher is nothing to the others."""

from __future__ import annotations

import errno

import pytest

from coalloc.adapters.base import AdapterError, ClaimRefusedError
from coalloc.adapters.fork_server import ForkServer
from coalloc.adapters.part_folder import PartFolder
from coalloc.model.sites.parts import PartReport, PartState
from tests.support.launch_bed import LaunchTestbed


def test_a_claim_without_descriptors_is_refused_and_leaves_nothing(
    bed: LaunchTestbed, monkeypatch: pytest.MonkeyPatch
) -> None:
    def spawn(*_: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(ForkServer, "spawn", spawn)
    with pytest.raises(ClaimRefusedError, match="Too many open files"):
        bed.launcher.claim(bed.spec("true"))
    assert bed.launcher.poll() == ()
    assert not list(bed.state.glob("*+*"))
    monkeypatch.undo()
    assert bed.run(bed.spec("true")).codes == (0,)


@pytest.mark.parametrize("error", [OSError(errno.EMFILE, "no more"), KeyError("end")])
def test_a_part_that_cannot_be_looked_at_is_as_it_was(
    bed: LaunchTestbed, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    bad, good = bed.spec("sleep", "600"), bed.spec("true", job="2")
    bed.start(bad)
    report = PartFolder.report

    def fail(folder: PartFolder) -> PartReport:
        if folder.key == bad.key:
            raise error
        return report(folder)

    monkeypatch.setattr(PartFolder, "report", fail)
    assert bed.run(good).codes == (0,)
    assert bed.report(bad.key).state is PartState.RUNNING
    assert bed.report(bad.key).reason == "unreadable"
    monkeypatch.undo()
    bed.launcher.abort(bad.key)
    assert bed.ended(bad.key).state is PartState.FINISHED


def test_parts_that_cannot_be_read_at_the_start_are_not_taken_for_none(
    bed: LaunchTestbed, monkeypatch: pytest.MonkeyPatch
) -> None:
    bed.start(bed.spec("sleep", "600"))

    def fail(folder: PartFolder) -> PartReport:
        raise OSError(errno.EMFILE, "no more")

    bed.launcher.close()
    monkeypatch.setattr(PartFolder, "report", fail)
    bed.launcher = type(bed.launcher)(bed.settings, bed.state)  # type: ignore[call-arg,arg-type]
    with pytest.raises(AdapterError, match="cannot be read"):
        bed.launcher.adopt()
    monkeypatch.undo()
    assert [report.state for report in bed.launcher.adopt()] == [PartState.RUNNING]


def test_one_lease_that_cannot_be_renewed_ends_no_other(
    bed: LaunchTestbed, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad, good = bed.spec("true"), bed.spec("true", job="2")
    bed.claim(bad)
    bed.claim(good)
    renewed = []
    order = PartFolder.order

    def fail(folder: PartFolder, line: str) -> bool:
        if folder.key == bad.key:
            raise OSError(errno.EMFILE, "no more")
        renewed.append(folder.key)
        return order(folder, line)

    monkeypatch.setattr(PartFolder, "order", fail)
    with pytest.raises(AdapterError, match="no more"):
        bed.launcher.renew()
    assert renewed == [good.key]
