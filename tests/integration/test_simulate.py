"""``simulate`` as a user calls it, and on real logs."""

import csv
import json
import re
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest

from coalloc.adapters.formats.platforms import read_platform
from coalloc.adapters.formats.swf_jobs import JobRule, read_bandwidth, read_sigma
from coalloc.cli.main import main as coalloc
from coalloc.simulation.metrics import measure
from coalloc.simulation.replay import replay
from coalloc.simulation.verify import verify
from coalloc.simulation.workload import read_workload

ROOT = Path(__file__).resolve().parents[2]
KTH = "data/swf/KTH-SP2-1996-2.1-cln.swf.gz"
METACENTRUM = "data/swf/METACENTRUM-2009-2.part1.swf.gz"
SDSC = "data/swf/SDSC-BLUE-2000-4.2-cln.first25k.swf.gz"
KTH_SP2 = ROOT / "etc/platforms/kth-sp2.toml"
METACENTRUM_14 = ROOT / "etc/platforms/metacentrum-14.toml"
DAS2 = ROOT / "etc/platforms/das2.toml"

LOG = """\
; MaxProcs: 4
1 0 0 10 2 -1 -1 2 20
2 0 0 20 4 -1 -1 4 30
no job at all
3 5 0 5 1 -1 -1 1 8
4 6 0 99 1 -1 -1 1 9
5 7 0 5 9 -1 -1 9 9
"""
PLATFORM = """
[[clusters]]
name = "a"
nodes = [{name = "a[1-2]", slots = 2}]
"""


def main(words: list[str]) -> int:
    return coalloc(["simulate", *words])


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    (tmp_path / "log.swf").write_text(LOG)
    (tmp_path / "four.toml").write_text(PLATFORM)
    workload, platform = str(tmp_path / "log.swf"), str(tmp_path / "four.toml")
    return ["--workload", workload, "--platform", platform]


def test_several_policies_side_by_side(
    files: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert main([*files, "--policy", "fcfs,easy", "-o", str(out)]) == 0
    said = capsys.readouterr()
    assert said.out.splitlines()[0].split() == ["fcfs", "easy"]
    assert "did not run (fcfs, easy):\n  job 5: needs 9 processes; 4 slots exist" in said.out
    assert "log.swf: 5 jobs, 1 bad lines skipped, 5 short lines" in said.err
    assert "jobs with: run time cut at the estimate: 1" in said.err
    assert sorted(path.name for path in out.iterdir()) == [
        f"{policy}.{kind}"
        for policy in ("easy", "fcfs")
        for kind in ("gantt.svg", "jobs.csv", "summary.json")
    ]
    lines = (out / "easy.jobs.csv").read_text().splitlines()
    rows = {row["job_id"]: row for row in csv.DictReader(lines)}
    # Job 1 ends at 10 although it said 20; job 3 fits before the head's reservation at 20.
    assert rows["1"]["finish_time"] == "10"
    assert (rows["3"]["starting_time"], rows["3"]["finish_time"]) == ("5", "10")
    assert rows["4"]["final_state"] == "COMPLETED_WALLTIME_REACHED"
    assert rows["4"]["execution_time"] == "9"
    assert rows["5"]["final_state"] == "REJECTED"
    assert rows["5"]["allocated_resources"] == ""
    summary = json.loads((out / "easy.summary.json").read_text())
    assert summary["metrics"]["completed"] == 3
    assert summary["metrics"]["killed"] == 1
    assert summary["refused"] == [
        {"job": "5", "procs": 9, "reason": "needs 9 processes; 4 slots exist"}
    ]
    assert ElementTree.parse(out / "fcfs.gantt.svg").getroot().tag.endswith("svg")


def test_json(files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*files, "--policy", "fpfs", "--json", "--quiet", "--limit", "2"]) == 0
    said = capsys.readouterr()
    (summary,) = json.loads(said.out)
    assert (summary["policy"], summary["metrics"]["jobs"]) == ("fpfs", 2)
    assert said.err == ""


@pytest.mark.parametrize(
    ("more", "fault"),
    [
        (["--policy", "fastest"], "policy: there is no policy 'fastest'"),
        (["--set", "speed=3"], "unknown option; this policy has"),
        (["--sigma", "2"], "--sigma: 2 is outside 0..1"),
        (["--bandwidth", "much"], "--bandwidth: 'much' is not a bandwidth"),
        (["--workload", "/nowhere/log.swf"], "/nowhere/log.swf: No such file or directory"),
        (["--platform", "/nowhere/p.toml"], "/nowhere/p.toml: No such file or directory"),
        (["--path", "stream", "--policy", "auto"], "--path: auto with these options needs"),
    ],
)
def test_errors_are_one_line(
    files: list[str], capsys: pytest.CaptureFixture[str], more: list[str], fault: str
) -> None:
    assert main([*files, "--quiet", *more]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert len(said.err.splitlines()) == 1
    assert said.err.startswith("coalloc: error: ")
    assert fault in said.err


def test_a_log_that_is_none(files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*files[2:], "--workload", files[3]]) == 2
    assert "is no SWF log" in capsys.readouterr().err


def test_logs_are_merged_in_time(files: list[str], tmp_path: Path) -> None:
    (tmp_path / "later.swf").write_text("1 100 0 5 1\n2 103 0 5 1\n")
    workload = read_workload([files[1], tmp_path / "later.swf"])
    first = Path(files[1]).name.partition(".")[0]
    assert [(j.job.id, j.job.submitted) for j in workload.jobs][:4] == [
        (f"{first}-1", 0.0),
        (f"{first}-2", 0.0),
        ("later-1", 0.0),  # each log begins at its own first submission
        ("later-2", 3.0),
    ]
    again = read_workload([tmp_path / "later.swf", tmp_path / "later.swf"])
    assert {j.job.id for j in again.jobs} == {"later-1-1", "later-1-2", "later-2-1", "later-2-2"}


def test_the_memory_that_a_log_asks_for_is_waited_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Four slots, room for one of two jobs of two processes of 1 GiB; the third fits nowhere."""
    row = "{n} 0 0 60 2 -1 -1 2 60 {kib} 1 1 1 1 1 1 -1 -1\n"
    sizes = (2**20, 2**20, 2**22)
    log = "".join(row.format(n=n, kib=kib) for n, kib in enumerate(sizes, 1))
    (tmp_path / "log.swf").write_text(log)
    node = "[[clusters]]\nname = 'a'\n[[clusters.nodes]]\nname = 'a1'\nslots = 4\n"
    found = {}
    for memory in ("memory_mb = 3000\n", ""):
        (tmp_path / "p.toml").write_text("name = 'p'\n" + node + memory)
        files = ["--workload", str(tmp_path / "log.swf"), "--platform", str(tmp_path / "p.toml")]
        assert main([*files, "--policy", "easy", "--json"]) == 0
        (found[memory],) = json.loads(capsys.readouterr().out)
    counted, dropped = found.values()
    assert counted["log"]["adjusted"] == {"memory counted": 3}
    assert counted["metrics"]["max_wait_s"] == 60.0
    assert list(counted["refused_reasons"]) == [
        "needs 2 processes of 4096 MiB; 0 suitable slots exist"
    ]
    assert dropped["log"]["adjusted"] == {"memory that is not counted: no node has memory_mb": 3}
    assert (dropped["metrics"]["refused"], dropped["path"]) == (0, "stream")


def test_a_policy_without_a_stream_runs_on_the_general_path(files: list[str]) -> None:
    workload = read_workload([files[1]])
    trace = replay(workload, read_platform(files[3]), "auto")
    assert trace.path == "general"
    assert verify(trace) == []
    assert int(trace.ran.sum()) == 4


def test_both_paths_on_kth(shared_file: Callable[[str], Path]) -> None:
    """One cluster, user estimates, early ends: compression and backfilling at work."""
    workload = read_workload([shared_file(KTH)], limit=150)
    platform = read_platform(KTH_SP2)
    for policy in ("fcfs", "sjf", "lpt", "fpfs", "easy", "conservative"):
        streamed = replay(workload, platform, policy, path="stream")
        general = replay(workload, platform, policy, path="general")
        assert streamed.start.tolist() == pytest.approx(general.start.tolist(), abs=1e-6), policy
        assert int((streamed.start > workload.submit).sum()) > 10


def test_both_paths_with_splits_and_links(shared_file: Callable[[str], Path]) -> None:
    """Five clusters, jobs wider than the largest, links that fill up."""
    rule = JobRule(sigma=read_sigma("uniform:0.3,1"), bandwidth=read_bandwidth("uniform:0,0.05"))
    workload = read_workload([shared_file(SDSC)], rule, limit=70)
    platform = read_platform(DAS2)
    for policy in ("fcfs", "easy", "conservative", "spt"):
        streamed = replay(workload, platform, policy, path="stream")
        general = replay(workload, platform, policy, path="general")
        assert streamed.start[streamed.ran].tolist() == pytest.approx(
            general.start[general.ran].tolist(), abs=1e-6
        ), policy
        for trace in (streamed, general):
            assert verify(trace) == []
            metrics = measure(trace)
            assert metrics.coallocated_share > 0.05
            assert 0.0 < metrics.peak_link_use <= 1.0 + 1e-9


def test_different_powers_give_different_starts_on_both_paths(
    shared_file: Callable[[str], Path],
) -> None:
    workload = read_workload([shared_file(METACENTRUM)], limit=150)
    platform = read_platform(METACENTRUM_14)
    for policy in ("fcfs", "easy"):
        streamed = replay(workload, platform, policy, path="stream")
        general = replay(workload, platform, policy, path="general")
        assert streamed.start.tolist() == pytest.approx(general.start.tolist(), abs=1e-6)


def test_kth_is_of_the_order_of_the_literature(shared_file: Callable[[str], Path]) -> None:
    """EASY with user estimates on KTH-SP2: published mean bounded slowdowns are near 90."""
    workload = read_workload([shared_file(KTH)])
    platform = read_platform(KTH_SP2)
    easy = replay(workload, platform, "easy")
    assert verify(easy) == []
    metrics = measure(easy)
    assert metrics.completed == 27992
    assert 30.0 < metrics.mean_bounded_slowdown < 200.0
    assert 3600.0 < metrics.mean_wait_s < 3 * 3600.0
    assert metrics.mean_wait_s <= measure(replay(workload, platform, "fcfs")).mean_wait_s


@pytest.mark.slow
def test_metacentrum_under_four_policies(
    shared_file: Callable[[str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--workload", str(shared_file(METACENTRUM)), "--platform", str(METACENTRUM_14)]
    policies = "fcfs,easy,conservative,sjf"
    assert main([*arguments, "--policy", policies, "-o", str(tmp_path), "--json"]) == 0
    summaries = {s["policy"]: s["metrics"] for s in json.loads(capsys.readouterr().out)}
    assert {metrics["completed"] for metrics in summaries.values()} == {50000}
    assert summaries["easy"]["mean_wait_s"] <= summaries["fcfs"]["mean_wait_s"]
    assert all(0.0 < metrics["compaction"] <= 1.0 for metrics in summaries.values())


def test_policies_are_compared_over_pieces_and_seeds(
    files: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each policy by itself is 1; pairs are pieces times seeds; the same twice."""
    log = "".join(f"{n} {n * 10} -1 {60 + n % 7 * 30} {1 + n % 4}\n" for n in range(1, 121))
    (tmp_path / "log.swf").write_text(log)
    asked = ["--workload", str(tmp_path / "log.swf"), *files[2:], "--quiet"]
    asked += ["--sigma", "uniform:0.5,1", "--seeds", "3", "--pieces", "2"]
    said = []
    for _ in range(2):
        assert main([*asked, "--policy", "fcfs,easy", "-o", str(tmp_path / "out")]) == 0
        said.append(capsys.readouterr().out)
    assert said[0] == said[1]
    head, names, _, easy = said[0].splitlines()
    assert "ratios to fcfs over 6 pairs" in head
    assert " ".join(names.split()) == "mean wait 95th percentile longest wait mean slowdown"
    mean, low, high = map(float, re.findall(r"\d\.\d\d", easy)[:3])
    assert low <= mean <= high <= 1.0
    rows = (tmp_path / "out" / "pairs.csv").read_text().splitlines()
    assert len(rows) == 1 + 6 * 2
    assert main([*asked, "--policy", "easy"]) == 2
    assert main([*asked, "--policy", "fcfs,easy", "--pieces", "50"]) == 2
    assert "120 jobs in 50 pieces are fewer than 50 in each" in capsys.readouterr().err
