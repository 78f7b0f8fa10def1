"""The bench for on-line quality: its pieces, its arithmetic, and a small run of it."""

import json
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
from coalloc.simulation.online import bench
from coalloc.simulation.online.bench import Row, read_contender, read_rows
from coalloc.simulation.online.compare import BETTER, by_piece, compare, waiting
from coalloc.simulation.online.measures import FIGURES
from coalloc.simulation.online.pieces import (
    EVERY,
    LOGS,
    PIECE_JOBS,
    Piece,
    cut,
    several,
    single,
    stage,
    take,
)
from coalloc.simulation.replay import replay
from coalloc.simulation.reproduce import plots
from coalloc.simulation.trace import Trace
from coalloc.simulation.workload import map_slots

KTH = "data/swf/KTH-SP2-1996-2.1-cln.swf.gz"


def test_halves_depend_on_names_alone() -> None:
    pieces = [Piece(log=log, number=number) for log in LOGS.values() for number in range(20)]
    assert Piece(log=LOGS["KTH-SP2"], number=3).name == "KTH-SP2@03"
    halves = Counter(piece.half for piece in pieces if not piece.log.kept_back)
    assert min(halves.values()) > 0.4 * halves.total()
    assert {piece.half for piece in pieces if piece.log.kept_back} == {"report"}
    known = [Piece(log=LOGS["KTH-SP2"], number=number).half for number in range(4)]
    assert known == ["choose", "report", "choose", "report"]


def test_pieces_of_a_half_are_spread_over_the_log(shared_file: Callable[[str], Path]) -> None:
    folder = shared_file(KTH).parent
    every = cut(LOGS["KTH-SP2"], folder)
    halves = [cut(LOGS["KTH-SP2"], folder, half) for half in ("choose", "report")]
    assert len(every) == 18
    assert sorted(piece.number for half in halves for piece in half) == list(range(18))
    few = cut(LOGS["KTH-SP2"], folder, "report", 2)
    assert len(few) == 2
    assert few[0].number < 9 < few[1].number


@pytest.mark.parametrize("name", EVERY)
def test_scenarios(shared_file: Callable[[str], Path], name: str) -> None:
    folder, scenario = shared_file(KTH).parent, EVERY[name]
    piece = Piece(log=LOGS["KTH-SP2"], number=2)
    workload, platform = stage(piece, scenario, folder, 200)
    assert platform == (several(piece.log, folder) if scenario.clusters else single(piece.log))
    assert platform.slots == 100
    assert (workload.run == workload.estimate).all() == scenario.exact
    if scenario.load:
        span = workload.submit[-1] - workload.submit[0]
        offered = (workload.run * workload.procs).sum() / (100 * span)
        # Jobs that are wider than the largest cluster are left out before times are scaled.
        assert offered == pytest.approx(scenario.load)
    if scenario.clusters:
        assert (workload.procs.max() > 40) == scenario.wide
        assert (scenario.gbps[1] > 0.0) == (workload.gbps.max() > 0.9 * scenario.gbps[1])


@pytest.mark.parametrize(("name", "share"), [("moldable-half", 0.5), ("moldable-all", 1.0)])
def test_moldable_jobs_take_as_long_as_logged_on_users_widths(
    shared_file: Callable[[str], Path], name: str, share: float
) -> None:
    workload, _ = stage(
        Piece(log=LOGS["KTH-SP2"], number=2), EVERY[name], shared_file(KTH).parent, 300
    )
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
    assert main.main([*command, "--scenarios", "moldable", "--policies", "easy"]) == 0
    assert "least waits: easy, 1.00 of EASY" in capsys.readouterr().out
    page = (tmp_path / "online.md").read_text()
    known = {row["scenario"]: row for row in read_rows(tmp_path / "online.rows.jsonl").values()}
    ratio = known["moldable-all"]["response_mean"] / known["logged"]["response_mean"]
    assert f"| `moldable-all` | `easy` | {ratio:.2f} (" in page
    assert main.main([*command, "--scenarios", "logged", "--policies", "fcfs"]) == 0
    assert "easy is not among the policies" in capsys.readouterr().out
    assert all(row["response_mean"] > row["wait_mean"] for row in known.values())


def test_rows_of_an_earlier_version_are_replayed_again(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    key = {"piece": "p", "jobs_at_most": 1, "scenario": "s", "policy": "easy", "work": None}
    whole = {**key, **dict.fromkeys(FIGURES, 1.0)}
    old = {name: value for name, value in whole.items() if name != "response_mean"}
    path.write_text(f"{json.dumps(old)}\n")
    assert read_rows(path) == {}
    path.write_text(f"{json.dumps(whole)}\n")
    assert list(read_rows(path).values()) == [whole]


def test_a_piece_knows_what_ended_before_it_in_the_log(shared_file: Callable[[str], Path]) -> None:
    folder = shared_file(KTH).parent
    piece = Piece(log=LOGS["KTH-SP2"], number=1)
    workload = take(piece, folder, 10)
    assert {one.job.submitted for one in workload.jobs[:1]} == {0.0}
    ends = [one.logged_end for one in workload.earlier]
    assert ends == sorted(ends)
    assert max(ends) <= 0.0
    # All but what was still waiting or running, which is fewer than the machine has nodes.
    assert PIECE_JOBS - 100 < len(ends) < PIECE_JOBS
    assert stage(piece, EVERY["first-week"], folder, 10)[0].earlier == ()
    exact, _ = stage(piece, EVERY["exact"], folder, 10)
    assert set(known_ratios(exact.earlier).values()) <= {(1.0,) * n for n in range(1, 33)}
    assert take(Piece(log=LOGS["KTH-SP2"], number=0), folder, 10).earlier == ()


def test_policies_are_told_of_what_ended_before(shared_file: Callable[[str], Path]) -> None:
    folder = shared_file(KTH).parent
    piece, row = Piece(log=LOGS["KTH-SP2"], number=1), lookup("easy")
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
    mine = [one for one in take(piece, folder, 1).earlier if one.user == user]
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


def rows(**waits: tuple[float, ...]) -> list[Row]:
    """Rows of some policies, with mean waits by piece."""
    return [
        {"piece": f"p{n}", "policy": policy.replace("_", "-"), "wait_mean": wait}
        for policy, mine in waits.items()
        for n, wait in enumerate(mine)
    ]


def test_ratios_are_taken_piece_by_piece() -> None:
    table = by_piece(rows(easy=(99, 999, 10), easy_spf=(49, 1999, 10), easy_saf=(199, 249, 0)))
    busy = waiting(table)
    assert list(busy) == ["p0", "p1"]
    ratio = compare(busy, "easy-spf", "easy", "wait_mean")
    assert ratio is not None
    assert (ratio.where, ratio.above) == ("p1", 0.5)
    assert (ratio.low, ratio.mean, ratio.high, ratio.worst) == pytest.approx((0.5, 1.0, 2.0, 2.0))
    better = compare(busy, "easy", BETTER, "wait_mean")
    assert better is not None
    assert better.mean == pytest.approx((2 * 4) ** 0.5)
    assert compare(busy, "auto", "easy", "wait_mean") is None


def test_contenders_have_options() -> None:
    one = read_contender("auto:patience=7:window=9")
    assert (one.policy, one.options) == ("auto", {"patience": 7, "window": 9})
    with pytest.raises(InputError, match="no policy 'fastest'"):
        read_contender("fastest")
    with pytest.raises(InputError, match="--policies easy speed: unknown option"):
        read_contender("easy:speed=3")


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
    command += ["--scenarios", "load-90,clusters,apart", "--policies"]
    with monkeypatch.context() as without:
        without.setattr(plots, "render", no_plots)
        assert main.main([*command, "easy,easy-spf"]) == 1
    assert "online: 6 replays, least waits: easy" in capsys.readouterr().out
    assert not list(tmp_path.glob("*.png")), "there is a report without pictures too"
    kept = tmp_path / "online.rows.jsonl"
    first = read_rows(kept)
    with kept.open("a") as file:
        file.write('{"piece": "cut off')
    replayed: list[str] = []

    def counted(*args: Any, **more: Any) -> Trace:
        replayed.append(args[2])
        return replay(*args, **more)

    monkeypatch.setattr(bench, "replay", counted)
    assert main.main([*command, "easy,easy-spf,easy-saf,conservative"]) == 0
    assert sorted(replayed) == ["conservative"] * 3 + ["easy-saf"] * 3
    known = read_rows(kept)
    assert len(known) == 12
    assert all(known[key] == row for key, row in first.items())
    for row in known.values():
        assert set(FIGURES) <= set(row)
        assert row["jobs"] + row["refused"] <= 120
        assert (row["half"], row["log"]) == ("report", "KTH-SP2")
        assert row["wait_mean"] <= row["wait_max"]
        assert (row["later_max"] == 0.0) or row["policy"] != "conservative"
    page = (tmp_path / "online.md").read_text()
    assert "1 pieces of 4 policies in 3 scenarios" in page
    assert "Nothing was chosen by these pieces." in page
    assert "## Against the better of easy-spf and easy-saf" in page
    assert "| `clusters` by `apart` | `easy-spf` | " in page
    pictures = ("ratios", "logs", "classes")
    assert all((tmp_path / f"online-{name}.png").exists() for name in pictures)
    lines = (tmp_path / "online.csv").read_text().splitlines()
    assert len(lines) == 13


def test_a_damaged_line_is_named(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text("{\n" + json.dumps({"piece": "p"}) + "\n")
    with pytest.raises(InputError, match="line 1"):
        read_rows(path)
