"""Commands that follow their jobs: output, signals, terminals, and what outlives what."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.followed import LIMIT_S, at_a_terminal, heard, started
from tests.support.live_site import Running


@pytest.fixture(scope="module")
def site() -> Iterator[Running]:
    with (
        tempfile.TemporaryDirectory(prefix="co-", ignore_cleanup_errors=True) as root,
        Running(Path(root), clusters={"alpha": 1, "beta": 1}, slots=2) as running,
    ):
        yield running


def test_output_errors_and_exit_code_come_back(site: Running) -> None:
    text = "echo out $COALLOC_RANK; echo err >&2; test $COALLOC_RANK != 2 || exit 7"
    process = started(site, "run", "-n", "3", "--", "sh", "-c", text)
    out, err = process.communicate(timeout=LIMIT_S)
    assert sorted(out.split(b"\n")) == [b"", b"out 0", b"out 1", b"out 2"], (out, err)
    assert err.count(b"err\n") == 3, err
    assert process.returncode == 7
    assert list(site.work.iterdir()) == [], "nothing is written to files"


def test_much_output_waits_for_its_reader(site: Running) -> None:
    process = started(site, "run", "--", "sh", "-c", "seq 300000; kill -9 $$")
    out, err = process.communicate(timeout=LIMIT_S)
    assert out == b"".join(b"%d\n" % number for number in range(1, 300_001)), err
    assert process.returncode == 128 + signal.SIGKILL, err


def test_one_interrupt_is_passed_on_and_two_end_the_job(site: Running) -> None:
    text = 'trap "echo caught" INT; echo ready; while :; do sleep 0.05; done'
    process = started(site, "run", "--", "sh", "-c", text)
    assert process.stdout is not None
    heard(process.stdout.fileno(), lambda said: b"ready\n" in said)
    process.send_signal(signal.SIGINT)
    heard(process.stdout.fileno(), lambda said: b"caught\n" in said)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=LIMIT_S)
    assert b"interrupt passed on" in err
    assert b"cancelled" in err
    assert process.returncode not in {0, None}


def test_a_restart_of_the_daemon_loses_nothing(site: Running) -> None:
    text = "echo before; read x < gate; seq 20000; exit 3"
    os.mkfifo(site.work / "gate")
    process = started(site, "run", "--", "sh", "-c", text)
    assert process.stdout is not None
    said = heard(process.stdout.fileno(), lambda said: b"before\n" in said)
    site.kill("coallocd")
    (site.work / "gate").write_text("go\n")
    site.start_daemon()
    out, err = process.communicate(timeout=LIMIT_S)
    assert said + out == b"before\n" + b"".join(b"%d\n" % n for n in range(1, 20_001)), err
    assert process.returncode == 3, err
    (site.work / "gate").unlink()


def test_attach_follows_a_job_that_it_does_not_end(site: Running) -> None:
    os.mkfifo(site.work / "gate")
    text = "#!/bin/sh\necho first; read x < gate; echo last; exit 5\n"
    job = site.ask(
        "submit",
        token="attach",
        job={"kind": "rigid", "procs": 1},
        launch={"argv": ["job"], "script": text, "cwd": str(site.work), "env": {}, "stdout": "o"},
    )["job"]
    left = started(site, "attach", job)
    process = started(site, "attach", "--all", job)
    for one in (left, process):
        assert one.stdout is not None
        heard(one.stdout.fileno(), lambda said: b"first\n" in said)
    left.send_signal(signal.SIGINT)
    assert left.wait(LIMIT_S) == 130
    (site.work / "gate").write_text("go\n")
    out, err = process.communicate(timeout=LIMIT_S)
    assert (out, process.returncode) == (b"last\n", 5), err
    for pipe in (left.stdout, left.stderr):
        assert pipe is not None
        pipe.close()
    (site.work / "gate").unlink()
    (site.work / "o").unlink()


def test_a_terminal(site: Running) -> None:
    process, master = at_a_terminal(site, "run", "--pty", "--", "sh", "-i")
    heard(master, lambda said: b"ready> " in said)
    os.write(master, b"stty rows 33 cols 99; tty; stty size; echo do''ne\n")
    said = heard(master, lambda said: b"done\r\n" in said)
    assert b"/dev/pts/" in said
    assert b"33 99" in said
    os.write(master, b"sh -c 'echo up; exec sleep 600'\n")
    heard(master, lambda said: b"up\r\n" in said)
    os.write(master, b"\x03")
    heard(master, lambda said: b"ready> " in said)
    os.write(master, b"exit 9\n")
    assert process.wait(LIMIT_S) == 9
    os.close(master)


def test_a_client_that_is_told_to_end_takes_its_job_along(site: Running) -> None:
    process = started(site, "run", "--", "sh", "-c", "echo ready; sleep 600")
    assert process.stdout is not None
    heard(process.stdout.fileno(), lambda said: b"ready\n" in said)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=LIMIT_S)
    assert process.returncode == 128 + signal.SIGTERM
    site.until(lambda: not site.ask("queue")["jobs"])
