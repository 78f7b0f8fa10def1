"""The Node.js client in examples/node, which knows docs/PROTOCOL.md and nothing else of coalloc."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO

import pytest

from coalloc.runtime.key_files import KeyFile, write_key
from coalloc.wire.curve import CurveClient
from tests.support.live_site import Running
from tests.support.multi_user import ADA, NOBODY, MultiUser

pytestmark = pytest.mark.slow

EXAMPLE = Path(__file__).parents[2] / "examples" / "node"
LIMIT_S = 60


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example in a folder of its own, with the module it needs."""
    if not (shutil.which("node") and shutil.which("npm")):
        pytest.skip("Node.js and npm are not installed")
    folder = Path(shutil.copytree(EXAMPLE, tmp_path_factory.mktemp("node") / "client"))
    install = ["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts"]
    try:
        subprocess.run(install, cwd=folder, capture_output=True, timeout=120, check=True)
        subprocess.run(
            ["node", "--input-type=module", "-e", 'import "zeromq"'],
            cwd=folder,
            capture_output=True,
            timeout=LIMIT_S,
            check=True,
        )
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        said = (error.stderr or b"").decode(errors="replace").strip().splitlines()
        pytest.skip(f"zeromq cannot be installed from npm: {said[0] if said else error}")
    return folder / "run.js"


class Node:
    """The command against one site."""

    def __init__(self, program: Path, site: Running, key: Path | None = None) -> None:
        self.program, self.site = program, site
        self.env: Mapping[str, str] = {
            "PATH": os.environ["PATH"],
            "COALLOC_ENDPOINT": site.endpoint,
            "COALLOC_EVENTS": f"ipc://{site.root}/run/events.sock",
            **({"COALLOC_KEY": str(key)} if key else {}),
        }

    def begin(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            ["node", str(self.program), *words],
            cwd=self.site.work,
            env=dict(self.env),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def __call__(self, *words: str) -> tuple[int, str, str]:
        with self.begin(*words) as process:
            out, err = process.communicate(timeout=LIMIT_S)
        return process.returncode, out.strip(), err.strip()


def until_kind(lines: IO[str], kind: str) -> list[str]:
    """Kinds of the events that are told up to this one."""
    kinds = []
    for line in lines:
        kinds.append(str(json.loads(line)["kind"]))
        if kinds[-1] == kind:
            return kinds
    raise AssertionError(f"the output ended after {kinds}")


@pytest.fixture(scope="module")
def site() -> Iterator[Running]:
    root = Path(tempfile.mkdtemp(prefix="co-"))
    with Running(root) as site:
        yield site
    shutil.rmtree(root, ignore_errors=True)


@pytest.fixture
def node(program: Path, site: Running) -> Node:
    return Node(program, site)


def test_a_job_over_two_clusters_is_submitted_and_followed_to_its_end(
    node: Node, site: Running
) -> None:
    shell = 'echo "rank $COALLOC_RANK of $COALLOC_SIZE"'
    code, job, _ = node("submit", "--procs", "6", "--", "sh", "-c", shell)
    assert code == 0
    code, told, said = node("follow", job)
    assert code == 0, said
    events = [json.loads(line) for line in told.splitlines()]
    kinds = [event["kind"] for event in events]
    assert kinds == ["job_submitted", "job_placed", "job_started", "job_ended"]
    assert events[1]["parts"] == ["alpha", "beta"]
    assert events[-1]["state"] == "completed"
    lines = (site.work / f"coalloc-{job}.out").read_text().splitlines()
    assert sorted(lines) == [f"rank {rank} of 6" for rank in range(6)]


def test_a_running_job_is_cancelled_while_it_is_followed(node: Node, site: Running) -> None:
    _, job, _ = node("submit", "--", "sleep", "1000")
    with node.begin("follow", job) as following:
        assert following.stdout
        until_kind(following.stdout, "job_started")
        assert node("cancel", job) == (0, job, "")
        assert until_kind(following.stdout, "job_ended") == ["job_cancelling", "job_ended"]
        assert following.wait(LIMIT_S) == 143
    assert site.job(job)["state"] == "cancelled"


def test_events_are_followed_over_a_restart_of_the_daemon(node: Node, site: Running) -> None:
    flag = site.work / "go"
    _, job, _ = node("submit", "--", "sh", "-c", f"until test -e {flag}; do sleep 0.1; done")
    with node.begin("follow", job) as following:
        assert following.stdout
        until_kind(following.stdout, "job_started")
        site.kill("coallocd", signal.SIGKILL)
        site.start_daemon()
        flag.touch()
        assert until_kind(following.stdout, "job_ended") == ["job_ended"]
        assert following.wait(LIMIT_S) == 0


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["submit", "--procs", "1000", "--", "true"], 1, "needs 1000 processes; 8 slots exist"),
        (["cancel", "999"], 1, "there is no job 999"),
        (["follow", "999"], 1, "there is no job 999"),
        (["--endpoint", "ipc:///nobody", "--timeout", "0.2", "cancel", "1"], 1, "within 0.2 s"),
        (["--key", "/nowhere", "cancel", "1"], 1, "no such file"),
        (["--timeout", "soon", "cancel", "1"], 2, "--timeout: a number above 0"),
        (["cancel"], 2, "usage: run.js"),
    ],
)
def test_what_is_refused_is_said(node: Node, words: list[str], code: int, said: str) -> None:
    ended, out, told = node(*words)
    assert (ended, out) == (code, "")
    assert said in told


@pytest.mark.skipif(os.geteuid() != 0, reason="only root is more than one user")
def test_a_key_is_shown_where_the_daemon_wants_one(program: Path, root: Path) -> None:
    with MultiUser(root) as site:
        ada = key_file(root / "ada.json", site.key(ADA))
        code, job, said = Node(program, site, ada)("submit", "--", "id", "-u")
        assert code == 0, said
        assert Node(program, site, ada)("follow", job)[0] == 0
        assert site.job(job)["user"] == ADA
        assert (site.work / f"coalloc-{job}.out").read_text().strip() == str(NOBODY)

        thief = key_file(root / "thief.json", site.unknown_key())
        code, _, said = Node(program, site, thief)("cancel", job)
        assert (code, said.endswith("refuses this key")) == (1, True), said
        code, _, said = Node(program, site)("cancel", job)
        assert code == 1
        assert "no key, or another daemon's" in said


def key_file(path: Path, calling: CurveClient) -> Path:
    """A key as `coalloc keys new` leaves it."""
    write_key(path, KeyFile(pair=calling.pair, server=calling.server))
    return path
