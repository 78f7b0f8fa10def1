"""Scripts as sbatch runs them, on this machine: started once, holding the slots of all."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from coalloc.adapters.base import ClaimRefusedError
from coalloc.model.sites.parts import PartSpec, PartState
from tests.support.launch_bed import LaunchTestbed, Signpost, wait_dead
from tests.support.live_site import Running

FOUR = (("n1", 1), ("n2", 3))


def script(bed: LaunchTestbed, text: str, **fields: Any) -> PartSpec:
    given = {"nodes": FOUR, "size": 4, "once": True, "script": f"#!/bin/sh\n{text}\n", **fields}
    return bed.spec("job.sh", "one", "two", **given)


def test_a_script_is_started_once(bed: LaunchTestbed) -> None:
    text = (
        'echo "$@" $COALLOC_SIZE $COALLOC_NODE ${RANK-no} ${COALLOC_RANK-no}\ncat $COALLOC_HOSTFILE'
    )
    report = bed.run(script(bed, f"{text}\nexit 7", stdout="out-%r"))
    assert (report.state, report.exit_code, report.codes) == (PartState.FINISHED, 7, (7,))
    assert report.detail == "its command exited with 7"
    assert bed.output("out-0").splitlines() == [
        "one two 4 n1 no no",
        "127.0.0.1 slots=4",
    ]
    assert [path.name for path in bed.cwd.iterdir()] == ["out-0"]


def test_it_holds_the_slots_of_all(bed: LaunchTestbed) -> None:
    spec = script(bed, "sleep 600", nodes=(("n1", 4), ("n2", 4)), size=8)
    bed.start(spec)
    with pytest.raises(ClaimRefusedError, match="n2"):
        bed.launcher.claim(bed.shell("true", job="2", nodes=(("n2", 1),)))
    bed.launcher.abort(spec.key)
    assert bed.ended(spec.key).codes == (-signal.SIGTERM,)
    assert bed.run(bed.shell("true", job="2", nodes=(("n2", 4),))).exit_code == 0


def test_the_end_takes_along_all_that_it_started(bed: LaunchTestbed, root: Path) -> None:
    sign, gate = Signpost(root / "sign"), root / "gate"
    os.mkfifo(gate)
    started = "".join(f"setsid sh -c 'echo $$ > {sign.path}; exec sleep 600' &\n" for _ in FOUR)
    for number, ending in enumerate(("wait", f"read line < {gate}"), 1):
        spec = script(bed, started + ending, job=str(number))
        bed.start(spec)
        pids = [int(sign.line()) for _ in FOUR]
        if ending == "wait":
            bed.launcher.abort(spec.key, reason="cancelled")
        else:
            gate.write_text("go\n")
        report = bed.ended(spec.key)
        assert report.reason == ("aborted" if ending == "wait" else "exited")
        for pid in pids:
            wait_dead(pid)
    sign.close()


def test_the_time_limit_is_the_scripts(bed: LaunchTestbed) -> None:
    report = bed.run(script(bed, "sleep 600", time_limit=0.5))
    assert (report.reason, report.codes) == ("time_limit", (-signal.SIGTERM,))


@pytest.fixture(scope="module")
def site() -> Iterator[Running]:
    with (
        tempfile.TemporaryDirectory(prefix="co-", ignore_cleanup_errors=True) as root,
        Running(Path(root), clusters={"alpha": 2, "beta": 3}, slots=2) as running,
    ):
        yield running


def sbatch(site: Running, *words: str, text: str = "", code: int = 0) -> tuple[str, str]:
    """What the command prints, and what it says beside that."""
    queued = subprocess.run(
        [sys.executable, "-m", "coalloc.cli.main", "sbatch", "--config", str(site.config), *words],
        cwd=site.work,
        env={"PATH": os.environ["PATH"]},
        input=text,
        capture_output=True,
        text=True,
        check=False,
    )
    assert queued.returncode == code, queued.stderr
    return queued.stdout.strip(), queued.stderr.strip()


def test_sbatch_from_the_command_to_the_output(site: Running) -> None:
    text = (
        "#!/bin/bash\n#SBATCH -J model --ntasks=2\n#SBATCH -o %x-%A_%a.out -t 5\n"
        "echo start $COALLOC_ARRAY_TASK_ID $COALLOC_SIZE\nexit $COALLOC_ARRAY_TASK_ID\n"
    )
    said, warned = sbatch(site, "-a", "0,3", "-n5", text=text)
    number = said.removeprefix("Submitted batch job ")
    assert (number.isdecimal(), warned) == (True, "")
    for index in (0, 3):
        details = site.wait(f"{number}_{index}")
        output = (site.work / f"model-{number}_{index}.out").read_text()
        assert (details["exit_code"], output) == (index, f"start {index} 5\n")
        assert [part["cluster"] for part in details["parts"]] == ["beta"], "alpha has four slots"


def test_a_job_that_no_cluster_can_hold_is_refused(site: Running) -> None:
    _, refused = sbatch(site, "-n", "7", "--wrap", "true", code=1)
    assert "needs 7 processes with 1 CPU each; the largest cluster has room for 6" in refused


def test_wait_ends_with_the_scripts_exit_code(site: Running) -> None:
    said, _ = sbatch(site, "--parsable", "-W", text="#!/bin/sh\nexit 5\n", code=5)
    assert site.job(said)["state"] == "failed"
