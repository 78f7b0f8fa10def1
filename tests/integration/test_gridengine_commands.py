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

from coalloc.adapters.base import AdapterError
from coalloc.adapters.gridengine.launcher import GridEngineLauncher
from coalloc.adapters.gridengine.settings import read_settings
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
