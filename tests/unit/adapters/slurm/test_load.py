"""The load on slurmctld: what is asked how often, and nodes that Slurm has powered down."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from coalloc.adapters.runner.command import UnreachableError
from coalloc.adapters.slurm.commands import Slurm, rpcs_of
from coalloc.adapters.slurm.load import COUNTED_S, Tally, is_busy
from coalloc.adapters.slurm.reader import EASED, SELDOM_EVERY_S, SlurmReader
from coalloc.adapters.slurm.settings import SlurmSettings
from coalloc.adapters.ssh.master import MasterState
from coalloc.adapters.ssh.shell import CommandOutput
from coalloc.model.platform import NodeState
from tests.unit.adapters.slurm.test_odd_records import NODE, NOW, Said

BUSY = "Server thread count:  90\nAgent queue size:    0\n"


class Counted(Said):
    """Slurm whose commands are counted, and whose clock is a test's."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: Counter[str] = Counter()
        self.trips = 0
        self.now, self.refusals, self.broken = NOW, 0, ""
        settings = SlurmSettings(cluster="c", slots="cpus")
        self.reader = self.made(settings)

    def made(self, settings: SlurmSettings) -> SlurmReader:
        slurm = cast(Slurm, self)
        return SlurmReader(settings, slurm, refusals=lambda: self.refusals, clock=lambda: self.now)

    def run(self, name: str, *arguments: str, **kwargs: Any) -> str:
        if name == self.broken:
            raise UnreachableError(name, "cannot be run")
        self.asked[name if name != "scontrol" else arguments[-1]] += 1
        return super().run(name, *arguments, **kwargs)

    def ask_all(self, commands: Iterable[tuple[str, ...]], **how: Any) -> dict[Any, CommandOutput]:
        self.trips += 1
        return {each: CommandOutput(0, super(Counted, self).run(*each), "") for each in commands}

    def told(self, name: str, answer: CommandOutput) -> str:
        return answer.out

    def cycles(self, count: int, step_s: float = 5.0) -> Counter[str]:
        self.asked.clear()
        for _ in range(count):
            self.now += step_s
            self.reader.read()
        return self.asked


def test_a_minute_of_readings_asks_slurmctld_no_more_than_it_may() -> None:
    said = Counted()
    said.reader.read()
    assert said.cycles(12) == {"squeue": 12, "node": 12, "reservation": 1, "partition": 1}
    cost = sum(
        count * (2 if what in {"squeue", "node"} else 1) for what, count in said.asked.items()
    )
    assert cost <= 60


def test_over_a_login_ten_idle_minutes_are_a_round_trip_a_reading(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    state = SimpleNamespace(state=MasterState)
    monkeypatch.setattr("coalloc.adapters.slurm.reader.SshMaster", lambda *_: state)
    said = Counted()
    said.reader = said.made(SlurmSettings(cluster="c", slots="cpus", ssh="alpha"))
    said.reader.read()
    assert said.cycles(40, 15.0) == {}
    assert said.trips == 41


@pytest.mark.parametrize("sign", ["a reason", "a refusal", "a kept node", "another partition"])
def test_what_rarely_changes_is_asked_for_when_something_points_to_it(sign: str) -> None:
    said = Counted()
    said.reader.read()
    if sign == "a reason":
        said.jobs = [*said.jobs[:-1], said.jobs[-1] | {"reason": "PartitionDown"}]
    elif sign == "a refusal":
        said.refusals += 1
    else:
        state, partition = ("IDLE+MAINT", "gpu") if sign == "a kept node" else ("IDLE", "main")
        said.answers["node"] = [*said.answers["node"], NODE.format("n8", 0, state, partition)]
    assert said.cycles(3)["partition"] == 1
    assert said.cycles(1, SELDOM_EVERY_S)["reservation"] == 1


def test_readings_are_eased_while_nothing_is_there_or_slurmctld_is_busy() -> None:
    said = Counted()
    said.reader.read()
    assert said.reader.pause(True) == EASED
    assert said.reader.pause(False) == 1.0
    said.texts["sdiag"] = BUSY
    said.cycles(1, 400.0)
    assert said.reader.pause(False) == EASED
    said.broken = "sdiag"
    said.cycles(1, 400.0)  # nothing depends on it
    handed = said.made(SlurmSettings(cluster="c", handover_comment="coalloc"))
    assert handed.pause(True) == 1.0, "a handed job is waited for"
    assert not is_busy("Agent queue size: many")
    assert is_busy("Server thread count: 3\nAgent queue size: 800")


@pytest.mark.parametrize(
    ("words", "cost"),
    [
        ("squeue --local -h -j 7", 2),
        ("scontrol -a -o show node", 2),
        ("scontrol -a -o show partition", 1),
        ("scontrol --local -d -o show job 7", 1),
        ("scontrol show hostnames a[1-2]", 0),
        ("sbatch --parsable", 1),
        ("scancel --signal=KILL 7 8 9", 3),
        ("sacct -n", 0),
    ],
)
def test_the_requests_of_a_command(words: str, cost: int) -> None:
    name, *arguments = words.split()
    assert rpcs_of(name, tuple(arguments)) == cost


def test_requests_are_counted_over_the_last_minutes(tmp_path: Path) -> None:
    path = tmp_path / "rpcs"
    tally, slurm = Tally(path), Slurm(bin_dir="/bin", tally=str(path))
    assert tally.per_minute(0.0) is None
    slurm.ask("true")
    assert tally.per_minute(0.0) is None
    for _ in range(3):
        slurm.ask("true")
    assert tally.per_minute(60.0) == 4.0
    assert tally.per_minute(60.0 + COUNTED_S) == 0.0
    assert Tally(path).per_minute(0.0) is None, "it does not grow for ever"
    assert Tally(None).per_minute(0.0) is None


@pytest.mark.parametrize("state", ["IDLE+CLOUD+POWERED_DOWN", "IDLE~", "IDLE#", "MIXED%"])
def test_powered_down_nodes_are_there_after_their_boot(state: str) -> None:
    said = Counted()
    said.jobs = []
    said.answers["node"] = [NODE.format("n9", 0, state, "main")]
    said.texts["config"] += "ResumeTimeout           = 90 sec\n"
    reading = said.reader.read()
    assert [node.state for node in reading.nodes] == [NodeState.UP]
    work = next(job for job in reading.running if "n9" in job.nodes)
    assert (work.ours, work.nodes["n9"], work.end - NOW) == (False, 8, 90.0)
    at_once = said.made(SlurmSettings(cluster="c", slots="cpus", start="salloc")).read()
    assert [node.state for node in at_once.nodes] == [NodeState.DOWN]
    assert not [job for job in at_once.running if "powered" in job.id]
