"""Commands and wrappers over one ssh connection, with a real sshd on loopback."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import pty
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from pwd import struct_passwd

import pytest

from coalloc.adapters.runner.talk import dial
from coalloc.adapters.ssh.master import (
    BACK_OFF_S,
    CHANGED,
    CLOSED,
    OPEN,
    REFUSED,
    SshError,
    SshMaster,
)
from coalloc.adapters.ssh.shell import Shell
from tests.testbeds.ssh import LoginNode, login_nodes, login_user, missing, pids_with

pytestmark = pytest.mark.skipif(bool(missing()), reason=f"ssh's testbed needs {missing()}")

BROKE = "the connection broke; type: coalloc connect alpha"
NOISE = "echo 'Welcome to alpha!'; echo 'module: loaded' >&2\n"


class Login:
    """A login node, its user, and what speaks to it from here."""

    def __init__(self, node: LoginNode, user: struct_passwd) -> None:
        self.node, self.user = node, user
        self.master = SshMaster(node.name, str(node.config))
        self.shell = Shell.of(node.name, str(node.config))

    def said(self, script: str, limit_s: float = 10.0) -> str:
        """Output of a script there, however long the connection takes to come back."""
        end = time.monotonic() + 20.0
        while True:
            try:
                return self.shell.run(script, limit_s).out.strip()
            except SshError:
                if time.monotonic() > end:
                    raise
            time.sleep(0.05)


Made = Callable[..., Login]


@pytest.fixture
def login(root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Made]:
    monkeypatch.setenv("HOME", str(root))
    root.chmod(0o755)
    with contextlib.ExitStack() as stack:

        def made(*options: str, shell: str = "/bin/sh") -> Login:
            user = stack.enter_context(login_user(root, "ada", shell))
            nodes = login_nodes(
                root / "ssh", user.pw_name, {"alpha": {"SITE": "a"}}, options=options
            )
            login = Login(stack.enter_context(nodes)["alpha"], user)
            stack.callback(login.master.close)
            stack.callback(login.shell.end)
            return login

        yield made


def test_all_goes_over_one_connection(login: Made) -> None:
    here = login()
    done = here.shell.run("echo $SITE; id -un; echo no >&2; exit 3", 5.0)
    assert done == (3, f"a\n{here.user.pw_name}\n", "no\n")
    assert here.shell.ask(["cat"], text="key").out == "key"
    assert here.shell.ask(["sh", "-c", "kill -9 $$"]).code == -signal.SIGKILL
    with pytest.raises(SshError, match="cannot be run: No such file"):
        here.shell.ask(["no-such-command"])
    about, state = here.shell.about(), here.master.state()
    assert (about["uid"], state.state, state.asks) == (here.user.pw_uid, OPEN, False)
    assert state.host_key.startswith("ssh-ed25519 SHA256:")
    assert here.node.accepted == 1


@pytest.mark.slow
def test_a_time_limit_ends_all_that_was_started(login: Made) -> None:
    here = login()
    with pytest.raises(SshError, match=r"no answer within 0.5 s"):
        here.shell.run("sleep 77 & sleep 77", 0.5)
    assert here.said("ps -u $(id -u) -o stat=,args= | grep -c '^[^Z].*[s]leep'") == "0"


@pytest.mark.parametrize("shell", ["/bin/bash", "/bin/csh"])
@pytest.mark.slow
def test_noise_of_a_login_shell_does_no_harm(login: Made, shell: str) -> None:
    if not os.path.exists(shell):
        pytest.skip(f"{shell} is not installed")
    here = login(shell=shell)
    for name in (".bashrc", ".cshrc", ".profile"):
        Path(here.user.pw_dir, name).write_text(NOISE)
    folder = Path(here.user.pw_dir, "bin")
    folder.mkdir()
    (folder / "sitequeue").write_text("#!/bin/sh\necho found\n")
    (folder / "sitequeue").chmod(0o755)
    with open(Path(here.user.pw_dir, ".profile"), "a") as file:
        file.write(f"PATH=$PATH:{folder}\n")
    assert here.said("echo right") == "right"
    assert here.shell.ask(["sitequeue"]).out == "found\n"  # as in a login shell's PATH alone


@pytest.mark.slow
def test_one_session_is_enough_and_one_that_ends_is_opened_again(login: Made) -> None:
    here = login("MaxSessions 1", "ChannelTimeout session:*=2s")
    assert here.said("echo first") == "first"
    assert here.shell.relay("/nowhere")[1]
    end = time.monotonic() + 10.0
    while pids_with(f"{here.master.stem}.ctl", "exec /bin/sh") and time.monotonic() < end:
        time.sleep(0.1)
    assert here.said("echo again") == "again"
    assert here.node.accepted == 1


@pytest.mark.slow
def test_a_killed_connection_is_opened_again_and_the_port_is_the_same(login: Made) -> None:
    here = login()
    where = here.shell.relay("/nowhere")
    Path(f"{here.master.stem}.ctl.old").write_text("")
    os.kill(here.master.check(), signal.SIGKILL)  # its socket stays
    assert here.said("echo again") == "again"
    assert here.shell.relay("/nowhere") == where
    assert here.node.accepted == 2


@pytest.mark.slow
def test_a_connection_that_is_late_to_answer_is_kept(login: Made) -> None:
    here = login()
    known = here.master.open()
    os.kill(known.pid, signal.SIGSTOP)
    try:
        assert here.master.check(0.1) == known.pid
        assert here.master.open() == here.master.state() == known
    finally:
        os.kill(known.pid, signal.SIGCONT)
    assert here.said("echo again") == "again"
    assert here.node.accepted == 1


@pytest.mark.slow
def test_what_was_asked_over_a_lost_connection_is_not_known(login: Made) -> None:
    here = login()
    pid, asked = here.master.open().pid, Path(here.user.pw_dir) / "asked"
    with ThreadPoolExecutor() as pool:
        running = pool.submit(here.shell.run, f"touch {asked}; sleep 60", 60.0)
        while not asked.exists():
            time.sleep(0.01)
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(SshError, match="the connection was lost"):
            running.result()


@pytest.mark.slow
def test_a_refusal_is_not_repeated_at_once(login: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    here = login()
    keys = here.node.config.parent / "authorized"
    kept = keys.read_text()
    keys.write_text("")
    with pytest.raises(SshError, match=r"Permission denied.*; tried again in (60|59) s"):
        here.shell.run("true", 5.0)
    found = here.master.state()
    for wait_s in (*BACK_OFF_S[1:], BACK_OFF_S[-1]):
        assert here.master.open().failures == found.failures, "nothing is tried before its time"
        monkeypatch.setattr(time, "time", functools.partial(float, found.until + 1.0))
        before, found = found, here.master.open()
        assert (found.state, round(found.until - before.until - 1.0)) == (REFUSED, wait_s)
    keys.write_text(kept)
    assert here.master.open(terminal=True).state == OPEN  # a person is there


def test_a_changed_host_key_stops_and_says_so(login: Made) -> None:
    here = login()
    known = here.node.config.parent / "known"
    known.write_text(known.read_text().replace("alpha ", "other "))
    other = here.node.config.parent / "key.pub"
    known.write_text(f"alpha {other.read_text()}")
    with pytest.raises(SshError, match=r"Host key verification failed.*coalloc connect alpha"):
        here.shell.run("true", 5.0)
    said = here.node.log.read_text().count("Connection from")
    assert here.master.open().state == CHANGED
    assert here.node.log.read_text().count("Connection from") == said == 1


@pytest.mark.slow
def test_a_second_factor_is_asked_for_once_and_by_a_person(login: Made) -> None:
    here = login("AuthenticationMethods publickey,password", "PasswordAuthentication yes")
    words = f"{here.user.pw_name}:secret\n".encode()
    subprocess.run(["chpasswd"], input=words, check=True)
    assert here.master.open().asks
    said = here.node.log.read_text().count("Connection from")
    with pytest.raises(SshError, match="type: coalloc connect alpha"):
        here.shell.run("true", 5.0)
    assert here.node.log.read_text().count("Connection from") == said
    pid, terminal = pty.fork()
    if pid == 0:
        os._exit(here.master.open(terminal=True).state != OPEN)
    os.set_blocking(terminal, True)
    asked = b""
    while b"assword:" not in asked:
        asked += os.read(terminal, 1024)
    os.write(terminal, b"secret\n")
    assert os.waitpid(pid, 0)[1] == 0
    os.close(terminal)
    assert here.said("echo in") == "in"
    os.kill(here.master.check(), signal.SIGKILL)
    with pytest.raises(SshError, match=f"{BROKE}|lost"):
        here.shell.run("true", 5.0)
    assert here.master.state().state == CLOSED
    assert here.node.accepted == 1


def test_executors_that_ask_at_once_are_told_the_same_port(login: Made) -> None:
    here = login()
    folders = [f"/nowhere/{number}" for number in range(8)]
    with ThreadPoolExecutor(8) as threads:
        assert len(set(threads.map(here.shell.relay, folders))) == 1


@pytest.mark.slow
def test_the_relay_reaches_runners_of_parts_and_nothing_else(login: Made, root: Path) -> None:
    here = login()
    part = root / "parts" / "part+1+1+0"
    part.mkdir(parents=True)
    hosts, port = here.shell.relay(str(root / "parts"))
    relay = f"203.0.113.1,{hosts}:{port}"  # of several addresses the one that answers
    with socket.create_server(("127.0.0.1", 0)) as runner, contextlib.ExitStack() as stack:
        own = runner.getsockname()[1]

        def called() -> socket.socket:
            connection = dial("", own, relay, 5.0)
            stack.callback(connection.close)
            return connection.sock

        assert called().recv(10) == b"", "no part has said that it listens there"
        (part / "claim.json").write_text(json.dumps({"port": own}))
        wrapper, (peer, _) = called(), runner.accept()
        for one, other in ((wrapper, peer), (peer, wrapper)):
            one.sendall(b"x" * (1 << 21))
            one.shutdown(socket.SHUT_WR) if one is peer else None
            got = 0
            while got < 1 << 21:
                got += len(other.recv(1 << 20))
        assert wrapper.recv(1) == b""
        odd = socket.create_connection((hosts.split(",")[0], port))
        odd.sendall(b"GET / HTTP/1.0\r\n\r\n")
        assert odd.recv(10) == b""
        odd.close()
        peer.close()
