"""Real parts on this machine: what starts, what it sees, how it ends, what is said of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from coalloc.adapters.runner.status import END, PAGE
from coalloc.model.sites.parts import PartState
from tests.support.launch_bed import LaunchTestbed, Signpost, is_alive, wait_dead


def test_processes_run_and_end_with_their_codes(bed: LaunchTestbed) -> None:
    spec = bed.shell("exit $COALLOC_RANK", nodes=(("n1", 2), ("n2", 1)), first_rank=3, size=6)
    report = bed.run(spec)
    assert report.state is PartState.FINISHED
    assert report.codes == (3, 4, 5)
    assert report.exit_code == 5
    assert (report.reason, report.detail) == ("exited", "rank 3 exited with 3")
    assert report.started is not None
    assert report.ended is not None
    assert report.started <= report.ended
    assert report.max_rss_mb is not None
    assert report.max_rss_mb > 0


def test_death_by_a_signal_is_told_from_an_exit(bed: LaunchTestbed) -> None:
    report = bed.run(bed.shell("kill -SEGV $$"))
    assert report.codes == (-signal.SIGSEGV,)
    assert report.exit_code == 128 + signal.SIGSEGV
    assert (report.reason, report.detail) == ("signalled", "rank 0 was killed by SIGSEGV")


def test_nothing_runs_before_the_barrier_opens(bed: LaunchTestbed) -> None:
    spec = bed.spec("touch", "began")
    assert bed.claim(spec).state is PartState.READY
    assert not (bed.cwd / "began").exists()
    bed.launcher.go(spec.key)
    assert bed.ended(spec.key).codes == (0,)
    assert (bed.cwd / "began").exists()


def test_environment(bed: LaunchTestbed) -> None:
    spec = bed.spec(
        "env",
        job="12_3",
        attempt=2,
        part=1,
        nodes=(("n1", 1), ("n2", 2)),
        first_rank=4,
        size=7,
        all_nodes={"a1": 4, "n1": 1, "n2": 2},
        rendezvous="10.0.0.1:29500",
        env={"MINE": "a b", "NOTIFY_SOCKET": "/run/x", "COALLOC_RANK": "99", "BAD=": "1", "": "2"},
        stdout="env-%r",
    )
    assert bed.run(spec).codes == (0, 0, 0)
    seen = dict(line.split("=", 1) for line in bed.output("env-6").splitlines())
    expected = {
        "MINE": "a b",
        "COALLOC_JOB_ID": "12_3",
        "COALLOC_RANK": "6",
        "COALLOC_SIZE": "7",
        "COALLOC_PART": "1",
        "COALLOC_CLUSTER": "c",
        "COALLOC_NODELIST": "a1,n[1-2]",
        "COALLOC_RENDEZVOUS": "10.0.0.1:29500",
        "COALLOC_NODE": "n2",
        "MASTER_ADDR": "10.0.0.1",
        "MASTER_PORT": "29500",
        "RANK": "6",
        "WORLD_SIZE": "7",
        "LOCAL_RANK": "1",
        "LOCAL_WORLD_SIZE": "2",
        "PWD": str(bed.cwd),
    }
    assert {key: seen.get(key) for key in expected} == expected
    assert Path(seen["COALLOC_HOSTFILE"]).read_text() == "a1 slots=4\nn1 slots=1\nn2 slots=2\n"
    assert {"HOME", "USER", "PATH"} <= seen.keys()
    # the executor's own environment is not the job's
    assert not {"NOTIFY_SOCKET", "BAD", "", "PYTEST_CURRENT_TEST"} & seen.keys()


def test_a_process_inherits_nothing_of_the_runner(bed: LaunchTestbed) -> None:
    report = bed.run(
        bed.shell(
            "for fd in /proc/$$/fd/*; do readlink $fd; done;"
            "grep -E 'Sig(Blk|Ign)' /proc/self/status; umask; cat"
        )
    )
    assert report.codes == (0,)  # `cat` ends at once: nothing comes in
    out = bed.output()
    assert "pipe" not in out
    assert "lock" not in out
    assert "barrier" not in out
    assert "0022" in out
    masks = [int(line.split()[1], 16) for line in out.splitlines() if line.startswith("Sig")]
    # the C library keeps 32 and 33 for itself: whoever started the tests may have them ignored
    assert [mask & ~(0b11 << 31) for mask in masks] == [0, 0]


def test_ranks_append_to_one_file_or_to_their_own(bed: LaunchTestbed) -> None:
    both = (("n1", 2),)
    bed.run(bed.shell("echo out $COALLOC_RANK; echo err $COALLOC_RANK >&2", nodes=both))
    assert sorted(bed.output().splitlines()) == ["err 0", "err 1", "out 0", "out 1"]
    spec = bed.shell(
        "echo out; echo err >&2", job="2", nodes=both, stdout="%j-%r-100%%.out", stderr="%j.err"
    )
    bed.run(spec)
    assert bed.output("2-1-100%.out") == "out\n"
    assert bed.output("2.err") == "err\nerr\n"
    bed.run(bed.shell("echo again", job="3", stdout="2.err"))
    assert bed.output("2.err") == "err\nerr\nagain\n"  # nothing is ever overwritten


def test_script_runs_from_a_private_copy(bed: LaunchTestbed) -> None:
    script = '#!/bin/sh\necho "$1-$2"; ls -l "$0"; rm "$0"; echo still here\n'
    report = bed.run(bed.spec("job.sh", "a b", "c", script=script))
    assert report.codes == (0,)
    lines = bed.output().splitlines()
    assert lines[0] == "a b-c"
    assert lines[1].startswith("-rwx------")
    assert lines[2] == "still here"


def test_script_without_a_first_line_is_a_shell_script(bed: LaunchTestbed) -> None:
    assert bed.run(bed.spec("job", "7", script='echo "got $1"\n')).codes == (0,)
    assert bed.output() == "got 7\n"


def test_pinning(tmp_path: Path) -> None:
    cpu = max(os.sched_getaffinity(0))
    bed = LaunchTestbed(
        tmp_path, {"nodes": ["free", {"name": "pinned", "slots": 2, "cpus": [str(cpu)]}]}
    )
    code = "import os; print(sorted(os.sched_getaffinity(0)))"
    spec = bed.spec(
        sys.executable, "-c", code, nodes=(("free", 1), ("pinned", 1)), stdout="cpus-%r"
    )
    assert bed.run(spec).codes == (0, 0)
    assert bed.output("cpus-0") == f"{sorted(os.sched_getaffinity(0))}\n"
    assert bed.output("cpus-1") == f"[{cpu}]\n"
    bed.close()


# ---- the end: limits, orders, and what tries to stay -----------------------------------------


def test_time_limit(bed: LaunchTestbed, sign: Signpost) -> None:
    report = bed.run(bed.spec("sleep", "600", time_limit=0.2))
    assert report.reason == "time_limit"
    assert report.codes == (-signal.SIGTERM,)
    assert report.detail == "ran longer than its limit of 0.2 s"


def test_an_abort_lets_a_job_clean_up(bed: LaunchTestbed, sign: Signpost) -> None:
    text = f"trap 'echo cleaned; exit 3' TERM; echo up > {sign.path}; while :; do sleep 0.05; done"
    spec = bed.shell(text)
    bed.start(spec)
    assert sign.line() == "up"
    bed.launcher.abort(spec.key)
    report = bed.ended(spec.key)
    assert report.reason == "aborted"
    assert report.codes == (3,)
    assert "cleaned" in bed.output()


def test_an_abort_kills_who_ignores_the_signal(bed: LaunchTestbed, sign: Signpost) -> None:
    spec = bed.shell(
        f"trap '' TERM; echo up > {sign.path}; while :; do sleep 0.05; done", grace_s=0.1
    )
    bed.start(spec)
    sign.line()
    bed.launcher.abort(spec.key)
    report = bed.ended(spec.key)
    assert report.codes == (-signal.SIGKILL,)
    assert report.reason == "aborted"


STRAY = """
import os, signal, sys
written, writing = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.closerange(0, 3)
        with open(sys.argv[1], "w") as file:
            file.write(f"{os.getpid()}\\n")
        os.close(writing)
        while True:
            signal.pause()
    os._exit(0)
os.close(writing)
os.read(written, 1)  # ends when the stray has told its number, and not before
if sys.argv[2] == "stay":
    signal.pause()
"""


@pytest.mark.parametrize(
    "parent",
    [
        "stay",  # aborted while its parent runs
        "leave",  # the parent ends by itself: the stray does not outlive the part
    ],
)
def test_grandchildren_in_sessions_of_their_own_are_killed(
    bed: LaunchTestbed, sign: Signpost, parent: str
) -> None:
    spec = bed.spec(sys.executable, "-c", STRAY, str(sign.path), parent, grace_s=0.1)
    bed.start(spec)
    stray = int(sign.line())
    if parent == "stay":
        assert is_alive(stray)
        bed.launcher.abort(spec.key)
    report = bed.ended(spec.key)
    assert not is_alive(stray)
    assert report.reason == ("aborted" if parent == "stay" else "exited")


def test_processes_that_multiply_are_ended(bed: LaunchTestbed, sign: Signpost) -> None:
    """Each leaves a new one behind as fast as it can, in a session of its own."""
    code = (
        "import os, signal, sys\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "os.set_inheritable(os.open(sys.argv[2], os.O_WRONLY), True)\n"
        "open(sys.argv[1], 'w').write('up\\n')\n"
        "while True:\n"
        "    if os.fork(): os._exit(0)\n"
        "    os.setsid()\n"
    )
    held = Path(f"{sign.path}.held")
    os.mkfifo(held, 0o666)
    last = os.open(held, os.O_RDONLY | os.O_NONBLOCK)
    spec = bed.shell(
        f'{sys.executable} -c "{code}" {sign.path} {held}; exec sleep 600', grace_s=0.1
    )
    bed.start(spec)
    sign.line()
    with pytest.raises(BlockingIOError):
        os.read(last, 1)
    bed.launcher.abort(spec.key)
    report = bed.ended(spec.key)
    assert report.reason == "aborted"
    assert "could not be killed" not in report.detail
    # The end of the pipe: nobody is left that holds its other side.
    assert os.read(last, 1) == b""
    os.close(last)


def test_stopped_processes_are_ended_too(bed: LaunchTestbed, sign: Signpost) -> None:
    spec = bed.shell(f"echo $$ > {sign.path}; kill -STOP $$; exit 5")
    bed.start(spec)
    sign.line()
    bed.launcher.abort(spec.key)
    assert bed.ended(spec.key).reason == "aborted"


def test_abort_before_the_start(bed: LaunchTestbed) -> None:
    spec = bed.spec("touch", "began")
    bed.launcher.claim(spec)
    bed.launcher.abort(spec.key, "another part\nwas refused")  # it may not even be ready
    report = bed.ended(spec.key)
    assert report.state is PartState.REFUSED
    assert (report.reason, report.detail) == ("aborted", "another part was refused")
    bed.launcher.go(spec.key)  # too late, and harmless
    assert bed.report(spec.key) == report
    assert not (bed.cwd / "began").exists()


def test_abort_after_the_start_ends_the_processes(bed: LaunchTestbed) -> None:
    spec = bed.spec("sleep", "600")
    bed.start(spec)
    bed.launcher.abort(spec.key, "superseded")
    report = bed.ended(spec.key)
    assert report.state is PartState.FINISHED
    assert (report.reason, report.codes) == ("aborted", (-signal.SIGTERM,))


def test_lease_expires_and_starts_nothing(bed: LaunchTestbed) -> None:
    spec = bed.spec("touch", "began", lease_s=0.3)
    bed.launcher.claim(spec)
    report = bed.ended(spec.key)
    assert report.state is PartState.REFUSED
    assert (report.reason, report.detail) == ("expired", "not renewed for 0.3 s")
    assert not (bed.cwd / "began").exists()


def test_go_after_the_lease_of_a_runner_that_was_held_up(bed: LaunchTestbed) -> None:
    spec = bed.spec("touch", "began", lease_s=2.0)
    assert bed.claim(spec).state is PartState.READY
    runner = bed.runner_pid(spec.key)
    os.kill(runner, signal.SIGSTOP)
    bed.launcher.go(spec.key)
    # The order lies in the FIFO; the runner sees it together with the end of its lease.
    wait_lease(2.1)
    os.kill(runner, signal.SIGCONT)
    assert bed.ended(spec.key).reason == "expired"
    assert not (bed.cwd / "began").exists()


def wait_lease(seconds: float) -> None:
    """Let a lease run out: the passing of time is the event."""
    subprocess.run(["sleep", str(seconds)], check=True)


def test_renewed_lease_stands(bed: LaunchTestbed) -> None:
    spec = bed.spec("true", lease_s=2.0)
    assert bed.claim(spec).state is PartState.READY
    for _ in range(12):  # longer than the lease in all
        wait_lease(0.2)
        bed.launcher.renew()
    assert bed.report(spec.key).state is PartState.READY
    bed.launcher.go(spec.key)
    assert bed.ended(spec.key).codes == (0,)


def test_second_go_is_harmless(bed: LaunchTestbed, sign: Signpost) -> None:
    spec = bed.shell(f"echo up >> runs; echo up > {sign.path}; read x < {bed.cwd}/end")
    os.mkfifo(bed.cwd / "end")
    bed.start(spec)
    sign.line()
    bed.launcher.go(spec.key)
    bed.launcher.go(spec.key)
    (bed.cwd / "end").write_text("now\n")
    assert bed.ended(spec.key).codes == (0,)
    assert bed.output("runs") == "up\n"


def test_killed_runner_is_lost_and_takes_its_processes_along(
    bed: LaunchTestbed, sign: Signpost
) -> None:
    spec = bed.spec(sys.executable, "-c", STRAY, str(sign.path), "stay")
    bed.start(spec)
    stray = int(sign.line())
    os.kill(bed.runner_pid(spec.key), signal.SIGKILL)
    report = bed.ended(spec.key)
    assert report.state is PartState.LOST
    assert report.reason == "runner_died"
    assert report.started is not None
    wait_dead(stray)
    assert bed.report(spec.key) == report


def test_runner_killed_at_the_barrier_started_nothing(bed: LaunchTestbed) -> None:
    spec = bed.spec("touch", "began")
    bed.claim(spec)
    os.kill(bed.runner_pid(spec.key), signal.SIGKILL)
    report = bed.ended(spec.key)
    assert report.state is PartState.REFUSED
    assert report.reason == "runner_died"
    assert not (bed.cwd / "began").exists()


def test_process_killed_at_the_barrier(bed: LaunchTestbed) -> None:
    spec = bed.spec("true", nodes=(("n1", 2),))
    bed.claim(spec)
    runner = bed.runner_pid(spec.key)
    children = Path(f"/proc/{runner}/task/{runner}/children").read_text().split()
    os.kill(int(children[1]), signal.SIGKILL)
    assert bed.ended(spec.key).reason == "rank_died"


def test_terminated_runner_ends_its_part_in_good_order(bed: LaunchTestbed) -> None:
    spec = bed.spec("sleep", "600")
    bed.start(spec)
    os.kill(bed.runner_pid(spec.key), signal.SIGTERM)
    report = bed.ended(spec.key)
    assert (report.reason, report.codes) == ("cancelled", (-signal.SIGTERM,))


def test_exit_code_needs_no_more_space(bed: LaunchTestbed, sign: Signpost) -> None:
    """The file of the status has its full size before anything starts, and keeps it."""
    spec = bed.spec("sh", "-c", "exit 3", nodes=(("n1", 4), ("n2", 4)))
    bed.claim(spec)
    status = bed.state / spec.key.folder / "status"
    before = status.stat()
    bed.launcher.go(spec.key)
    assert bed.ended(spec.key).codes == (3,) * 8
    after = status.stat()
    assert (before.st_size, before.st_blocks) == (after.st_size, after.st_blocks)
    assert after.st_size > END * PAGE
