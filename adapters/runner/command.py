"""Runs a batch system's commands: with a clean environment, a time limit, and errors told apart.

Every command runs with ``LC_ALL=C``; of the caller's environment only what `KEPT` names is passed
on, so that no default of whoever started the daemon changes what an answer means. Where they run
on a login node (`ssh.shell`), it is with that user's environment there. Imports the standard
library only: part runners load it without the rest of the package.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import re
import secrets
import shlex
import signal
import subprocess
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import IO, Any, ClassVar

from coalloc.adapters.ssh.master import SshError
from coalloc.adapters.ssh.shell import CommandOutput, Shell

KEPT = ("HOME", "KRB5CCNAME", "LD_LIBRARY_PATH", "LOGNAME", "PATH", "TZ", "USER")
"""Variables of the caller that a command sees."""
DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
DEFAULT_TIMEOUT_S = 10.0


class BatchError(Exception):
    """A command did not do what it was asked for; the message is one line."""

    def __init__(self, command: str, why: str) -> None:
        super().__init__(f"{command}: {why}")
        self.command = command
        self.why = why


class UnreachableError(BatchError):
    """The command is missing, gave no answer in time, or did not reach the batch system.

    What it was asked to do may have been done.
    """


class CommandRefusedError(BatchError):
    """The batch system answered, and said no; a signal that killed it is a negative code."""

    def __init__(self, command: str, why: str, code: int) -> None:
        super().__init__(command, why)
        self.code = code


class StartedCommand(subprocess.Popen[bytes]):
    """A command that runs, in a session of its own."""

    @property
    def has_ended(self) -> bool:
        return self.poll() is not None

    def ends_within(self, limit_s: float) -> bool:
        """Wait for its end, at most so long; whether it has ended."""
        try:
            self.wait(limit_s)
        except subprocess.TimeoutExpired:
            return False
        return True

    def kill(self) -> None:
        """End it, and all that it has started in its session's group."""
        if not self.has_ended:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
            self.wait()


@dataclass(frozen=True, slots=True, kw_only=True)
class Commands:
    """One cluster's commands; a subclass says what steers them, and how failures are told apart."""

    unreachable: ClassVar[tuple[str, ...]] = ()
    """What they say, in lower case, when nothing is known of the cluster."""

    bin_dir: str = ""
    """Folder of the commands; empty: searched for in PATH."""
    timeout_s: float = DEFAULT_TIMEOUT_S
    """After which a command is killed, seconds."""
    extra_env: Mapping[str, str] = field(default_factory=dict)
    """Further variables for every command."""
    ssh: str = ""
    """The login on whose node they run, by `ssh.master.stem_of`; empty: they run here."""

    def run(
        self,
        name: str,
        *arguments: str,
        env: Mapping[str, str] | None = None,
        text: str | None = None,
        account: pwd.struct_passwd | None = None,
        timeout_s: float | None = None,
    ) -> str:
        """Run a command as `ask` does and return its output; a bad end raises its `failure`."""
        answer = self.ask(
            name, *arguments, env=env, text=text, account=account, timeout_s=timeout_s
        )
        return self.told(name, answer)

    def told(self, name: str, answer: CommandOutput) -> str:
        """Output of a command; a bad end raises its `failure`."""
        if answer.code == 0:
            return answer.out
        raise self.failure(name, answer)

    def ask_all(
        self, commands: Collection[tuple[str, ...]], *, needed: int, **how: Any
    ) -> dict[tuple[str, ...], CommandOutput]:
        """Run commands as `ask` does, one behind the other by one shell; returns their answers.

        Where one of the first `needed` fails, those behind it are not run, and have no answer.
        """
        mark, script = secrets.token_hex(8), ""
        for number, (name, *arguments) in enumerate(commands):
            self.about_to_run(name, tuple(arguments))
            words = shlex.join([self._path(name), *arguments])
            script += f"{words}; r=$?; echo {mark}$r; echo {mark} >&2\n"
            script += "[ $r = 0 ] || exit 0\n" if number < needed else ""
        answer = self.ask("/bin/sh", "-c", script, **how)
        said = re.split(rf"{mark}(\d+)\n", self.told("sh", answer))
        each = zip(commands, said[1::2], said[::2], answer.err.split(f"{mark}\n"), strict=False)
        return {command: CommandOutput(int(code), out, err) for command, code, out, err in each}

    def ask(
        self,
        name: str,
        *arguments: str,
        env: Mapping[str, str] | None = None,
        text: str | None = None,
        account: pwd.struct_passwd | None = None,
        timeout_s: float | None = None,
    ) -> CommandOutput:
        """Run a command; how it ended is the caller's to judge.

        `env` are variables besides the usual ones, `text` is its standard input; only root may
        name another's account. Raises `UnreachableError` where it cannot be run, or gave no answer
        in time.
        """
        limit = self.timeout_s if timeout_s is None else timeout_s
        if self.ssh:
            self.about_to_run(name, arguments)
            variables = self.steering() | {"LC_ALL": "C"} | dict(self.extra_env) | dict(env or {})
            argv = [self._path(name), *arguments]
            try:
                return Shell(self.ssh).ask(argv, env=variables, text=text or "", limit_s=limit)
            except SshError as error:
                raise UnreachableError(name, str(error)) from error
        process = self._popen(
            name,
            *arguments,
            env=env,
            account=account,
            stdin=subprocess.DEVNULL if text is None else subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        with process:
            try:
                raw = None if text is None else text.encode(errors="surrogateescape")
                out, err = process.communicate(raw, timeout=limit)
            except BaseException as error:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                if not isinstance(error, subprocess.TimeoutExpired):
                    raise
                words = one_line((error.stderr or b"").decode(errors="replace"))
                why = f"no answer within {limit:g} s" + (f": {words}" if words else "")
                raise UnreachableError(name, why) from None
        said = [each.decode(errors="replace") for each in (out, err)]
        return CommandOutput(process.returncode, *said)

    def start(
        self,
        name: str,
        *arguments: str,
        log: IO[bytes],
        env: Mapping[str, str] | None = None,
        account: pwd.struct_passwd | None = None,
    ) -> StartedCommand:
        """Start a command that goes on by itself, in a session of its own; it speaks to `log`."""
        return self._popen(name, *arguments, env=env, account=account, stdout=log, stderr=log)

    def _popen(
        self,
        name: str,
        *arguments: str,
        env: Mapping[str, str] | None = None,
        account: pwd.struct_passwd | None = None,
        stdin: int | IO[bytes] = subprocess.DEVNULL,
        stdout: int | IO[bytes] = subprocess.DEVNULL,
        stderr: int | IO[bytes] = subprocess.DEVNULL,
    ) -> StartedCommand:
        self.about_to_run(name, arguments)
        variables = self.environment(account) | dict(env or {})
        try:
            return StartedCommand(
                [self._path(name), *arguments],
                cwd="/",
                env=variables,
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                start_new_session=True,
                **_identity(account),
            )
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else str(error)
            raise UnreachableError(name, f"cannot be run: {why}") from error

    def _path(self, name: str) -> str:
        return os.path.join(self.bin_dir, name) if self.bin_dir else name

    def uid(self, account: pwd.struct_passwd | None = None) -> int:
        """Number of the user as whom commands run, where they run. Raises `UnreachableError`."""
        if not self.ssh:
            return os.geteuid() if account is None else account.pw_uid
        try:
            return int(Shell(self.ssh).about()["uid"])
        except SshError as error:
            raise UnreachableError("id", str(error)) from error

    def environment(self, account: pwd.struct_passwd | None = None) -> dict[str, str]:
        kept = {key: os.environ[key] for key in KEPT if key in os.environ}
        kept.setdefault("PATH", DEFAULT_PATH)
        if account is not None:
            user = account.pw_name
            kept |= {"HOME": account.pw_dir, "USER": user, "LOGNAME": user}
        return kept | self.steering() | {"LC_ALL": "C"} | dict(self.extra_env)

    def about_to_run(self, name: str, arguments: tuple[str, ...]) -> None:
        """Take note of a command."""

    def steering(self) -> dict[str, str]:
        """The variables by which the commands find their cluster."""
        return {}

    def words(self, said: str) -> str:
        """Output of a command on one line, without the prefix of each line."""
        return one_line(said)

    def failure(self, name: str, answer: CommandOutput) -> BatchError:
        """The error of a command that ended badly: out of reach, or refused."""
        why = self.words(answer.err or answer.out) or f"exit code {answer.code}"
        lowered = answer.err.lower()
        if any(phrase in lowered for phrase in self.unreachable):
            return UnreachableError(name, why)
        return CommandRefusedError(name, why, answer.code)


def one_line(text: str) -> str:
    """The words of what a command said, without its name and line breaks, 300 at most."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    words = "; ".join(
        line.partition(": error: ")[2] or line.partition(": ")[2] or line for line in lines
    )
    return words[:300]


def _identity(account: pwd.struct_passwd | None) -> dict[str, Any]:
    """Arguments that make a process another user's."""
    if account is None or account.pw_uid == os.geteuid() != 0:
        return {}
    groups = os.getgrouplist(account.pw_name, account.pw_gid)
    return {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": groups}
