"""The launcher across restarts, crashes and full disks."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import to_builtins

from coalloc.adapters.base import AdapterError, ClaimRefusedError
from coalloc.adapters.local.adapter import open_local
from coalloc.adapters.local.launcher import LocalLauncher
from coalloc.adapters.runner import cgroup
from coalloc.adapters.runner.status import END, PAGE, START, StatusFile, encoded
from coalloc.model.platform import NodeState
from coalloc.model.shape import ONE_SLOT, Shape
from coalloc.model.sites.parts import PartKey, PartState
from tests.support.launch_bed import LIMIT_S, NODES, LaunchTestbed, Signpost, wait_dead
from tests.support.small_disk import mounted

# ---- claims ----------------------------------------------------------------------------------


def test_second_claim_of_a_key_is_the_first(bed: LaunchTestbed) -> None:
    spec = bed.shell("echo once >> runs")
    bed.launcher.claim(spec)
    bed.launcher.claim(spec)
    bed.claim(spec)
    bed.launcher.go(spec.key)
    bed.ended(spec.key)
    bed.launcher.claim(spec)  # also after its end
    assert bed.output("runs") == "once\n"


def test_slots_are_claimed_once(bed: LaunchTestbed) -> None:
    first = bed.spec("true", nodes=(("n1", 3), ("n2", 4)))
    bed.claim(first)
    with pytest.raises(ClaimRefusedError) as caught:
        bed.launcher.claim(bed.spec("true", job="2", nodes=(("n3", 1), ("n1", 2))))
    assert caught.value.reason == "nodes_taken"
    assert caught.value.detail == "n1: 2 slots wanted, 1 of 4 free"
    bed.launcher.go(first.key)
    bed.ended(first.key)
    bed.launcher.claim(bed.spec("true", job="2", nodes=(("n3", 1), ("n1", 2))))


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"nodes": (("n9", 1),)}, "unknown_node"),
        ({"nodes": (("n1", 5),)}, "nodes_taken"),  # more than it has
        ({"nodes": (("n1", 0),)}, "bad_spec"),
        ({"nodes": ()}, "bad_spec"),
        ({"argv": ()}, "impossible"),
        ({"argv": ("true\0",)}, "impossible"),
        ({"uid": -1}, "impossible"),
        ({"job": "x" * 250}, "impossible"),  # no folder can have this name
    ],
)
def test_impossible_claims_leave_nothing(
    bed: LaunchTestbed, fields: dict[str, Any], reason: str
) -> None:
    argv = fields.pop("argv", ("true",))
    assert isinstance(argv, tuple)
    with pytest.raises(ClaimRefusedError) as caught:
        bed.launcher.claim(bed.spec(*argv, **fields))
    assert caught.value.reason == reason
    assert bed.launcher.poll() == ()
    assert sorted(path.name for path in bed.state.iterdir()) == ["lock", "news"]


@pytest.mark.parametrize("job", ["../../etc", ".", "a+b+1+2", "job 1", "ä/ö", "%2F"])
def test_any_job_id_has_a_folder_of_its_own(bed: LaunchTestbed, job: str) -> None:
    spec = bed.spec("true", job=job, stdout="out")
    assert bed.run(spec).codes == (0,)
    folder = bed.state / spec.key.folder
    assert folder.parent == bed.state
    assert folder.is_dir()
    assert PartKey.of_folder(folder.name) == spec.key


def test_forget_removes_what_has_ended_only(bed: LaunchTestbed, sign: Signpost) -> None:
    spec = bed.shell(f"echo up > {sign.path}; sleep 600")
    bed.start(spec)
    bed.launcher.forget(spec.key)
    assert bed.report(spec.key).state is PartState.RUNNING
    bed.launcher.abort(spec.key)
    bed.ended(spec.key)
    bed.launcher.forget(spec.key)
    bed.launcher.forget(spec.key)
    assert bed.launcher.poll() == ()
    assert not (bed.state / spec.key.folder).exists()
    assert bed.output() == ""  # the user's files stay


def test_orders_to_unknown_parts_are_harmless(bed: LaunchTestbed) -> None:
    key = PartKey(job="no", attempt=1, part=0)
    bed.launcher.go(key)
    bed.launcher.abort(key)
    bed.launcher.renew()
    bed.launcher.forget(key)


def test_one_executor_for_each_folder(bed: LaunchTestbed) -> None:
    with pytest.raises(AdapterError, match="another executor uses this folder"):
        LocalLauncher(bed.settings, bed.state)


def test_unusable_state_folder(tmp_path: Path, bed: LaunchTestbed) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(AdapterError, match="Not a directory"):
        LocalLauncher(bed.settings, tmp_path / "file" / "state")


# ---- restarts --------------------------------------------------------------------------------

EXECUTOR = """
import json, os, select, sys
from pathlib import Path
from coalloc.adapters.local.launcher import LocalLauncher
from coalloc.adapters.local.settings import read_settings
from coalloc.model.shape import Shape
from coalloc.model.sites.parts import Launch, PartSpec, PartState

state, cwd, sign, until, settings, shape = sys.argv[1:]
launcher = LocalLauncher(read_settings(json.loads(settings), "c"), Path(state))
command = ("sh", "-c", f"echo $$ > {sign}; read code < {cwd}/end; exit $code")
launch, nodes = Launch(argv=command, cwd=cwd), {"n1": 1}
spec = PartSpec(
    job="1", attempt=1, part=0, cluster="c", launch=launch, nodes=nodes, all_nodes=nodes,
    first_rank=0, size=1, lease_s=60.0, shape=Shape(**json.loads(shape)),
)
launcher.claim(spec)
while until != "claimed":
    report = launcher.poll()[0]
    if report.state == until:
        break
    if report.state is PartState.READY:
        launcher.go(spec.key)
    select.select([launcher.fileno()], [], [], 0.2)
print("there", flush=True)
sys.stdin.read()
"""


def executor_killed(
    tmp_path: Path,
    sign: Signpost,
    until: str,
    settings: object = NODES,
    shape: Shape = ONE_SLOT,
) -> Path:
    """Run an executor until its part is so far, kill it, and return the state folder."""
    cwd, state = tmp_path / "work", tmp_path / "state"
    cwd.mkdir()
    os.mkfifo(cwd / "end")
    words = [str(state), str(cwd), str(sign.path), until, json.dumps(settings)]
    with subprocess.Popen(
        [sys.executable, "-c", EXECUTOR, *words, json.dumps(to_builtins(shape))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as executor:
        assert executor.stdout is not None
        assert executor.stdout.readline() == "there\n"
        executor.kill()
    return state


@pytest.mark.parametrize("until", ["claimed", "ready", "running"])
def test_parts_are_adopted_after_a_killed_executor(
    tmp_path: Path, sign: Signpost, until: str
) -> None:
    executor_killed(tmp_path, sign, until)
    bed = LaunchTestbed(tmp_path)
    (report,) = bed.launcher.adopt()
    assert report.key == PartKey(job="1", attempt=1, part=0)
    assert not report.is_ended or until == "claimed"
    if until == "running":
        assert report.state is PartState.RUNNING
        assert report.started is not None
        bed.launcher.go(report.key)  # told again, since the daemon cannot know
    with pytest.raises(ClaimRefusedError, match="n1"):  # its slots are still taken
        bed.launcher.claim(bed.spec("true", job="2", nodes=(("n1", 4),)))
    bed.wait_one(report.key, lambda r: r.state is not PartState.PREPARING)
    bed.launcher.go(report.key)
    sign.line()
    (tmp_path / "work" / "end").write_text("7\n")
    assert bed.ended(report.key).codes == (7,)
    bed.close()


def test_part_that_ended_while_no_executor_ran(tmp_path: Path, sign: Signpost) -> None:
    executor_killed(tmp_path, sign, "running")
    pid = int(sign.line())
    (tmp_path / "work" / "end").write_text("9\n")
    wait_dead(pid)
    bed = LaunchTestbed(tmp_path)
    report = bed.ended(PartKey(job="1", attempt=1, part=0))
    assert report.codes == (9,)
    assert report.started is not None
    bed.close()


def test_launcher_closed_and_opened_again(tmp_path: Path) -> None:
    bed = LaunchTestbed(tmp_path)
    spec = bed.spec("true")
    bed.claim(spec)
    bed.launcher.close()
    path = bed.state / spec.key.folder / "spec.json"
    record = json.loads(path.read_text())
    for key in ("shape", "memory_mb_per_proc"):
        del record[key]  # as of a release that knew of no shapes
    path.write_text(json.dumps(record))
    bed = LaunchTestbed(tmp_path)
    assert [report.state for report in bed.launcher.adopt()] == [PartState.READY]
    with pytest.raises(ClaimRefusedError, match="4 slots wanted, 3 of 4 free"):
        bed.launcher.claim(bed.spec("true", job="2", nodes=(("n1", 4),)))
    bed.launcher.go(spec.key)
    assert bed.ended(spec.key).codes == (0,)
    bed.close()


def test_dead_nest_is_replaced_and_its_runners_live(bed: LaunchTestbed, sign: Signpost) -> None:
    first = bed.shell(f"echo up > {sign.path}; read x < end", job="1")
    os.mkfifo(bed.cwd / "end")
    bed.start(first)
    server = bed.launcher._fork_server.pid
    os.kill(server, signal.SIGKILL)
    wait_dead(server)
    assert bed.run(bed.spec("true", job="2")).codes == (0,)
    assert bed.report(first.key).state is PartState.RUNNING
    sign.line()
    (bed.cwd / "end").write_text("x\n")
    assert bed.ended(first.key).codes == (0,)


def test_slots_are_kept_by_what_could_not_be_ended(tmp_path: Path) -> None:
    bed = LaunchTestbed(tmp_path)
    spec = bed.spec("true", nodes={"n1": 1})
    bed.run(spec)
    bed.launcher.close()
    folder = bed.state / spec.key.folder
    status = StatusFile(str(folder))
    status.open()
    end = status.read(END)
    assert end is not None
    status.write(END, end | {"left": 17})
    os.close(status.fd)
    lock = os.open(folder / "lock", os.O_RDWR)
    fcntl.flock(lock, fcntl.LOCK_EX)

    adapter = open_local(bed.settings, bed.state)
    assert isinstance(adapter.launcher, LocalLauncher)
    bed.launcher = adapter.launcher
    assert [report.reason for report in bed.launcher.adopt()] == ["exited"]  # the job is over
    why = "17 processes of job 1 could not be ended"
    kept, other = adapter.reader.read().nodes[:2]
    assert (kept.state, kept.reason) == (NodeState.DRAINING, why)
    assert (other.state, other.reason) == (NodeState.UP, "")
    with pytest.raises(AdapterError, match=f"{why}; its slots are kept"):
        bed.launcher.forget(spec.key)
    wide = bed.spec("true", job="2", nodes={"n1": 4})
    with pytest.raises(ClaimRefusedError, match="3 of 4 free"):
        bed.launcher.claim(wide)

    os.close(lock)  # the last of them has gone
    assert adapter.reader.read().nodes[0].state is NodeState.UP
    bed.launcher.forget(spec.key)
    assert bed.run(wide).codes == (0,) * 4
    bed.close()


@pytest.mark.skipif(not cgroup.own(), reason="no cgroup can be made here")
def test_a_cgroup_of_no_part_is_ended_at_the_start(tmp_path: Path) -> None:
    bed = LaunchTestbed(tmp_path)
    assert isinstance(bed.launcher, LocalLauncher)
    stale = Path(cgroup.make(f"{bed.launcher._groups}stale"))
    bed.launcher.close()
    with subprocess.Popen(["sleep", "600"]) as forgotten:
        (stale / "cgroup.procs").write_text(str(forgotten.pid))
        LaunchTestbed(tmp_path).close()
        assert forgotten.wait(LIMIT_S) == -signal.SIGKILL
    LaunchTestbed(tmp_path).close()
    assert not stale.exists()


def test_claim_that_no_runner_took(bed: LaunchTestbed) -> None:
    """The fork server is dead before it has looked at the claim: refused, not waited for."""
    server = bed.launcher._fork_server.pid
    os.kill(server, signal.SIGSTOP)
    spec = bed.spec("touch", "began")
    bed.launcher.claim(spec)
    assert bed.report(spec.key).state is PartState.PREPARING
    os.kill(server, signal.SIGKILL)
    report = bed.ended(spec.key)
    assert (report.state, report.reason) == (PartState.REFUSED, "runner_died")
    assert not (bed.cwd / "began").exists()


def left_behind(root: Path, status: bytes) -> PartKey:
    """What a loss of power leaves: no runner, and a spec that never reached the disk."""
    key = PartKey(job="5", attempt=3, part=1)
    folder = root / "state" / key.folder
    folder.mkdir(parents=True)
    (folder / "spec.json").touch()
    (folder / "status").write_bytes(status)
    return key


@pytest.mark.parametrize(
    ("start", "state", "reason"),
    [
        (b"", PartState.REFUSED, "runner_died"),
        (encoded({"boot": "another"}), PartState.LOST, "restarted"),
        (b"\x01half of a rec", PartState.LOST, "runner_died"),  # torn: it may have run
    ],
)
def test_parts_after_a_loss_of_power(
    tmp_path: Path, start: bytes, state: PartState, reason: str
) -> None:
    key = left_behind(tmp_path, b"\0" * (START * PAGE) + start)
    (tmp_path / "state" / ".new-abc").mkdir()
    bed = LaunchTestbed(tmp_path)
    (report,) = bed.launcher.adopt()
    assert (report.key, report.state, report.reason) == (key, state, reason)
    assert not (tmp_path / "state" / ".new-abc").exists()
    bed.launcher.forget(key)
    bed.close()


def test_news_of_an_end_that_no_disk_took(bed: LaunchTestbed, sign: Signpost) -> None:
    spec = bed.shell(f"echo up > {sign.path}; sleep 600")
    bed.start(spec)
    end = {"state": "finished", "reason": "exited", "detail": "", "codes": [4], "ended": 1.0}
    line = f"{spec.key.folder} ".encode() + encoded(end)
    (bed.state / "news").write_bytes(b"nonsense\n\xff\xfe x\n" + line)
    assert bed.ended(spec.key).codes == (4,)
    os.kill(bed.runner_pid(spec.key), signal.SIGTERM)


def test_descriptor_is_readable_when_there_is_news(bed: LaunchTestbed) -> None:
    spec = bed.spec("true")
    bed.launcher.claim(spec)
    assert select.select([bed.launcher.fileno()], [], [], LIMIT_S)[0]
    assert bed.report(spec.key).state is PartState.READY
    assert not select.select([bed.launcher.fileno()], [], [], 0)[0]


def test_folder_that_somebody_removed(bed: LaunchTestbed, sign: Signpost) -> None:
    spec = bed.shell(f"echo $$ > {sign.path}; sleep 600")
    bed.start(spec)
    pid = int(sign.line())
    shutil.rmtree(bed.state / spec.key.folder)
    report = bed.ended(spec.key)
    assert (report.state, report.reason) == (PartState.LOST, "state_removed")
    wait_dead(pid)
    bed.launcher.forget(spec.key)
    assert bed.launcher.poll() == ()


# ---- full disks ------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    with mounted(tmp_path / "disk", "size=512k") as disk:
        yield disk


def fill(path: Path) -> None:
    with contextlib.suppress(OSError), open(path, "wb", buffering=0) as file:
        while file.write(b"x" * 4096):
            pass


def test_exit_code_arrives_from_a_full_disk(tmp_path: Path, small_disk: Path) -> None:
    bed = LaunchTestbed(small_disk)
    bed.cwd = tmp_path
    first = bed.spec("sh", "-c", "exit 6", nodes=(("n1", 2),))
    assert bed.claim(first).state is PartState.READY
    fill(small_disk / "filler")
    with pytest.raises(ClaimRefusedError) as caught:
        bed.launcher.claim(bed.spec("true", job="2"))
    assert caught.value.reason == "state_unwritable"
    bed.launcher.go(first.key)
    assert bed.ended(first.key).codes == (6, 6)
    bed.launcher.forget(first.key)
    (small_disk / "filler").unlink()
    assert bed.run(bed.spec("true", job="2")).codes == (0,)  # it recovers
    bed.close()
