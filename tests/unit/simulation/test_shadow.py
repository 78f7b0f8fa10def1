"""``coalloc shadow`` on accounts that real Slurm clusters wrote (`tests.slurm.shadow_stream`)."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from coalloc.adapters.formats.platforms import Platform
from coalloc.adapters.formats.swf_jobs import Draw, LoggedJob
from coalloc.cli.main import main
from coalloc.model.jobs import RigidJob
from coalloc.model.platform import Cluster, Node
from coalloc.simulation.progress import silent
from coalloc.simulation.replay import replay
from coalloc.simulation.shadow.command import as_equals
from coalloc.simulation.shadow.past import missed, replay_past
from coalloc.simulation.shadow.site import COMMANDS, read_site
from coalloc.simulation.workload import Workload

RECORDED = Path(__file__).parent / "data" / "shadow"
HEAD = (RECORDED / "a" / "sacct.txt").read_text().splitlines()[0]


def changed(tmp_path: Path, change: Callable[[list[str]], list[str]]) -> list[str]:
    """Folders of both clusters with other rows of accounts."""
    folders = []
    for name in ("a", "b"):
        folder = tmp_path / name
        shutil.copytree(RECORDED / name, folder)
        head, *rows = (folder / "sacct.txt").read_text().splitlines()
        (folder / "sacct.txt").write_text("\n".join([head, *change(rows)]) + "\n")
        folders.append(str(folder))
    return folders


def test_the_replayed_past_is_within_five_per_cent_of_the_real_one() -> None:
    sites = [read_site(RECORDED / name, Draw(values=(0.05,)), 10.0) for name in ("a", "b")]
    _, trace, clusters = replay_past(sites, silent)
    assert trace.ran.all()
    assert [one.jobs for one in clusters] == [99, 99]
    assert missed(trace, clusters) <= 0.05
    assert all(one.real_wait_s > 50.0 for one in clusters)


def test_a_spoiled_copy_shuts_the_gate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A third of the jobs is missing: the rest waited for something that is not in the accounts."""
    folders = changed(tmp_path, lambda rows: [row for n, row in enumerate(rows) if n % 3])
    page = tmp_path / "page.html"
    assert main(["shadow", *folders, "--quiet", "--report", str(page)]) == 3
    text = capsys.readouterr().out
    assert "no gain is reported" in text
    assert "no gain is reported" in page.read_text()
    assert "less (95 % interval" not in text


def test_figures_page_and_rows_that_are_not_used(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first jobs, with rows that tell of none that ran; the gate is held open."""
    more = {
        "damaged": "7x|too|few",
        "had not started": "901|u|main|5|a|2026-11-26T15:46:00|2026-11-26T15:46:00|Unknown|Unknown"
        "|00:00:00|00:01:00|PENDING|1|1|cpu=1,node=1||0",
        "still runs": "902|u|main|5|a|2026-11-26T15:47:00|2026-11-26T15:47:00|2026-11-26T15:48:00"
        "|Unknown|00:00:30|Partition_Limit|RUNNING|1|1|cpu=1,node=1|cpu=1,node=1|0",
    }
    folders = changed(tmp_path, lambda rows: [*rows[:24], *more.values()])
    sinfo = tmp_path / "a" / "sinfo.txt"
    sinfo.write_text(sinfo.read_text().replace("infinite", "10:00"))
    page = tmp_path / "page.html"
    words = ["shadow", *folders, "--quiet", "--within", "1000", "--report", str(page), "--json"]
    assert main(words) == 0
    told = json.loads(capsys.readouterr().out)
    assert list(told["gains"]) == ["each job on one cluster", "some on several"]
    assert told["figures"]["each job on one cluster"]["coallocated_share"] == 0.0
    not_used = "\n".join(told["lists"]["Rows not used"])
    assert f"1 row: had not started ({folders[0]}/sacct.txt:27)" in not_used
    assert f"fields, not {HEAD.count('|') + 1} ({folders[0]}/sacct.txt:26)" in not_used
    others = f"{folders[1]}/sacct.txt:27, {folders[1]}/sacct.txt:28"
    assert f"2 rows: of another cluster ({others})" in not_used
    # what still runs has its partition's limit
    assert f"{folders[0]}/sacct.txt:28" not in not_used
    text = page.read_text()
    assert "In one paragraph" in text
    assert "src=" not in text


@pytest.mark.parametrize("kind", COMMANDS)
def test_what_is_missing_is_told_by_its_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    (folder,) = changed(tmp_path, lambda rows: rows)[:1]
    (Path(folder) / f"{kind}.txt").unlink()
    assert main(["shadow", folder]) == 2
    assert COMMANDS[kind] in capsys.readouterr().err


def test_a_file_that_sinfo_did_not_print_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder,) = changed(tmp_path, lambda rows: rows)[:1]
    (Path(folder) / "sinfo.txt").write_text("main|infinite\n")
    assert main(["shadow", folder]) == 2
    assert "sinfo.txt: is not what sinfo prints" in capsys.readouterr().err


def test_accounts_of_other_years_have_no_time_in_common(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folders = changed(tmp_path, lambda rows: rows)
    path = Path(folders[0]) / "sacct.txt"
    path.write_text(path.read_text().replace("2026-", "2025-"))
    assert main(["shadow", *folders, "--quiet"]) == 2
    assert "have no time in common" in capsys.readouterr().err


def test_a_link_that_is_drawn_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["shadow", str(RECORDED / "a"), "--link", "uniform:1,10"]) == 2
    assert "--link: is one bandwidth" in capsys.readouterr().err


@pytest.mark.parametrize("keeps", [False, True])
def test_no_job_weighs_more_for_its_old_priority(keeps: bool) -> None:
    """What Slurm gave it then is no word of its user's."""
    site = read_site(RECORDED / "a", Draw(values=(0.05,)), 10.0)
    assert min(one.job.weight for one in site.jobs) > 1.0
    assert {as_equals(one, keeps=keeps).job.weight for one in site.jobs} == {1.0}


def test_a_replay_by_weight_starts_the_heaviest_first() -> None:
    """Two wait for one slot; the later one is heavier."""
    nodes = (Node(name="n1"),)
    platform = Platform(name="p", clusters=(Cluster(name="c", nodes=nodes),))
    jobs = [
        RigidJob(id=f"{n}", procs=1, base_time=10.0, submitted=at, weight=weight)
        for n, (at, weight) in enumerate(((0.0, 1.0), (1.0, 1.0), (2.0, 5.0)))
    ]
    logged = tuple(
        LoggedJob(job=job, run_s=10.0, killed=False, number=n, line=n) for n, job in enumerate(jobs)
    )
    workload = Workload(name="w", jobs=logged)
    for by_weight, starts in ((False, [0.0, 10.0, 20.0]), (True, [0.0, 20.0, 10.0])):
        trace = replay(workload, platform, "conservative", by_weight=by_weight)
        assert trace.start.tolist() == starts
