"""``coalloc reserve`` without nodes: what is kept, and whether the batch systems keep it too."""

from __future__ import annotations

import pytest

from coalloc.cli import reserve
from coalloc.cli.main import main
from coalloc.wire.answers import NodesAnswer
from coalloc.wire.node_rows import PassedRow, ReservationRow


class Told:
    """A daemon that has one reservation."""

    passed: tuple[PassedRow, ...] = ()

    def __enter__(self) -> Told:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def known_nodes(self) -> NodesAnswer:
        row = ReservationRow(name="r1", nodes=("a1",), start=0.0, by="root", passed=self.passed)
        return NodesAnswer(clusters=(), reservations=(row,))


@pytest.mark.parametrize(
    ("passed", "said"),
    [
        ((), "-"),
        ((PassedRow(cluster="a"),), "a: yes"),
        (
            (PassedRow(cluster="a", running=("7", "8")), PassedRow(cluster="b", why="no right")),
            "a: yes, 7,8 may still run; b: no (no right)",
        ),
    ],
)
def test_listing_says_what_batch_systems_keep(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    passed: tuple[PassedRow, ...],
    said: str,
) -> None:
    monkeypatch.setattr(Told, "passed", passed)
    monkeypatch.setattr(reserve, "connect", lambda args: Told())
    assert main(["reserve"]) == 0
    head, line = capsys.readouterr().out.splitlines()
    start, end = head.index("BATCH SYSTEMS"), head.index("REASON")
    assert line[start:end].strip() == said
