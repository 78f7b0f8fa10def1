"""Parts of other users on this machine: whose rights they have, and what stays closed to them."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from coalloc.model.sites.parts import Member, PartKey, PartState
from coalloc.policies.warming import RIGID
from tests.support.launch_bed import LaunchTestbed
from tests.support.live_site import Running
from tests.support.multi_user import STRAY, as_uid

NOBODY = 65534
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root runs jobs of other users")


@pytest.fixture
def open_root() -> Iterator[Path]:
    """A folder that other users can enter."""
    path = Path(tempfile.mkdtemp(prefix="coalloc-test-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


@pytest.fixture
def user_bed(open_root: Path) -> Iterator[LaunchTestbed]:
    bed = LaunchTestbed(open_root)
    os.chown(bed.cwd, NOBODY, -1)
    yield bed
    bed.close()


@needs_root
def test_runs_as_the_user(user_bed: LaunchTestbed) -> None:
    bed = user_bed
    account = pwd.getpwuid(NOBODY)
    script = "#!/bin/sh\nid -u; id -g; id -G; umask; echo $HOME $USER $LOGNAME $1\n"
    script += 'cat "$COALLOC_HOSTFILE"; ls -ln "$0"\n'
    env = {"HOME": "/root", "USER": "root", "PATH": os.environ["PATH"]}
    spec = bed.spec("job.sh", "x", script=script, env=env, uid=NOBODY)
    assert bed.run(spec).codes == (0,)
    lines = bed.output().splitlines()
    groups = os.getgrouplist(account.pw_name, account.pw_gid)
    assert lines[:4] == [str(NOBODY), str(account.pw_gid), " ".join(map(str, groups)), "0022"]
    assert lines[4] == f"{account.pw_dir} nobody nobody x"
    assert lines[5] == "n1 slots=1"
    assert lines[6].split()[2] == "0", "whoever owns a file can enlarge it"
    output = (bed.cwd / "coalloc-1.out").stat()
    assert (output.st_uid, output.st_mode & 0o777) == (NOBODY, 0o644)


@needs_root
def test_a_member_behind_another_has_the_users_rights_for_good(user_bed: LaunchTestbed) -> None:
    """The runner, which is root's, is the user's only while it starts one."""
    bed = user_bed
    text = "grep -E '^(Uid|Gid|Groups|CapPrm|CapEff|CapInh|CapAmb)' /proc/self/status; umask"
    later = Member(job="1_1", attempt=1, array_index=1, stdout="second.out")
    spec = bed.shell(text, job="1_0", stdout="first.out", members=(later,), uid=NOBODY)
    bed.start(spec)
    key = PartKey(job="1_1", attempt=1, part=0)
    report = bed.ended(key)
    assert (report.state, report.exit_code) == (PartState.FINISHED, 0), report
    assert bed.output("second.out") == bed.output("first.out")
    assert (bed.cwd / "second.out").stat().st_uid == NOBODY
    assert f"Uid:\t{NOBODY}\t{NOBODY}\t{NOBODY}\t{NOBODY}\n" in bed.output("second.out")
    ended = bed.ended(spec.key)
    assert ended.exit_code == 0


@needs_root
def test_nothing_is_done_for_a_user_with_roots_rights(
    user_bed: LaunchTestbed, tmp_path: Path
) -> None:
    """Links and folders of the user lead nowhere the user could not go."""
    bed = user_bed
    secret = tmp_path / "secret"
    secret.write_text("untouched")
    (bed.cwd / "link").symlink_to(secret)
    report = bed.claim(bed.spec("true", uid=NOBODY, stdout="link"))
    assert report.reason == "output_unwritable"
    assert secret.read_text() == "untouched"
    assert bed.claim(bed.spec("true", job="2", uid=NOBODY, cwd="/root")).reason == "cwd_missing"
    private = tmp_path / "tool"
    private.write_text("#!/bin/sh\n")
    private.chmod(0o700)
    report = bed.claim(bed.spec(str(private), job="3", uid=NOBODY))
    assert report.reason in {"not_executable", "not_found"}
    state = bed.state / bed.spec("true").key.folder
    command = f"cat {state}/spec.json || echo go > {state}/barrier || ls {bed.state}"
    assert bed.run(bed.shell(command, job="4", uid=NOBODY)).exit_code != 0


@needs_root
def test_state_folder_that_the_user_cannot_enter(user_bed: LaunchTestbed) -> None:
    user_bed.state.chmod(0o700)
    report = user_bed.claim(user_bed.spec("job.sh", script="#!/bin/sh\n", uid=NOBODY))
    assert (report.state, report.reason) == (PartState.REFUSED, "state_unreachable")


@needs_root
def test_another_users_processes_are_ended(user_bed: LaunchTestbed) -> None:
    spec = user_bed.shell("trap '' TERM; echo up; sleep 600 & wait", uid=NOBODY, grace_s=0.1)
    user_bed.start(spec)
    user_bed.launcher.abort(spec.key)
    assert user_bed.ended(spec.key).reason == "aborted"


HOSTILE = """\
cd "$(dirname "$COALLOC_HOSTFILE")"
for way in "touch new" "mkdir new" "chmod 777 ." "chmod 777 script" "chmod 777 hostfile" \
    "mv script new" "rm -f script" "ln -s /etc/passwd new"; do
    $way 2>/dev/null && echo "did $way"
done
{ echo >> script; } 2>/dev/null && echo "did write"
{ echo >> hostfile; } 2>/dev/null && echo "did write"
find "$PWD/.." -writable ! -type l 2>/dev/null
echo end
"""


@needs_root
def test_a_job_can_write_nothing_in_the_executors_state(user_bed: LaunchTestbed) -> None:
    spec = user_bed.shell(HOSTILE, script=f"#!/bin/sh\n{HOSTILE}", uid=NOBODY)
    assert user_bed.run(spec).codes == (0,)
    assert user_bed.output() == "end\n"


@needs_root
def test_another_user_cannot_read_a_script(user_bed: LaunchTestbed) -> None:
    mine = user_bed.spec("job.sh", script="#!/bin/sh\nsleep 600\n", uid=NOBODY)
    user_bed.start(mine)
    user_bed.cwd.chmod(0o777)
    path = user_bed.state / mine.key.folder / "user" / "script"
    theirs = user_bed.shell(
        f"cat {path} 2>/dev/null; ls {path.parent} 2>/dev/null; echo end",
        job="2",
        uid=1,
        stdout="%j.out",
    )
    assert user_bed.run(theirs).codes == (0,)
    assert (user_bed.cwd / "2.out").read_text() == "end\n"
    user_bed.launcher.abort(mine.key)


def test_state_is_closed_to_others(bed: LaunchTestbed) -> None:
    spec = bed.spec("true", script="#!/bin/sh\n")
    bed.claim(spec)
    folder = bed.state / spec.key.folder
    modes = {
        path.relative_to(folder).as_posix(): path.stat().st_mode & 0o777
        for path in folder.rglob("*")
    }
    assert modes == {
        "spec.json": 0o600,
        "lock": 0o600,
        "barrier": 0o600,
        "status": 0o600,
        "user": 0o700,
        "user/script": 0o700,
        "user/hostfile": 0o600,
    }


class Stray(Running):
    """A site whose processes run under a uid that has no account, and without an environment."""

    def before(self, name: str) -> Sequence[str]:
        return (*as_uid(STRAY), "env", "-i", f"PATH={os.environ['PATH']}")


@needs_root
@pytest.mark.slow
def test_kernels_are_compiled_where_nothing_can_be_kept(tmp_path: Path) -> None:
    for folder in (tmp_path, *tmp_path.parents[:2]):
        folder.chmod(0o777)
    (tmp_path / "s.json").write_text(json.dumps(RIGID))
    python = (sys.executable, "-P", "-m", "coalloc.cli.main")
    done = subprocess.run(
        [*as_uid(STRAY), "env", "-i", *python, "solve", "--policy", "fcfs", "s.json"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr.count("no folder for compiled code can be written") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["s.json"]


@needs_root
@pytest.mark.slow
def test_a_daemon_runs_without_account_and_home(root: Path) -> None:
    site = Stray(root, clusters={"alpha": 1})
    for folder in (root, site.work):
        folder.chmod(0o777)
    with site:
        job = site.wait(site.submit(["sh", "-c", "id -u > uid"]))
        assert (job["state"], job["user"]) == ("completed", str(STRAY))
    assert (site.work / "uid").read_text() == f"{STRAY}\n"
