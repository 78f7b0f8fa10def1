"""Studies: their pieces, their arithmetic, and small ones carried out here and by Dask."""

import json
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from coalloc.cli import main
from coalloc.core.base.effects import Solve
from coalloc.core.learning.estimates import KEPT
from coalloc.model.errors import InputError
from coalloc.model.history import History
from coalloc.model.plan import Plan
from coalloc.model.values import replace
from coalloc.policies.base import Budget
from coalloc.policies.options import read_options
from coalloc.policies.registry import lookup
from coalloc.simulation.general import known_ratios, replay_general
from coalloc.simulation.replay import replay
from coalloc.simulation.reproduce import plots
from coalloc.simulation.reproduce.rows import Row, Rows
from coalloc.simulation.study import rows as carried
from coalloc.simulation.study.command import ONLINE
from coalloc.simulation.study.declared import Log, choose_scenarios, read_study
from coalloc.simulation.study.measures import FIGURES
from coalloc.simulation.study.pieces import Piece, cut, machine, stage
from coalloc.simulation.study.report import pairs_of, ratio, waiting
from coalloc.simulation.study.rows import cells_of, gather, read_policy, read_rows
from coalloc.simulation.trace import Trace
from coalloc.simulation.workload import map_slots

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "study.toml"
KTH = "data/swf/KTH-SP2-1996-2.1-cln.swf.gz"
STUDY = read_study(ONLINE)
LOGS, EVERY, PIECE_JOBS = STUDY.logs, STUDY.scenarios, STUDY.piece_jobs


def piece_of(log: Log, number: int) -> Piece:
    return Piece(log=log, number=number, size=PIECE_JOBS)


def test_halves_depend_on_names_alone() -> None:
    pieces = [piece_of(log, number) for log in LOGS.values() for number in range(20)]
    assert piece_of(LOGS["KTH-SP2"], 3).name == "KTH-SP2@03"
    halves = Counter(piece.half for piece in pieces if not piece.log.kept_back)
    assert min(halves.values()) > 0.4 * halves.total()
    assert {piece.half for piece in pieces if piece.log.kept_back} == {"report"}
    known = [piece_of(LOGS["KTH-SP2"], number).half for number in range(4)]
    assert known == ["choose", "report", "choose", "report"]


def test_pieces_of_a_half_are_spread_over_the_log(shared_file: Callable[[str], Path]) -> None:
    folder = shared_file(KTH).parent
    log = LOGS["KTH-SP2"]
    every = cut(log, STUDY, folder)
    halves = [cut(log, replace(STUDY, half=half), folder) for half in ("choose", "report")]
    assert len(every) == 18
    assert sorted(piece.number for half in halves for piece in half) == list(range(18))
    few = cut(log, replace(STUDY, half="report", pieces=2), folder)
    assert len(few) == 2
    assert few[0].number < 9 < few[1].number


@pytest.mark.parametrize("name", EVERY)
def test_scenarios(shared_file: Callable[[str], Path], name: str) -> None:
    folder, scenario = shared_file(KTH).parent, EVERY[name]
    piece = piece_of(LOGS["KTH-SP2"], 2)
    workload, platform = stage(piece, scenario, folder, 200, shapes=STUDY.shapes)
    assert platform == machine(piece.log, folder, several=scenario.clusters)
    assert platform.slots == 100
    assert (workload.run == workload.estimate).all() == scenario.exact
    if scenario.load:
        span = workload.submit[-1] - workload.submit[0]
        offered = (workload.run * workload.procs).sum() / (100 * span)
        # Jobs that are wider than the largest cluster are left out before times are scaled.
        assert offered == pytest.approx(scenario.load)
    if scenario.clusters:
        assert (workload.procs.max() > 40) == scenario.wide
        high = float(scenario.bandwidth.rpartition(",")[2])
        assert (high > 0.0) == (workload.gbps.max() > 0.9 * high)
        assert workload.sigma.min() == pytest.approx(0.3, abs=0.05)


@pytest.mark.parametrize(("name", "share"), [("moldable-half", 0.5), ("moldable-all", 1.0)])
def test_moldable_jobs_take_as_long_as_logged_on_users_widths(
    shared_file: Callable[[str], Path], name: str, share: float
) -> None:
    workload, _ = stage(piece_of(LOGS["KTH-SP2"], 2), EVERY[name], shared_file(KTH).parent, 300)
    made = [one for one in workload.jobs if one.moldable is not None]
    assert len(made) == pytest.approx(share * 300, abs=25)
    for one in made[:20]:
        assert one.moldable is not None
        assert one.moldable.max_procs == 100
        assert one.moldable.speedup.time(one.job.procs) == pytest.approx(one.job.base_time)


def test_the_report_says_what_widths_gain(
    shared_file: Callable[[str], Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(plots, "render", lambda *_: {})  # pictures take longer than replays
    folder = shared_file(KTH).parent
    command = ["reproduce", "online", "--data", str(folder), "-o", str(tmp_path), "--quiet"]
    command += ["--logs", "KTH-SP2", "--pieces", "1", "--jobs", "30", "--half", "choose"]
    command += ["--processes", "1"]
    assert main.main([*command, "--scenarios", "moldable", "--policies", "easy"]) == 0
    assert "online: 3 replays, 0 failed" in capsys.readouterr().out
    page = (tmp_path / "online.md").read_text()
    known = {row["scenario"]: row for row in read_rows(tmp_path / "online.rows.jsonl").values()}
    gain = known["moldable-all"]["response_mean"] / known["logged"]["response_mean"]
    part = page.partition("### moldable-all, by the same policy in `logged`")[2]
    assert f" | {gain:.2f} | " in part.partition("###")[0]
    assert f"| `moldable-all` by the same policy in `logged` | `easy` | {gain:.2f} |" in page
    assert all(row["response_mean"] > row["wait_mean"] for row in known.values())


def test_rows_of_an_earlier_version_are_replayed_again(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    whole = {"key": "k", "piece": "p", **dict.fromkeys(FIGURES, 1.0)}
    for lost in ("key", "response_mean"):
        old = {name: value for name, value in whole.items() if name != lost}
        path.write_text(f"{json.dumps(old)}\n")
        assert read_rows(path) == {}
    path.write_text(f"{json.dumps(whole)}\n")
    assert list(read_rows(path).values()) == [whole]


def test_a_piece_knows_what_ended_before_it_in_the_log(shared_file: Callable[[str], Path]) -> None:
    folder = shared_file(KTH).parent
    piece = piece_of(LOGS["KTH-SP2"], 1)
    workload = stage(piece, EVERY["logged"], folder, 10)[0]
    assert {one.job.submitted for one in workload.jobs[:1]} == {0.0}
    ends = [one.logged_end for one in workload.earlier]
    assert ends == sorted(ends)
    assert max(ends) <= 0.0
    # All but what was still waiting or running, which is fewer than the machine has nodes.
    assert PIECE_JOBS - 100 < len(ends) < PIECE_JOBS
    assert stage(piece, EVERY["first-week"], folder, 10)[0].earlier == ()
    exact, _ = stage(piece, EVERY["exact"], folder, 10)
    assert set(known_ratios(exact.earlier).values()) <= {(1.0,) * n for n in range(1, 33)}
    assert stage(piece_of(LOGS["KTH-SP2"], 0), EVERY["logged"], folder, 10)[0].earlier == ()


def test_policies_are_told_of_what_ended_before(shared_file: Callable[[str], Path]) -> None:
    folder = shared_file(KTH).parent
    piece, row = piece_of(LOGS["KTH-SP2"], 1), lookup("easy")
    options, live = read_options({}, row.options), Budget(live=True, bounds=False)
    first: dict[str, History] = {}
    for name in ("logged", "first-week"):
        workload, platform = stage(piece, EVERY[name], folder, 1)
        told: list[History] = []

        def solve(asked: Solve, told: list[History] = told) -> Plan:
            told.append(asked.history)
            return row.solve(asked.snapshot, options, live)

        replay_general(workload, map_slots(platform), solve)
        first[name] = told[0]
    assert first["first-week"] == History()
    user = workload.jobs[0].user
    mine = [one for one in stage(piece, EVERY["logged"], folder, 1)[0].earlier if one.user == user]
    newest = tuple(one.run_s / one.job.base_time for one in mine)[-KEPT:]
    assert newest
    assert first["logged"].samples == (newest,)
    assert set(newest) <= set(first["logged"].pool)


@pytest.mark.parametrize(
    ("one", "other"),
    [(one.name, one.against) for one in EVERY.values() if one.clusters and one.against],
)
def test_pairs_differ_in_co_allocation_alone(one: str, other: str) -> None:
    first, second = EVERY[one], EVERY[other]
    kept = {key: getattr(first, key) for key in ("doc", "coallocation", "study", "against")}
    alike = replace(second, name=one, **kept)
    assert alike == first
    assert (first.coallocation, second.coallocation) in (
        ("sooner", "forbidden"),
        ("sooner", "needed"),
    )


def rows(*waits: float, seed: int = 0) -> Rows:
    """Rows of one policy, with mean waits by piece."""
    return Rows({"piece": f"p{n}", "seed": seed, "wait_mean": x} for n, x in enumerate(waits))


def test_ratios_are_taken_piece_by_piece() -> None:
    easy, spf, saf = rows(99, 999, 10), rows(49, 1999, 10), rows(199, 249, 0)
    pairs = pairs_of(spf, [easy])
    assert [row["piece"] for row, _ in waiting(pairs)] == ["p0", "p1"]
    found = ratio(pairs, "wait_mean")
    assert found is not None
    assert (found.low, found.mean, found.high) == pytest.approx((0.5, 1.0, 2.0))
    better = ratio(pairs_of(easy, [rows(99, 1999, 99), rows(199, 249, 98)]), "wait_mean")
    assert better is not None
    assert better.mean == pytest.approx((1 * 4 * 11 / 99) ** (1 / 3))
    assert ratio(pairs_of(easy, [saf, rows(1, seed=1)]), "wait_mean") is None


def test_policies_have_options() -> None:
    assert read_policy("auto:patience=7:window=9") == ("auto", {"patience": 7, "window": 9})
    with pytest.raises(InputError, match="no policy 'fastest'"):
        read_policy("fastest")
    with pytest.raises(InputError, match="--policies easy speed: unknown option"):
        read_policy("easy:speed=3")


def test_a_group_stands_for_its_scenarios_and_their_bases() -> None:
    assert list(choose_scenarios(EVERY, ("moldable",))) == [
        *("logged", "moldable-half", "moldable-all")
    ]
    assert "mixture" not in choose_scenarios(EVERY, ())
    assert list(choose_scenarios(EVERY, ("exact", "mixture"))) == ["exact", "mixture"]
    with pytest.raises(InputError, match="there is no 'none'; there are logged, "):
        choose_scenarios(EVERY, ("none",))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("load = 0.9", "load = -1", "scenarios.busy.load: -1 is"),
        ("load = 0.9", "lod = 1", "study.toml: scenarios.busy.lod: unknown key"),
        ("0.3,1", "1,0.3", "scenarios.busy.sigma: 'uniform:1,0.3' is not"),
        ('against = "apart"', 'against = "x"', "scenarios.busy: there is no scenario 'x'"),
        ('platform = "', 'clusters = "', "logs.day: needs files, and a platform or a number"),
        ("[logs.day]", "[logs.day", "is no study: "),
        ("[logs.day]", "\udcff[logs.day]", " is not UTF-8"),
        ('base = ["easy"]', 'base = ["fcfs"]', "base: 'fcfs' is not among the policies"),
    ],
)
def test_a_file_that_cannot_be_a_study(tmp_path: Path, old: str, new: str, message: str) -> None:
    path = tmp_path / "study.toml"
    text = EXAMPLE.read_text().replace(old, new, 1)
    path.write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(InputError, match=re.escape(message)):
        read_study(path)


def small(*policies: str) -> list[carried.Cell]:
    """The replays of a part of the example."""
    study = read_study(EXAMPLE)
    scenario = {"busy": replace(study.scenarios["busy"], clusters=True)}
    logs = {"day": replace(study.logs["day"], platform="", nodes=48)}
    part = replace(study, policies=policies, scenarios=scenario, logs=logs, pieces=2, jobs=60)
    return cells_of(part, EXAMPLE.parent)


def figures_of(found: Rows) -> list[Row]:
    return [{name: row[name] for name in row if name != "elapsed_s"} for row in found]


def test_rows_are_the_same_whatever_carries_them_out(tmp_path: Path) -> None:
    cells = small("fcfs", "easy-spf")
    here = gather(cells)
    assert len({row["wait_mean"] for row in here.where(policy="fcfs")}) == 2, "of the pieces"
    path = tmp_path / "rows.jsonl"
    assert figures_of(gather(cells, path, processes=2)) == figures_of(here)
    assert figures_of(Rows(read_rows(path)[cell.key] for cell in cells)) == figures_of(here)


@pytest.mark.slow
def test_rows_are_the_same_on_a_dask_cluster() -> None:
    distributed = pytest.importorskip("distributed", reason="distributed is not installed")
    cells = small("fcfs", "easy-spf")
    with distributed.LocalCluster(2, threads_per_worker=2, dashboard_address=None) as cluster:
        found = gather(cells, dask=cluster.scheduler_address)
    assert figures_of(found) == figures_of(gather(cells))


def test_without_distributed_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(InputError, match=r"--dask: distributed is not installed: pip install"):
        gather(small("fcfs"), dask="tcp://127.0.0.1:1")


def test_a_replay_that_fails_does_not_end_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*args: Any, **more: Any) -> Trace:
        if args[2] == "fcfs":
            raise ZeroDivisionError("by nothing")
        return replay(*args, **more)

    monkeypatch.setattr(plots, "render", lambda *_: {})
    command = ["study", str(EXAMPLE), "-o", str(tmp_path), "--quiet", "--processes", "1"]
    command += ["--scenarios", "busy,apart", "--policies", "fcfs,easy", "--base", "easy"]
    command += ["--pieces", "1", "--jobs", "20", "--seeds", "1"]
    with monkeypatch.context() as broken:
        broken.setattr(carried, "replay", failing)
        assert main.main(command) == 1
    assert "study: 4 replays, 2 failed" in capsys.readouterr().out
    page = (tmp_path / "study.md").read_text()
    assert "- day@02, `busy`, `fcfs`, seed 0: ZeroDivisionError: by nothing" in page
    assert len((tmp_path / "study.csv").read_text().splitlines()) == 5
    assert main.main(command) == 0, "it is tried again"
    page = (tmp_path / "study.md").read_text()
    assert "failed" not in page
    assert "### busy, by the same policy in `apart`" in page


@pytest.mark.slow
@pytest.mark.parametrize(("sign", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_study_goes_on(tmp_path: Path, sign: signal.Signals, code: int) -> None:
    words = ["study", str(EXAMPLE), "-o", str(tmp_path), "--processes", "2", "--quiet"]
    script = "import sys; from coalloc.cli.main import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", script, *words]
    child = subprocess.Popen(command, stderr=subprocess.PIPE, process_group=0)
    path = tmp_path / "study.rows.jsonl"
    while not (path.exists() and path.read_bytes().count(b"\n")):
        assert child.poll() is None
    with pytest.raises(InputError, match="another study is writing it"):
        gather(small("fcfs"), path)
    os.killpg(child.pid, sign)  # as a terminal does
    assert child.communicate(timeout=60)[1] == b""
    assert child.returncode == code
    assert read_rows(path)


def test_a_full_disk_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full = tmp_path / "rows.jsonl"

    def cut_off(*_: object) -> Row:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(carried, "carry_out", cut_off)
    with pytest.raises(OSError, match=r"No space left on device: '.*rows\.jsonl'"):
        gather(small("fcfs"), full)


def no_plots(*_: Any) -> dict[str, bytes]:
    raise plots.NoPlotsError("matplotlib is not installed")


def test_a_small_run_goes_on_where_it_was(
    shared_file: Callable[[str], Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = shared_file(KTH).parent
    command = ["reproduce", "online", "--data", str(folder), "-o", str(tmp_path), "--quiet"]
    command += ["--logs", "KTH-SP2", "--pieces", "1", "--jobs", "120", "--half", "report"]
    command += ["--scenarios", "load-90,clusters,apart", "--processes", "1", "--policies"]
    with monkeypatch.context() as without:
        without.setattr(plots, "render", no_plots)
        assert main.main([*command, "easy,easy-spf"]) == 1
    said = capsys.readouterr().out
    assert "online: 6 replays, 0 failed\n- `load-90`: least waits under `easy-spf`: " in said
    assert not list(tmp_path.glob("*.png")), "there is a report without pictures too"
    kept = tmp_path / "online.rows.jsonl"
    first = read_rows(kept)
    with kept.open("a") as file:
        file.write('{"piece": "cut off')
    replayed: list[str] = []

    def counted(*args: Any, **more: Any) -> Trace:
        replayed.append(args[2])
        return replay(*args, **more)

    monkeypatch.setattr(carried, "replay", counted)
    again = [*command, "easy,easy-spf,easy-saf,conservative", "--base", "easy-spf,easy-saf"]
    assert main.main(again) == 0
    assert sorted(replayed) == ["conservative"] * 3 + ["easy-saf"] * 3
    known = read_rows(kept)
    assert len(known) == 12
    assert all(known[key] == row for key, row in first.items())
    for row in known.values():
        assert set(FIGURES) <= set(row)
        assert row["jobs"] + row["refused"] <= 120
        assert (row["half"], row["log"]) == ("report", "KTH-SP2")
        assert row["wait_mean"] <= row["wait_max"]
        assert row["made_by"].startswith("coalloc ")
    page = (tmp_path / "online.md").read_text()
    assert "- `KTH-SP2`, 1 of `KTH-SP2-1996-2.1-cln.swf.gz` on 100 x 1" in page
    assert re.search("- `clusters`: least waits under `.*`, worse in . of 1 pairs", page)
    assert "All pieces belong to the half *report*" in page
    assert "### load-90, by the better of `easy-spf` and `easy-saf`" in page
    assert "| `clusters` by the same policy in `apart` | `easy-spf` | " in page
    assert (tmp_path / "online-ratios.png").exists()
    lines = (tmp_path / "online.csv").read_text().splitlines()
    assert len(lines) == 13


def test_a_damaged_line_is_named(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text("{\n" + json.dumps({"piece": "p"}) + "\n")
    with pytest.raises(InputError, match="line 1"):
        read_rows(path)
