"""The tutorial, typed into a shell as it stands: what it shows is what comes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 60.0
ASKS = ("coalloc queue", "grep ")
"""Commands whose answer may come a moment later: they are typed again until it is there."""
DONE = "---tour---"
BLOCK = re.compile(r"^```(console|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass
class Typed:
    """One command, and the lines that the tutorial shows for it."""

    text: str
    shown: list[str] = field(default_factory=list)


def tour(text: str) -> Iterator[Typed | tuple[str, str]]:
    """Commands of the tour in order, and scripts as (name, text)."""
    for kind, block in BLOCK.findall(text):
        if kind == "python":
            yield re.match(r"# (\S+\.py)\n", block)[1], block  # type: ignore[index]
            continue
        command: Typed | None = None
        for line in block.splitlines():
            if line.startswith("$ "):
                if command is not None:
                    yield command
                command = Typed(line[2:])
            elif line == ">" or line.startswith("> "):
                assert command is not None
                command.text += "\n" + line[2:]
            else:
                assert command is not None
                command.shown.append(line)
        if command is not None:
            yield command


def pattern(shown: list[str]) -> str:
    """What output of this shape matches: figures and names of users may be others."""
    text = "\n".join(shown).strip()
    out = re.escape(text).replace("root", r"\S+")
    out = re.sub(r"(?<![a-z\[-])\d(?:[\d:T]|\\[-.])*M?(?![-\]])", r"\\S+", out)
    out = re.sub(r"(?:\\ )+", r" +", out)
    out = re.sub(r"(?:\\\n|\n)…(?:\\\n|\n)", r"\n(?:.*\n)*?", out)
    out = re.sub(r"(?:\\\n|\n)+…$", r"\n[\\s\\S]*", out)
    return out.replace("…", ".*")


class Shell:
    """A shell that commands are typed into."""

    def __init__(self, home: Path) -> None:
        self.process = subprocess.Popen(
            ["bash", "--norc", "--noprofile"],
            cwd=ROOT,
            env={"HOME": str(home), "PATH": os.environ["PATH"], "TERM": "dumb", "LANG": "C.UTF-8"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.type("set -m")

    def type(self, command: str) -> tuple[str, int]:
        """What a command prints, without lines that say it compiles, and its exit code."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{command}\necho {DONE} $?\n")
        self.process.stdin.flush()
        lines: list[str] = []
        for line in self.process.stdout:
            if line.startswith(DONE):
                return "".join(lines), int(line.split()[1])
            if not line.startswith("coalloc: compil"):
                lines.append(line)
        raise AssertionError(f"the shell ended: {''.join(lines)}")

    def close(self) -> None:
        """End what still runs, and the shell."""
        if self.process.poll() is None:
            self.process.communicate("kill $(jobs -p) 2>/dev/null; wait; exit\n", timeout=60)


@pytest.mark.slow
@pytest.mark.skipif(
    Path(sys.prefix).resolve() != (ROOT / ".venv").resolve(), reason="the tour begins in .venv"
)
def test_the_tour_shows_what_comes(root: Path) -> None:
    shell = Shell(root)
    try:
        for step in tour((ROOT / "docs/tutorial.md").read_text(encoding="utf-8")):
            if not isinstance(step, Typed):
                (root / "coalloc-tour" / step[0]).write_text(step[1])
                continue
            end = time.monotonic() + LIMIT_S
            while True:
                printed, code = shell.type(step.text)
                matches = re.fullmatch(pattern(step.shown), printed.strip()) is not None
                asks_again = step.text.startswith(ASKS) and time.monotonic() < end
                if matches or not step.shown or not asks_again:
                    break
            assert not step.shown or matches, f"$ {step.text}\n{printed}"
            assert code == 0 or step.text == "wait", f"$ {step.text}\n{printed}"
        assert not list(root.iterdir()), "the tour leaves something behind"
    finally:
        shell.close()


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        (["Submitted job 1"], "Submitted job 17"),
        (["a 4 0:00 ago"], "a    12 1:02:03 ago"),
        (["1 wide root R 0:02 …  -"], "1 wide ann R 0:14 N/A  -"),
        (["makespan 3.5", "…", "placed 1"], "makespan 4\ngap -\nx\nplaced 1"),
        (["headline", "", "…"], "headline\n\nA |..\nB"),
        (["alpha[1-4] 24105M"], "alpha[1-4] 99M"),
    ],
)
def test_shapes(shown: list[str], printed: str) -> None:
    assert re.fullmatch(pattern(shown), printed)
    assert not re.fullmatch(pattern(shown), "coalloc: error: no daemon")
