"""The HTML reports: what they say, and that nothing in them comes from elsewhere."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from coalloc.cli.main import main as coalloc
from coalloc.simulation.report.experiments import experiments_page
from coalloc.simulation.report.page import Axis, linear

LOG = """\
; MaxProcs: 4
1 0 0 10 2 -1 -1 2 20
2 0 0 20 4 -1 -1 4 40
3 5 0 5 1 -1 -1 1 10
4 6 0 99 1 -1 -1 1 198
5 7 0 5 9 -1 -1 9 9
"""
PLATFORM = """
[[clusters]]
name = "a<b>"
nodes = [{name = "a[1-2]", slots = 2}]
"""
VOID = {"meta", "img"}


def main(words: list[str]) -> int:
    return coalloc(["simulate", *words])


class Page(HTMLParser):
    """A page as its reader sees it, with whatever it would load."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.heads: list[str] = []
        self.labels: list[str] = []
        self.loads: list[str] = []
        self.rows: list[list[str]] = []
        self.feed(text)
        self.close()
        assert not self.open, "every element is closed"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.loads += [str(given[name]) for name in ("src", "href") if name in given]
        if "aria-label" in given:
            self.labels.append(str(given["aria-label"]))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        tag = self.open[-1] if self.open else ""
        if tag in {"h1", "h2", "h3"}:
            self.heads.append(data)
        if tag in {"td", "th"}:
            self.rows[-1].append(data)


@pytest.fixture
def words(tmp_path: Path) -> list[str]:
    (tmp_path / "log.swf").write_text(LOG)
    (tmp_path / "four.toml").write_text(PLATFORM)
    files = ["--workload", str(tmp_path / "log.swf"), "--platform", str(tmp_path / "four.toml")]
    return ["--quiet", "--policy", "fcfs,easy", *files]


def test_policies_are_compared_on_one_page(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "page.html"
    assert main([*words, "--report", str(out)]) == 0
    text = out.read_text()
    page = Page(text)
    assert page.heads[1:] == [
        *("Figures", "Waits", "Slowdown by width", "Utilisation", "Estimates"),
        *("fcfs: jobs over time", "easy: jobs over time"),
    ]
    shown = capsys.readouterr().out
    assert "longest wait" in shown
    assert "  on 1 slot " in shown
    # the same figures as the table in the terminal
    for line in shown.splitlines()[2:]:
        cells = re.split(r"\s{2,}", line.strip())
        if len(cells) == 3:
            assert cells in page.rows
    assert page.labels == [
        *("Share of the jobs by wait", "Mean bounded slowdown by processes"),
        *("Busy slots over time", "Run time by estimate"),
    ]
    assert "job 5: needs 9 processes; 4 slots exist" in text
    # four run half their estimates; the fifth, which is refused, 5 s of 9
    assert "The median job runs for 50% of its estimate" in text
    assert "<title>jobs, 50: 1</title>" in text
    assert "prefers-color-scheme: dark" in text
    assert "a&lt;b&gt;" in text
    assert not page.loads
    assert not re.findall(r"url\(|@import|<script|https?://(?!www\.w3\.org/2000/svg)", text)


def test_a_report_that_cannot_be_written_is_refused_at_once(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*words, "--report", str(tmp_path / "no" / "page.html")]) == 2
    assert main([*words, "--report", str(tmp_path)]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.splitlines() == [
        f"coalloc: error: --report: there is no folder {tmp_path}/no",
        f"coalloc: error: --report: {tmp_path} is a folder",
    ]


def test_experiments_are_one_page_with_their_pictures(tmp_path: Path) -> None:
    (tmp_path / "x.png").write_bytes(b"\x89PNG")
    (tmp_path / "x.md").write_text(
        "# x: what <it> costs\n\n![x](x.png)\n\n## Claims\n\n"
        "We run `auto`, **twice**:\n- one\n- two\n\n"
        "| Column | Holds |\n|---|---:|\n| `a` | 1 |\n\n![y](gone.png)\n"
    )
    text = experiments_page([tmp_path / "x.md"])
    page = Page(text)
    assert page.heads == ["coalloc reproduce", "x: what <it> costs", "Claims"]
    assert page.loads == ["data:image/png;base64,iVBORw=="]
    assert "<p>We run <code>auto</code>, <strong>twice</strong>:</p>" in text
    assert "<ul>\n<li>one</li>\n<li>two</li>\n</ul>" in text
    assert ["Column", "Holds"] in page.rows
    assert "<p>y (no picture)</p>" in text


@pytest.mark.parametrize(
    ("high", "ticks"),
    [
        (1.0, [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]),
        (0.0, [0.0]),  # nothing to show is no error
        (123.0, [0.0, 25.0, 50.0, 75.0, 100.0, 125.0]),
    ],
)
def test_axes_end_at_round_numbers(high: float, ticks: list[float]) -> None:
    axis = linear("x", high, str)
    assert [value for value, _ in axis.ticks][: len(ticks)] == pytest.approx(ticks)
    assert axis.high >= high


def test_a_logarithmic_axis_takes_what_is_below_it() -> None:
    axis = Axis("wait", 1.0, 100.0, [], is_log=True)
    assert [axis.share(value) for value in (0.0, 1.0, 10.0, 100.0, 1e9)] == [0, 0, 0.5, 1, 1]
