"""Users whom the kernel names: their keys, jobs, files and clusters are theirs, and root's none."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import stat
from collections.abc import Iterator

import pytest

from coalloc.client import enrolment
from tests.integration.test_security import site
from tests.support.multi_user import ADA, BOB, NOBODY, MultiUser

__all__ = ["site"]

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root is more than one user")


@contextlib.contextmanager
def as_user(uid: int) -> Iterator[None]:
    """Be another user, as far as the kernel tells whom this process connects to."""
    os.setegid(uid)
    os.seteuid(uid)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)


def test_enrolment_goes_by_the_kernels_word(site: MultiUser) -> None:
    key = site.unknown_key()
    public = key.pair.public

    def ask(line: str) -> str:
        """One line as the user nobody, whom the kernel names where he connects."""
        with socket.socket(socket.AF_UNIX) as connection:
            with as_user(NOBODY):
                connection.connect(str(site.enrolment))
            connection.settimeout(10.0)
            connection.sendall(line.encode() + b"\n")
            return connection.makefile().readline()

    for claim in (f'"user": "{BOB}"', '"role": "operator"', '"role": "executor"'):
        line = f'{{"verb": "authorize", "key": "{public}", "uid": 1, {claim}}}'
        assert f"{ADA} may enrol keys of his own" in ask(line)
    assert site.audited("enrolment_refused", "may enrol keys of his own")["uid"] == NOBODY
    claimed = ask(f'{{"verb": "authorize", "key": "{public}", "uid": 1}}')
    assert "challenge" in json.loads(claimed), "without the private half nothing is enrolled"
    with as_user(NOBODY):
        grant = enrolment.ask(
            site.enrolment, "authorize", pair=key.pair, key=public, uid=1, user=ADA
        )
    assert grant["key"]["uid"] == NOBODY
    bobs = site.key(BOB).pair.public
    assert "belongs to another user" in ask(f'{{"verb": "authorize", "key": "{bobs}"}}')
    assert "no key that you may revoke" in ask(f'{{"verb": "revoke", "key": "{bobs}"}}')
    assert bobs not in ask('{"verb": "list"}')
    for nonsense in ("", "[]", "{", '{"verb": "x"}', '{"verb": "authorize", "key": 5}'):
        assert "error" in ask(nonsense)
    assert '"revoked": 1' in ask(f'{{"verb": "revoke", "key": "{public}"}}')


def test_a_job_is_its_submitters(site: MultiUser) -> None:
    """Its processes, its files, its environment; no shell reads its words."""
    with site.asking(site.key(ADA)) as asker:
        script = '#!/bin/sh\nid -u; id -g; id -G; env; echo $# "$1"; cat /proc/$$/status\n'
        argv = ["job.sh", "$(touch shell); `touch shell`"]
        env = {"PATH": os.environ["PATH"], "HOME": "/root", "NOTIFY_SOCKET": "/run/x"}
        launch = {"script": script, "stdout": "out", "env": env}
        submission = site.submission(argv, launch=launch)
        job = asker.ask({"type": "submit", **submission})["job"]
        ended = site.wait(job)
        assert ended["state"] == "completed", ended
    output = site.work / "out"
    lines = output.read_text().splitlines()
    assert lines[:3] == [str(NOBODY)] * 2 + [lines[2]]
    assert "0" not in lines[2].split()
    assert "1 $(touch shell); `touch shell`" in lines
    assert not (site.work / "shell").exists()
    variables = dict(line.partition("=")[::2] for line in lines if "=" in line)
    assert variables["USER"] == ADA
    assert variables["HOME"] != "/root"
    assert not {"NOTIFY_SOCKET", "COALLOC_WRAPPER", "INVOCATION_ID"} & set(variables)
    assert "CapEff:\t0000000000000000" in lines
    assert (output.stat().st_uid, output.stat().st_mode & 0o777) == (NOBODY, 0o644)


def test_nobody_reads_what_an_executor_writes(site: MultiUser) -> None:
    """Others pass through folders to the scripts of their jobs, and that is all."""
    site.kill("alpha")
    (site.root / "state" / "executors" / "alpha" / "identity").chmod(0o644)  # of long ago
    before = os.umask(0)
    try:
        site.start_executor("alpha")
    finally:
        os.umask(before)
    site.until(site.is_complete)
    with site.asking(site.key(ADA)) as asker:
        launch = {"script": "#!/bin/sh\nexec sleep 600\n", "stdout": "long"}
        fields = {"clusters": ["alpha"]}
        submission = site.submission(["job.sh"], launch=launch, job=fields)
        job = asker.ask({"type": "submit", **submission})["job"]
        site.until(lambda: site.job(job)["state"] == "running")
        root = site.root / "state" / "executors"
        found = {path.relative_to(root): path.stat().st_mode for path in root.rglob("*")}
        asker.ask({"type": "cancel", "job": job})
        site.wait(job)
    assert {"identity", "progress.json", "status"} <= {path.name for path in found}
    for path, mode in found.items():
        is_users = path.parent.name == "user" or path.name == "user"  # by an entry of his own
        others = 0o011 if stat.S_ISDIR(mode) else 0
        assert not mode & 0o077 & ~(0o050 if is_users else others), (path, oct(mode))
    assert (site.work / "long").stat().st_mode & 0o777 == 0o644


def test_files_that_are_not_the_submitters(site: MultiUser) -> None:
    """Neither a link nor a path leads a job's output where its submitter may not write."""
    secret = site.root / "secret"
    secret.write_text("untouched")
    secret.chmod(0o600)
    (site.work / "link").symlink_to(secret)
    with site.asking(site.key(ADA)) as asker:
        for target in ("link", "../secret", str(secret), "/etc/coalloc-test"):
            submission = site.submission(["echo", "x"], launch={"stdout": target})
            job = asker.ask({"type": "submit", **submission})["job"]
            ended = site.wait(job)
            assert (ended["state"], ended["reason"]) == ("failed", "output_unwritable"), ended
    assert secret.read_text() == "untouched"
    assert not os.path.lexists("/etc/coalloc-test")


def test_a_user_registers_a_cluster_and_gives_it_up(site: MultiUser) -> None:
    name, key = f"own@{ADA}", site.unknown_key()
    fields = {"key": key.pair.public, "role": "executor", "clusters": [name]}

    def seen(user: str) -> bool:
        with site.asking(site.key(user)) as asker:
            return name in [row["cluster"] for row in asker.ask({"type": "nodes"})["clusters"]]

    with as_user(NOBODY):
        enrolment.ask(site.enrolment, "authorize", pair=key.pair, **fields)
    site.until(lambda: seen(ADA))
    assert not seen(BOB)
    with site.asking(site.key(BOB)) as asker:
        job = site.submission(["true"])
        answer = asker.ask({"type": "submit", **job, "job": {**job["job"], "clusters": [name]}})
    assert f"{name} belongs to {ADA}" in answer["message"]
    with as_user(NOBODY):
        enrolment.ask(site.enrolment, "revoke", key=key.pair.public)
    site.until(lambda: not seen(ADA))


def test_root_submits_nothing(site: MultiUser) -> None:
    with site.asking(site.key("root")) as asker:
        answer = asker.ask({"type": "submit", **site.submission(["true"])})
    assert (answer["code"], answer["message"]) == (
        "not_allowed",
        "jobs of root are not started here (access.root_jobs)",
    )
    assert site.audited("request_refused", "jobs of root")["uid"] == 0
