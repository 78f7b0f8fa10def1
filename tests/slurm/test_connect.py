"""``coalloc connect`` as it is typed: a login, a daemon of one's own, a job, nothing left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kernels import CACHE
from tests.testbeds.slurm import alike, bed
from tests.testbeds.ssh import login_nodes, login_user, missing, pids_with

pytestmark = pytest.mark.skipif(bool(missing()), reason=f"ssh's testbed needs {missing()}")


def test_from_a_login_to_a_job(root: Path) -> None:
    root.chmod(0o755)
    env = {**os.environ, "HOME": str(root), "XDG_CONFIG_HOME": str(root / "config")}
    env |= {f"{name}_DIRECTORY": str(root / name.lower()) for name in ("STATE", "RUNTIME")}
    env["CACHE_DIRECTORY"] = CACHE
    env.pop("COALLOC_CONFIG", None)

    def coalloc(*words: str) -> str:
        command = [sys.executable, "-m", "coalloc.cli.main", *words]
        done = subprocess.run(
            command, env=env, cwd=root, capture_output=True, text=True, timeout=120.0, check=False
        )
        return done.stdout + done.stderr

    with bed(*alike(1, 1)) as running, login_user(root, "ada") as ada:
        (cluster,) = running
        steering = {cluster.name: {"SLURM_CONF": str(cluster.conf)}}
        with login_nodes(root / "ssh", ada.pw_name, steering) as nodes:
            os.chown(nodes[cluster.name].config, 0, 0)
            option = f"Include={nodes[cluster.name].config}"
            said = coalloc("connect", cluster.name, "--name", "alpha", "--ssh-option", option)
            try:
                assert "logged in (key), one connection; slurm" in said
                assert "shared home: yes; reach the login node: yes" in said
                assert "executor started in the background" in said
                (root / "word").write_text("here\n")
                copies = ("--stage-in", "word:in/", "--stage-out", "who:back/")
                words = ("submit", "-n", "1", "-t", "1", "--wait", *copies, "--")
                told = coalloc(*words, "sh", "-c", "id -un > who; cat in/word; pwd")
                assert "Submitted job 1" in told
                assert (root / "back/who").read_text().strip() == ada.pw_name, told
                said_there, folder = (root / "coalloc-1.out").read_text().split()
                assert said_there == "here"
                assert folder.startswith(f"{ada.pw_dir}/.coalloc/")
                assert not Path(ada.pw_dir, ".coalloc").exists()
                assert "alpha" in coalloc("nodes")
                assert "executor runs already" in coalloc("connect", "alpha")
                assert nodes[cluster.name].accepted == 4, "and one for each copy"
            finally:
                assert "disconnected" in coalloc("disconnect", "alpha"), said
                assert not pids_with("coalloc.executor.main", str(root))
                for pid in pids_with("coalloc.daemon.main", str(root)):
                    os.kill(pid, signal.SIGTERM)
