"""Each part goes to the launcher that has it; and a handed job through the executor's shell."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from coalloc.adapters.base import Adapter, AdapterError, ClaimRefusedError
from coalloc.adapters.runner.command import UnreachableError
from coalloc.adapters.slurm.adapter import CombinedLauncher
from coalloc.adapters.slurm.commands import Slurm
from coalloc.adapters.slurm.native.launcher import NativeLauncher
from coalloc.adapters.slurm.settings import SlurmSettings
from coalloc.core.base.messages import Prepare
from coalloc.core.executor.effects import DismissJob
from coalloc.core.executor.turn import carry_out
from coalloc.executor.actions import spec_of
from coalloc.executor.service import ExecutorService
from coalloc.model.sites.parts import PartKey, PartReport, PartSpec, PartState
from coalloc.model.sites.reading import ClusterReading
from coalloc.runtime.logs import get_logger
from tests.support.part_specs import part_spec

JOB = (
    "JobId=70 JobName=x JobState=PENDING Reason=PartitionDown Partition=coalloc NumNodes=1 "
    "ExitCode=0:0 NodeList= StartTime=Unknown EndTime=Unknown"
)


class Scripted(Slurm):
    """Answers from a script; what was asked is kept."""

    def run(self, name: str, *arguments: str, **kwargs: Any) -> str:
        ASKED.append(" ".join((name, *arguments)))
        if "show" in arguments:
            return JOB
        if BROKEN and BROKEN[0] in arguments:
            raise UnreachableError(name, "no answer within 4 s")
        return ""


ASKED: list[str] = []
BROKEN: list[str] = []


class Own:
    """A launcher that only remembers."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def claim(self, part: PartSpec) -> None:
        self.calls.append("claim")

    def poll(self) -> tuple[PartReport, ...]:
        return (PartReport(job="1", attempt=1, part=0, state=PartState.READY),)

    def adopt(self) -> tuple[PartReport, ...]:
        return self.poll()

    def fileno(self) -> int | None:
        return 7

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **kwargs: self.calls.append(name)


@pytest.fixture
def handed(tmp_path: Path) -> NativeLauncher:
    ASKED.clear()
    BROKEN.clear()
    settings = SlurmSettings(cluster="a", partition="main", handover_partition="coalloc")
    return NativeLauncher(settings, Scripted(), tmp_path)


def spec(foreign: str) -> PartSpec:
    return part_spec(job="2", foreign=foreign)


def claimed(launcher: CombinedLauncher | NativeLauncher, foreign: str) -> PartKey:
    part = spec(foreign)
    launcher.claim(part)
    return part.key


def test_parts_go_where_they_belong(handed: NativeLauncher) -> None:
    own = Own()
    both = CombinedLauncher(own, handed)
    other = PartKey(job="1", attempt=1, part=0)
    both.claim(spec(""))
    for call in (both.go, both.abort, both.forget):
        call(other)
    both.renew()
    assert own.calls == ["claim", "go", "abort", "forget", "renew"]
    assert not ASKED
    key = claimed(both, "70")
    assert {report.key for report in both.poll()} == {other, key}
    both.abort(key, "no room")
    both.forget(key)
    assert {report.key for report in both.adopt()} == {other}
    assert both.fileno() == 7
    both.close()
    assert own.calls[5:] == ["close"]


def test_the_commands_of_a_claim_and_of_its_return(handed: NativeLauncher) -> None:
    key = claimed(handed, "70")
    handed.go(key)
    assert ASKED == [
        "scontrol -o show job 70",
        "scontrol hold 70",
        "scontrol update JobId=70 Partition=main NumNodes=1-1 ReqNodeList=n1",
        "scontrol release 70",
    ]
    ASKED.clear()
    handed.abort(key)
    assert ASKED == [
        "scontrol hold 70",
        "scontrol -o show job 70",
        "scontrol hold 70",
        "scontrol update JobId=70 Partition=coalloc NumNodes=1 ReqNodeList=",
        "scontrol release 70",
    ]


def test_a_claim_without_an_answer_is_undone_later(handed: NativeLauncher) -> None:
    BROKEN.append("update")
    with pytest.raises(AdapterError, match="no answer") as caught:
        handed.claim(spec("70"))
    assert not isinstance(caught.value, ClaimRefusedError)
    assert handed.claimed() == {"70"}
    handed.forget(spec("70").key)
    assert handed.poll() == ()
    assert handed.claimed() == {"70"}, "until it has been put back"


class NoReader:
    def read(self) -> ClusterReading:
        raise AdapterError("nothing to read")


def test_the_shell_dismisses_and_survives_a_failure(handed: NativeLauncher, tmp_path: Path) -> None:
    for face in (handed, None):
        executor = ExecutorService(
            "a",
            Adapter(reader=NoReader(), launcher=CombinedLauncher(Own(), handed), handover=face),
            f"ipc://{tmp_path}/x",
            tmp_path,
            get_logger(),
            interval_s=1.0,
            timeout_s=1.0,
        )
        carry_out(executor.core, [DismissJob(foreign="70")], executor._hands, 0.0)
        executor._port.close()
        executor._context.term()
    assert ASKED == ["scancel 70"]
    BROKEN.append("70")
    with pytest.raises(AdapterError, match="no answer"):
        handed.dismiss("70")


def test_the_shell_tells_the_launcher_whose_job_it_is() -> None:
    order = Prepare(
        job="2",
        attempt=1,
        part=0,
        nodes={"n1": 1},
        all_nodes={"n1": 1},
        first_rank=0,
        size=1,
        uid=-1,
        gid=-1,
        lease_s=60.0,
        foreign="70",
    )
    assert spec_of(order, "a", 1).foreign == "70"
