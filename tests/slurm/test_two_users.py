"""Two users of the same two clusters, each by a login of his own, under one daemon."""

from __future__ import annotations

import os
import subprocess
from functools import partial
from itertools import accumulate
from pathlib import Path
from pwd import struct_passwd
from typing import Any

import pytest

from tests.support.live_site import as_account
from tests.support.multi_user import MultiUser
from tests.testbeds.slurm import alike, bed
from tests.testbeds.ssh import PYTHON, config_of, login_nodes, login_user, masters, missing, pids_of

pytestmark = pytest.mark.skipif(bool(missing()), reason=f"ssh's testbed needs {missing()}")

NODES = 4
"""Of each cluster, with a slot each."""
JOBS, PROCS = 6, 3
"""Of each user: a job takes more than half of a cluster."""
RUN = 'echo "$(id -un) $COALLOC_CLUSTER" >> lines-$COALLOC_JOB_ID; sleep 1'


def typed(user: struct_passwd, site: MultiUser, *words: str) -> str:
    """Output of a command of ours, run as the user."""
    command = [*as_account(user), PYTHON, "-m", "coalloc.cli.main", *words]
    env = {"PATH": os.environ["PATH"], "COALLOC_CONFIG": str(site.config)}
    done = subprocess.run(
        command, env=env, cwd=user.pw_dir, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def has_left(user: struct_passwd) -> bool:
    """Tell whether the user has no process of ours and no connection left."""
    return not (pids_of(user, "coalloc") or masters(user))


def most_at_once(jobs: list[dict[str, Any]], machine: str) -> int:
    """Processes that have run together on a machine, whoever's."""
    changes = [
        (job[when], sign * sum(part["nodes"].values()))
        for job in jobs
        for part in job["parts"]
        if part["cluster"].partition("@")[0] == machine
        for when, sign in (("started", 1), ("ended", -1))
    ]
    return max(accumulate(int(count) for _, count in sorted(changes)))


def test_jobs_of_two_users_run_as_each_of_them_and_leave_nothing(root: Path) -> None:
    with (
        bed(*alike(2, NODES)) as running,
        login_user(root, "ada") as ada,
        login_user(root, "ben") as ben,
    ):
        steering = {each.name: {"SLURM_CONF": str(each.conf)} for each in running}
        whole = MultiUser(root / "site", clusters={"here": 1})
        reader = f"a@{ada.pw_name}"  # of a for both; of b each reads for himself
        text = whole.config.read_text().replace("[readings]", f"[readings]\nreaders = ['{reader}']")
        whole.config.write_text(text)
        with login_nodes(root / "ssh", ada.pw_name, steering) as nodes, whole as site:
            configs = {ada: nodes["a"].config, ben: config_of(ben, nodes["a"], root / "ben-ssh")}
            for user, config in configs.items():
                typed(user, site, "keys", "new")
                for name in steering:
                    said = typed(user, site, "connect", name, "--ssh-option", f"Include={config}")
                    assert "logged in (key), one connection; slurm" in said
            site.until(site.is_complete)
            read_by = {each["cluster"]: each["read_by"] for each in site.ask("nodes")["clusters"]}
            others = dict.fromkeys((reader, *(f"b@{user.pw_name}" for user in configs)), "")
            assert read_by == {"here": "", f"a@{ben.pw_name}": reader, **others}
            keys, jobs = {user: site.key(user.pw_name) for user in configs}, {}
            for user in [*configs] * JOBS:
                with site.asking(keys[user]) as asker:
                    launch = {"cwd": user.pw_dir}
                    body = site.submission(["sh", "-c", RUN], PROCS, launch=launch)
                    answer = asker.ask({"type": "submit", **body})
                assert answer["type"] == "done", answer
                jobs[str(answer["job"])] = user
            ended = {job: site.wait(job) for job in jobs}
            for job, user in jobs.items():
                assert ended[job]["state"] == "completed", ended[job]
                lines = Path(user.pw_dir, f"lines-{job}").read_text().split()
                assert set(lines[::2]) == {user.pw_name}
                assert {name.partition("@")[2] for name in lines[1::2]} <= {user.pw_name, ""}
                assert len(lines) == 2 * PROCS
            for name in steering:
                assert most_at_once([*ended.values()], name) <= NODES
            for user in configs:
                for name in steering:
                    assert "disconnected" in typed(user, site, "disconnect", name)
                site.until(partial(has_left, user))
            running.wait(lambda: all(each.is_idle() for each in running), "no job is left")
            assert [node.accepted for node in nodes.values()] == [2, 2]
