"""The Grid Engine launcher over commands that stand in for Grid Engine's: a cell of two hosts.

What it asks for a part on several hosts, and what it makes of answers that are late, lost or
wrong. Real cells, of one host each, are in ``tests/gridengine``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from coalloc.adapters.base import AdapterError, ClaimRefusedError
from coalloc.adapters.gridengine.launcher import GridEngineLauncher
from coalloc.adapters.gridengine.settings import read_settings
from coalloc.model.shape import Shape
from coalloc.model.sites.parts import PartState
from tests.support.launch_bed import LaunchTestbed

HEAD = '#!/bin/sh\nroot={root}\necho "$(basename $0) $*" >> $root/asked\n'
# Every job runs at once; it is in the queue until its script has ended, or it was deleted.
QSUB = """\
case "$*" in *"-w p"*) exit 0 ;; esac
number=$(ls $root/jobs | wc -l)
number=$((number + 1))
host=$(echo "$*" | sed -n 's/.*-q all.q@\\([^ ]*\\).*/\\1/p')
name=$(echo "$*" | sed -n 's/.*-N \\([^ ]*\\).*/\\1/p')
cat > $root/script.$number
echo "$host $name" > $root/jobs/$number
(setsid sh $root/script.$number < /dev/null > /dev/null 2>&1 & echo $! > $root/pid.$number
 : > $root/known.$number; wait; rm -f $root/pid.$number) > /dev/null 2>&1 &
until [ -e $root/known.$number ]; do sleep 0.01; done
"""
# The same, but a job stays until it is deleted, also where nobody waits for its script any more.
STAYS = QSUB.replace("sh $root/script.$number", 'sh -c "sh $root/script.$number; sleep 60"')
ANSWER = "echo $number\n"
QSTAT = """\
echo "<job_info><queue_info>"
for host in n1 n2; do
  echo "<Queue-List><name>all.q@$host</name><slots_used>0</slots_used>"
  echo "<slots_total>4</slots_total></Queue-List>"
done
echo "</queue_info><job_info>"
for path in $root/jobs/*; do
  number=$(basename $path)
  [ -e $root/pid.$number ] || continue
  read host name < $path
  echo "<job_list><JB_job_number>$number</JB_job_number><JB_name>$name</JB_name>"
  echo "<state>{letters}</state></job_list>"
done
echo "</job_info></job_info>"
"""
QDEL = """\
for number in "$@"; do
  [ -e $root/pid.$number ] && kill -KILL -$(cat $root/pid.$number)
done
exit 0
"""


class FakeCell(LaunchTestbed):
    """A launcher whose commands are scripts."""

    def __init__(self, root: Path, settings: dict[str, Any], **scripts: str) -> None:
        self.state, self.cwd, self.root = root / "state", root / "work", root
        for name in ("work", "bin", "jobs"):
            (root / name).mkdir(exist_ok=True)
        texts = {
            "qsub": QSUB + ANSWER,
            "qstat": QSTAT.replace("{letters}", "r"),
            "qdel": QDEL,
            **scripts,
        }
        for name, text in texts.items():
            path = root / "bin" / name
            path.write_text(HEAD.format(root=root) + text)
            path.chmod(0o755)
        given = {
            "bin": str(root / "bin"),
            "address": "127.0.0.1",
            "python": sys.executable,
            "command_limit_s": 3.0,
            **settings,
        }
        self.launcher = GridEngineLauncher(read_settings(given, "c"), self.state)

    def asked(self, name: str) -> list[str]:
        """What a command was asked, call by call."""
        lines = (self.root / "asked").read_text().splitlines()
        return [line.partition(" ")[2] for line in lines if line.startswith(f"{name} ")]

    def submitted(self) -> list[str]:
        """The calls of qsub that submit."""
        return [line for line in self.asked("qsub") if "-w p" not in line]


Make = Callable[..., FakeCell]


@pytest.fixture
def make(root: Path) -> Iterator[Make]:
    made: list[FakeCell] = []

    def build(settings: dict[str, Any] | None = None, **scripts: str) -> FakeCell:
        made.append(FakeCell(root, settings or {}, **scripts))
        return made[-1]

    yield build
    for cell in made:
        cell.close()


WIDE = (("n2", 1), ("n1", 3))


def test_a_part_on_two_hosts_is_a_job_on_each(make: Make) -> None:
    cell = make()
    spec = cell.shell('echo "$COALLOC_RANK $COALLOC_NODE"; exit $COALLOC_RANK', nodes=WIDE, size=4)
    assert cell.claim(spec).state is PartState.READY
    first, second = cell.submitted()
    assert "-q all.q@n2 " in first
    assert "-pe" not in first
    assert "-q all.q@n1 " in second
    assert "-pe smp 3" in second
    assert first.split("-N ")[1].split()[0] == second.split("-N ")[1].split()[0]
    cell.launcher.go(spec.key)
    report = cell.ended(spec.key)
    assert report.codes == (0, 1, 2, 3)
    assert sorted(cell.output().splitlines()) == ["0 n2", "1 n1", "2 n1", "3 n1"]


COUNTED = QSTAT.replace("{letters}", "r").replace(
    "</slots_total>",
    "</slots_total><resource name='h_vmem'>8.000G</resource>"
    "<resource name='gpu'>4.000000</resource>",
)
COMPLEXES = {"memory": "h_vmem", "gpu": "gpu", "exclusive": "alone"}


def test_what_a_shape_asks_for_by_slot(make: Make) -> None:
    cell = make({"complexes": COMPLEXES}, qstat=COUNTED)
    shape = Shape(cpus_per_proc=2, memory_mb_per_node=1000, per_proc={"gpu": 2})
    text = "echo $COALLOC_CPUS_PER_TASK $COALLOC_GPUS_PER_TASK $CUDA_VISIBLE_DEVICES"
    spec = cell.shell(text, nodes=(("n1", 2), ("n2", 1)), shape=shape, memory_mb_per_proc=500)
    assert cell.run(spec).codes == (0,) * 3
    first, second = cell.submitted()
    assert "-l gpu=1 -l h_vmem=512000K" in first
    assert "-pe smp 4" in first
    assert "-l gpu=1 -l h_vmem=768000K" in second
    assert "-pe smp 2" in second
    assert all("h_vmem,gpu,alone" in line for line in cell.asked("qstat") if "-F" in line)
    assert set(cell.output().splitlines()) == {"2 2"}
    alone = cell.spec("true", job="2", shape=Shape(cpus_per_proc=1, exclusive=True))
    cell.launcher.claim(alone)
    cell.wait_until(lambda: len(cell.submitted()) == 3)
    assert "-l alone=true" in cell.submitted()[2]
    assert "-pe smp 4" in cell.submitted()[2]


@pytest.mark.parametrize(
    ("settings", "shape", "procs", "reason", "said"),
    [
        ({}, {"exclusive": True}, 1, "not_permitted", "--exclusive (4 slots of n1) cannot be"),
        ({}, {"per_node": {"gpu": 1}}, 1, "not_permitted", "gpu=1 (1 slots of n1) cannot be"),
        # a consumable is asked for by the slot
        ({"complexes": COMPLEXES}, {"per_node": {"gpu": 1}}, 2, "not_permitted", "gpu=1 (2 slots"),
        ({"pe_slots": 4}, {"cpus_per_proc": 2}, 1, "not_permitted", "(2 slots of n1) cannot be"),
        ({}, {"cpus_per_proc": 5}, 1, "nodes_taken", "n1 has 4 slots, 5 are asked for"),
        ({"slots": "node"}, {}, 2, "nodes_taken", "n1 has 1 slots, 2 are asked for"),
    ],
)
def test_a_shape_that_the_queue_cannot_honour(
    make: Make, settings: dict[str, Any], shape: dict[str, Any], procs: int, reason: str, said: str
) -> None:
    cell = make(settings, qstat=COUNTED)
    with pytest.raises(ClaimRefusedError) as caught:
        cell.launcher.claim(cell.spec("true", nodes=(("n1", procs),), shape=Shape(**shape)))
    assert (caught.value.reason, caught.value.detail[: len(said)]) == (reason, said)
    assert cell.asked("qsub") == []


def test_several_processes_on_a_host_that_is_claimed_whole(make: Make) -> None:
    counted = COUNTED.replace(
        "<slots_total>", "<resource name='num_proc'>8</resource><slots_total>"
    )
    cell = make({"slots": "node"}, qstat=counted)
    shape = Shape(cpus_per_proc=2)
    assert cell.run(cell.spec("true", nodes=(("n1", 4),), shape=shape)).codes == (0,) * 4
    assert "-pe smp 4" in cell.submitted()[0], "all its slots, whatever its CPUs"


def test_one_host_that_is_taken_keeps_the_others_free(make: Make) -> None:
    """Both hosts are asked about before anything is submitted on either."""
    poked = 'case "$*" in *"-w p"*all.q@n1*) echo "it only offers 0 slots" >&2; exit 1 ;; esac\n'
    cell = make(qsub=poked + QSUB + ANSWER)
    report = cell.claim(cell.shell("true", nodes=WIDE, size=4))
    assert report.state is PartState.REFUSED
    assert report.reason == "nodes_taken"
    assert cell.submitted() == []


def test_what_was_submitted_before_a_refusal_is_deleted(make: Make) -> None:
    refused = 'case "$*" in *-terse*all.q@n1*) echo "denied: no" >&2; exit 1 ;; esac\n'
    cell = make(qsub=refused + QSUB + ANSWER)
    report = cell.claim(cell.shell("true", nodes=WIDE, size=4))
    assert report.state is PartState.REFUSED
    assert report.reason == "not_permitted"
    assert cell.asked("qdel") == ["1"]


def test_a_job_whose_number_was_never_answered_is_found_by_its_name(make: Make) -> None:
    cell = make({"command_limit_s": 1.0}, qsub=STAYS + "sleep 30\n")
    report = cell.claim(cell.shell("touch began"))
    assert report.state is PartState.REFUSED
    assert report.reason == "unreachable"
    assert cell.asked("qdel") == ["1"]
    assert not (cell.cwd / "began").exists()


@pytest.mark.parametrize("said", ["", "Your job 7 has been submitted"])
def test_an_answer_without_a_number(make: Make, said: str) -> None:
    cell = make(qsub=STAYS + f"echo '{said}'\n")
    report = cell.claim(cell.shell("true"))
    assert report.state is PartState.REFUSED
    assert cell.asked("qdel") == ["1"]


def test_a_host_that_does_not_start_its_job_frees_the_other(make: Make) -> None:
    """One wrapper is at the barrier, the other never comes."""
    program = "sh $root/script.$number"
    late = QSUB.replace(program, f"$([ $host = n1 ] && echo sleep 60 || echo {program})")
    waits = QSTAT.replace("{letters}", "$([ $host = n1 ] && echo qw || echo r)")
    cell = make({"queue_wait_s": 1.0}, qsub=late + ANSWER, qstat=waits)
    report = cell.claim(cell.shell("touch began", nodes=(("n2", 1), ("n1", 1)), size=2))
    assert report.state is PartState.REFUSED
    assert report.reason == "nodes_taken"
    assert not (cell.cwd / "began").exists()


@pytest.mark.parametrize(
    "qstat",
    ["exit 1\n", "echo garbage\n", "sleep 30\n", "echo '<!DOCTYPE a [<!ENTITY b \"c\">]><a/>'\n"],
)
def test_a_cell_that_does_not_answer_claims_nothing(make: Make, qstat: str) -> None:
    cell = make({"command_limit_s": 0.5}, qstat=qstat)
    with pytest.raises(AdapterError):
        cell.launcher.claim(cell.shell("true"))
    assert cell.launcher.poll() == ()
