"""Data that are copied to a job's folder on each cluster, and back."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from coalloc.adapters.ssh.master import SshMaster
from coalloc.adapters.ssh.shell import Shell
from coalloc.core.base.messages import Staged
from coalloc.core.executor.machine import ExecutorState
from coalloc.executor import staging
from coalloc.model.sites.staging import Stage
from tests.support.followed import LIMIT_S, started
from tests.support.live_site import Running
from tests.testbeds.ssh import LoginNode, login_nodes, login_user, missing, pids_with

pytestmark = pytest.mark.skipif(not shutil.which("rsync"), reason="needs rsync")


@pytest.fixture(scope="module")
def site() -> Iterator[Running]:
    with (
        tempfile.TemporaryDirectory(prefix="co-", ignore_cleanup_errors=True) as root,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv("HOME", root)
        with Running(Path(root), clusters={"alpha": 1, "beta": 1}, slots=2) as running:
            yield running


def said(site: Running, *words: str) -> str:
    process = started(site, *words)
    out, err = process.communicate(timeout=LIMIT_S)
    return (out + err).decode()


@pytest.mark.slow
def test_data_are_there_before_the_start_and_back_at_the_end(site: Running) -> None:
    (site.work / "data").mkdir()
    (site.work / "data" / "a b").write_text("41\n")
    text = 'cat "in/a b"; mkdir -p out; echo $COALLOC_CLUSTER > out/$COALLOC_RANK'
    # The end of one part with a failure ends the other: each rank waits until all have written.
    text += f"; cd {site.work}; touch at$COALLOC_RANK"
    text += "; while [ $(ls at? | wc -l) -lt 4 ]; do sleep 0.02; done; exit 3"
    words = ("--stage-in", "data/:in/", "--stage-out", "out/:got-%j/")
    told = said(site, "submit", "-n", "4", "--wait", *words, "--", "sh", "-c", text)
    assert "exit code 3" in told
    (number,) = [word.strip(",") for word in told.split() if word.strip(",").isdigit()][:1]
    back = {path.name: path.read_text() for path in (site.work / f"got-{number}").iterdir()}
    assert sorted(back) == list("0123"), told
    assert {text.strip() for text in back.values()} == {"alpha", "beta"}
    assert (site.work / f"coalloc-{number}.out").exists()
    assert not list(site.root.glob(".coalloc/*"))


@pytest.mark.slow
def test_what_does_not_come_back_is_said_and_kept(site: Running) -> None:
    words = ("--wait", "--clusters", "alpha", "--stage-out", "none:x/", "--", "sh", "-c", "echo 1")
    process = started(site, "submit", *words)
    _, err = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 1, err
    assert b"completed, exit code 0: alpha: not copied back, link_stat" in err
    (kept,) = site.root.glob(".coalloc/*")
    (output,) = kept.iterdir()
    assert (site.work / output.name).read_text() == "1\n"


class Copier:
    """An executor's stager without the rest of it."""

    def __init__(self, root: Path, files: tuple[str, str, float], owner: str = "") -> None:
        self.said: list[Staged] = []
        state = ExecutorState(cluster="alpha", identity="", store="5f0c", version="")
        self.stager = staging.Stager(files, owner, state, self.said.append, root / "copy.log")

    async def until(self, stage: Stage, *, words: str = "", state: str = "") -> Stage:
        """What is said of a wish once it is so."""
        end = asyncio.get_running_loop().time() + LIMIT_S
        while asyncio.get_running_loop().time() < end:
            self.stager.wish((stage,))
            for told in self.said[-1].stages:
                if words in told.detail and state == told.state and (words or state):
                    return told
            await asyncio.sleep(0.05)
        raise AssertionError(self.said[-1])

    @contextlib.asynccontextmanager
    async def serving(self) -> Any:
        """It works within the block."""
        task = asyncio.ensure_future(self.stager.serve())
        yield
        task.cancel()


@pytest.fixture
def node(root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LoginNode]:
    if missing():
        pytest.skip(f"ssh's testbed needs {missing()}")
    monkeypatch.setenv("HOME", str(root))
    monkeypatch.setattr(staging, "BACK_OFF_S", (0.5,))
    root.chmod(0o755)
    with (
        login_user(root, "ada") as user,
        login_nodes(root / "ssh", user.pw_name, {"alpha": {"H": user.pw_dir}}) as nodes,
    ):
        yield nodes["alpha"]
        Shell.of("alpha", str(nodes["alpha"].config)).end()
        SshMaster("alpha", str(nodes["alpha"].config)).close()


@pytest.mark.slow
def test_a_copy_goes_on_after_a_cut(root: Path, node: LoginNode) -> None:
    size = 12_000_000
    (root / "big").write_bytes(random.Random(7).randbytes(size))
    copier = Copier(root, ("alpha", str(node.config), 4.0))
    stage = Stage(job="7", phase="in", copies=((f"{root}/big", "in/x"),))

    async def run() -> None:
        async with copier.serving():
            await copier.until(stage, words=" MB, ")
            for pid in pids_with(str(node.carrier), str(node.port)):
                os.kill(pid, signal.SIGKILL)
            assert "interrupted" in (await copier.until(stage, words="interrupted")).detail
            done = await copier.until(stage, state="done")
            (copied,) = Path(done.folder, "in").iterdir()
            assert (copied.name, copied.stat().st_size) == ("x", size)
            back = Stage(job="7", phase="out", copies=(("in/?", f"{root}/got-%j/"),))
            await copier.until(back, state="done")
            assert [path.name for path in (root / "got-7").iterdir()] == ["x"]
            assert (root / "got-7/x").read_bytes() == (root / "big").read_bytes()
            assert not Path(done.folder).parent.exists()

    asyncio.run(run())


@pytest.mark.slow
def test_a_copy_outlives_its_executor_and_is_not_made_twice(root: Path, node: LoginNode) -> None:
    content = random.Random(7).randbytes(6_000_000)
    (root / "big").write_bytes(content)
    SshMaster("alpha", str(node.config)).open()
    stage = Stage(job="7", phase="in", copies=((f"{root}/big", "in/x"),))

    async def run(*, is_killed: bool = False, **wanted: str) -> Stage:
        copier = Copier(root, ("alpha", str(node.config), 1.0))
        async with copier.serving():
            told = await copier.until(stage, **wanted)
            if is_killed:
                os._exit(0)
            return told

    child = os.fork()
    if child == 0:
        try:
            asyncio.run(run(is_killed=True, words=" MB, "))
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    assert "before this one goes on" in asyncio.run(run(words="interrupted")).detail
    folder = Path(asyncio.run(run(state="done")).folder, "in")
    assert [path.name for path in folder.iterdir()] == ["x"]
    assert (folder / "x").read_bytes() == content
    assert node.accepted == 3, "the master, and one for each copy"


@pytest.mark.parametrize(
    ("source", "owner", "why"),
    [
        ("/no such", "", 'link_stat "/no such" failed: No such file or directory (2)'),
        ("/etc/hostname", "bob", ""),  # another user's wish is none of this executor's
    ],
)
def test_a_copy_that_cannot_be(
    root: Path, monkeypatch: Any, source: str, owner: str, why: str
) -> None:
    monkeypatch.setenv("HOME", str(root))
    copier = Copier(root, ("", "", 0.0), owner)
    stage = Stage(job="8", user="ada", phase="in", copies=((source, ""),))

    async def run() -> None:
        async with copier.serving():
            if why:
                assert (await copier.until(stage, state="failed")).detail == why
            else:
                copier.stager.wish((stage,))
                await asyncio.sleep(2 * staging.LOOK_S)
                copier.stager.wish((stage,))
                assert not copier.said[-1].stages
                assert not (root / ".coalloc").exists()

    asyncio.run(run())


CLOSED = "rsync: connection unexpectedly closed (0 bytes received so far) [sender]"


@pytest.mark.parametrize(
    ("said", "code", "state", "why"),
    [
        ("sh: 1: rsync: not found", 127, "failed", "sh: 1: rsync: not found"),
        ("mux: Session open refused by peer\\r", 255, "", "mux: Session open refused by peer"),
    ],
)
def test_the_other_end_says_why(
    root: Path, monkeypatch: pytest.MonkeyPatch, said: str, code: int, state: str, why: str
) -> None:
    (root / "rsync").write_text(f"#!/bin/sh\nprintf '{said}\\n{CLOSED}\\n'; exit {code}\n")
    (root / "rsync").chmod(0o755)
    monkeypatch.setenv("HOME", str(root))
    monkeypatch.setenv("PATH", f"{root}:{os.environ['PATH']}")
    copier = Copier(root, ("", "", 0.0))

    async def run() -> None:
        async with copier.serving():
            stage = Stage(job="9", phase="in", copies=(("/etc/hostname", ""),))
            detail = (await copier.until(stage, words=why, state=state)).detail
            assert detail.removeprefix("interrupted: ") == why

    asyncio.run(run())
