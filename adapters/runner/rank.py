"""One process of a part, from the fork to the exec.

It becomes the job's user, finds the command, enters the folder and opens the output at once, and
then waits on a pipe for the order to go. Imports the standard library only, as the runner does.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import pwd
import re
import signal
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NoReturn

from coalloc.adapters.runner.once import HOLDS
from coalloc.adapters.runner.sweep import calm_down

if TYPE_CHECKING:
    from coalloc.adapters.runner.spec import RunnerSpec

PR_SET_PDEATHSIG, PR_SET_NAME, PR_SET_CHILD_SUBREAPER = 1, 15, 36
GPUS = ("COALLOC_GPUS", "CUDA_VISIBLE_DEVICES")
DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin"
DEFAULT_OUTPUT = "coalloc-%j.out"
MARKS = re.compile("%([0-9]*)([jrN%])")
# What belongs to the executor's service, not to a job that was submitted from one.
FOREIGN = ("NOTIFY_SOCKET", "WATCHDOG_PID", "WATCHDOG_USEC", "LISTEN_FDS", "LISTEN_PID")

SHED = set(range(1, signal.NSIG)) - {signal.SIGKILL, signal.SIGSTOP, 32, 33}
"""Signals that can be reset; the last two are the C library's own."""

prctl = ctypes.CDLL(None, use_errno=True).prctl


def unspare(pid: int | str) -> None:
    """Have a process, and what it starts, end like others when memory is short."""
    with (
        contextlib.suppress(OSError, ValueError),
        open(f"/proc/{pid}/oom_score_adj", "r+", encoding="ascii") as file,
    ):
        if int(file.read()) < 0:
            file.seek(0)
            file.write("0")


def be_subreaper() -> None:
    """Have descendants that lose their parents become children of this process."""
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


class FaultError(Exception):
    """The part cannot run: reason and detail."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = " ".join(detail.split())[:500]


@contextlib.contextmanager
def faults_of_files(path: str) -> Iterator[None]:
    """Raise `FaultError` where a file of the part cannot be written, or read as what it is."""
    try:
        yield
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise FaultError("state_unwritable", f"{path}: {why}") from error


def account_of(uid: int, act: str) -> pwd.struct_passwd:
    """Account of a job's user, for whom this process is to do so. Raises `FaultError`."""
    if os.geteuid() not in (0, uid):
        why = f"only root may {act} of uid {uid}, and this is not root"
        raise FaultError("user_unknown", why)
    try:
        return pwd.getpwuid(uid)
    except KeyError:
        raise FaultError("user_unknown", f"there is no user with uid {uid}") from None


def account_for(uid: int | None) -> pwd.struct_passwd | None:
    """Account of a part's processes; None: of this process, which has none. Raises `FaultError`."""
    if uid is not None:
        return account_of(uid, "start processes")
    with contextlib.suppress(KeyError):
        return pwd.getpwuid(os.geteuid())
    return None


def let_go(go_fd: int, count: int) -> None:
    """Order ranks to go. Where all have ended already, what they said or their codes tell why."""
    with contextlib.suppress(BrokenPipeError):
        os.write(go_fd, b"g" * count)


def fault_of(error: BaseException, folder: str) -> tuple[str, str]:
    """Reason and detail of an error that is being handled; an unforeseen one is logged in full."""
    if isinstance(error, FaultError):
        return error.reason, error.detail
    import traceback  # rarely needed, and slow to load

    text = traceback.format_exc()
    with contextlib.suppress(OSError), open(f"{folder}/runner.log", "a") as file:
        file.write(text)
    return "runner_failed", text.strip().rpartition("\n")[2]


class Rank:
    """One process of the part, before it becomes the job's."""

    def __init__(
        self,
        spec: RunnerSpec,
        index: int,
        account: pwd.struct_passwd | None,
        ends: tuple[int, int, int] | None = None,
    ) -> None:
        self.spec, self.ends = spec, ends
        self.account = account
        self.index = index
        place = spec["ranks"][index]
        self.rank, self.node, self.cpus = place["rank"], place["node"], place.get("cpus")
        self.gpus = place.get("gpus")
        self.local_rank, self.local_size = place["local_rank"], place["local_size"]
        self.is_once, self.is_holder = bool(spec.get("once")), HOLDS in place

    def become(self, group: int, go_fd: int, say_fd: int) -> NoReturn:
        """Prepare, wait for the order to go, and exec; never returns."""
        runner = os.getppid()
        try:
            self._shed_signals()
            if self.spec.get("stream") == "pty":
                self._have_terminal()
            else:
                os.setpgid(0, group)
            self._pin()
            unspare("self")
            self._drop_privileges()
            prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != runner:
                os._exit(1)
            env = self.environment()
            path = ""
            if not self.is_holder:
                path, ends = self._prepare_files(env)
                for target, fd in enumerate(ends):
                    os.dup2(fd, target, inheritable=True)
            argv = self._arguments(path)
            os.write(say_fd, b"R %d\n" % self.index)
            if os.read(go_fd, 1) != b"g":
                os._exit(1)
            os.write(say_fd, b"S %d %d\n" % (self.index, int(time.monotonic() * 1e9)))
            calm_down()
            if self.is_holder:
                os.close(say_fd)
                os.read(go_fd, 1)  # which the runner closes when the script has ended
                os._exit(0)
            self._started(lambda file, words: os.execve(file, words, env), path, argv)
        except FaultError as fault:
            text = f"F {self.index} {fault.reason} {fault.detail}\n"
        except ValueError as error:  # a text that is no path, no variable, no argument
            text = f"F {self.index} impossible {error}"[:500] + "\n"
        except BaseException as error:
            text = f"F {self.index} runner_failed {type(error).__name__}: {error}"[:500] + "\n"
        os.write(say_fd, text.encode(errors="replace"))
        os._exit(127)

    def _arguments(self, path: str) -> list[str]:
        spec = self.spec
        return [path if spec["script"] else spec["argv"][0], *spec["argv"][1:]]

    @staticmethod
    def _shed_signals() -> None:
        signal.set_wakeup_fd(-1)
        # All: whoever started the executor from a shell may have left some ignored.
        for number in SHED:
            with contextlib.suppress(OSError, ValueError):
                signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())

    def _have_terminal(self) -> None:
        """Lead a session, whose terminal is the command's."""
        os.setsid()
        if self.ends is not None and not self.is_holder:
            import fcntl  # these two are for terminals alone
            import termios

            fcntl.ioctl(self.ends[0], termios.TIOCSCTTY, 0)

    def _pin(self) -> None:
        if self.cpus is not None:
            try:
                os.sched_setaffinity(0, self.cpus)
            except OSError as error:
                raise FaultError(
                    "node_unusable", f"{self.node}: CPUs {self.cpus}: {error.strerror}"
                ) from error
        # An executor's protection is not its jobs', nor is its place before them.
        if os.getpriority(os.PRIO_PROCESS, 0) < 0:
            os.setpriority(os.PRIO_PROCESS, 0, 0)

    def _drop_privileges(self, *, for_good: bool = True) -> None:
        os.umask(0o022)
        uid = self.spec["uid"]
        if uid is None or self.account is None or os.geteuid() != 0:
            return
        gid = self.account.pw_gid
        try:
            os.initgroups(self.account.pw_name, gid)
            os.setresgid(gid, gid, gid)
            os.setresuid(uid, uid, uid if for_good else 0)
        except OSError as error:
            raise FaultError("user_unknown", f"uid {uid}: {error.strerror}") from error
        if 0 in (*os.getresuid()[: 2 + for_good], *os.getresgid()) and 0 not in (uid, gid):
            raise FaultError("user_unknown", f"uid {uid}: root's rights remain")

    def environment(self) -> dict[str, str]:
        spec = self.spec
        env = {
            key: value
            for key, value in spec["env"].items()
            if key and "=" not in key and "\0" not in key + value and key not in FOREIGN
        }
        if self.account is not None:
            account = {
                "HOME": self.account.pw_dir,
                "USER": self.account.pw_name,
                "LOGNAME": self.account.pw_name,
                "SHELL": self.account.pw_shell or "/bin/sh",
            }
            env = {**env, **account} if spec["uid"] is not None else {**account, **env}
        env.setdefault("PATH", DEFAULT_PATH)
        host, _, port = spec["rendezvous"].rpartition(":")
        rank, size = str(self.rank), str(spec["size"])
        # Of a script that starts the processes by itself, each would inherit the first one's.
        own = (
            dict.fromkeys(env.keys() & {"SLURM_TASK_PID"}, str(os.getpid()))
            if self.is_once
            else {
                "COALLOC_RANK": rank,
                "RANK": rank,
                "WORLD_SIZE": size,
                "LOCAL_RANK": str(self.local_rank),
                "LOCAL_WORLD_SIZE": str(self.local_size),
            }
        )
        env.update(
            {
                "COALLOC_JOB_ID": spec["job"],
                "COALLOC_SIZE": size,
                "COALLOC_PART": str(spec["part"]),
                "COALLOC_ATTEMPT": str(spec["attempt"]),
                "COALLOC_CLUSTER": spec["cluster"],
                "COALLOC_NODE": self.node,
                "COALLOC_NODELIST": spec["nodelist"],
                "COALLOC_HOSTFILE": spec["hostfile"],
                "COALLOC_RENDEZVOUS": spec["rendezvous"],
                "COALLOC_CLAIM": spec["claim"],
                "MASTER_ADDR": host.strip("[]"),
                "MASTER_PORT": port,
                **own,
                **({} if self.gpus is None else dict.fromkeys(GPUS, ",".join(map(str, self.gpus)))),
                **chunk_variables(spec.get("chunks"), self.rank, spec["size"]),
            }
        )
        return env

    def _prepare_files(self, env: dict[str, str]) -> tuple[str, list[int]]:
        """Enter the folder, find the command, open its output.

        Returns the path to execute, and what is to be its input, output and errors.
        """
        spec = self.spec
        try:
            os.chdir(spec["cwd"])
        except OSError as error:
            raise FaultError("cwd_missing", f"{spec['cwd']}: {error.strerror}") from error
        env["PWD"] = spec["cwd"]
        path = spec["script"] or found_command(spec["argv"][0], env["PATH"])
        if spec["script"] and not os.access(path, os.X_OK):
            raise FaultError("state_unreachable", f"{path}: uid {os.getuid()} cannot execute it")
        check_interpreter(path, spec["argv"][0])
        null = os.open(os.devnull, os.O_RDONLY)
        if self.ends is None:
            out = self._output(spec["stdout"] or DEFAULT_OUTPUT)
            err = self._output(spec["stderr"]) if spec["stderr"] else out
            return str(path), [null, out, err]
        return str(path), [null if fd < 0 else fd for fd in self.ends]

    def _output(self, pattern: str) -> int:
        path = output_path(pattern, self.spec["job"], self.rank, self.node)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOCTTY | os.O_NONBLOCK
        try:
            fd = os.open(path, flags, 0o666)
            os.set_blocking(fd, True)
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else str(error)
            raise FaultError("output_unwritable", f"{path}: {why}") from error
        return fd

    @staticmethod
    def _started(start: Callable[[str, list[str]], int], path: str, argv: list[str]) -> int:
        """Start a file, or have the shell read it, as execvp does. Raises `FaultError`."""
        try:
            try:
                return start(path, argv)
            except OSError as error:
                if error.errno != errno.ENOEXEC:
                    raise
                return start("/bin/sh", ["/bin/sh", path, *argv[1:]])
        except OSError as error:
            raise FaultError("not_executable", f"{argv[0]}: {error.strerror}") from error


def opened_as(uid: int | None, account: pwd.struct_passwd | None, path: str) -> int:
    """Open a file for reading, with no more rights than its user's. Raises `OSError`."""
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    if uid is None or account is None or os.geteuid() != 0:
        return os.open(path, flags)
    groups = os.getgroups()
    os.initgroups(account.pw_name, account.pw_gid)
    os.setegid(account.pw_gid)
    os.seteuid(uid)
    try:
        return os.open(path, flags)
    finally:
        os.seteuid(0)
        os.setegid(0)
        os.setgroups(groups)


def output_path(pattern: str, job: str, rank: int, node: str) -> str:
    """The path of an output file, of the marks that are left for the processes."""
    host = node.rpartition("/")[2].partition(".")[0]
    marks = {"j": job, "r": str(rank), "N": host, "%": "%"}

    def value(found: re.Match[str]) -> str:
        text = marks[found[2]]
        return text.zfill(min(int(found[1] or 0), 10)) if text.isdigit() else text

    return MARKS.sub(value, pattern)


def chunk_variables(chunks: Sequence[int] | None, rank: int, size: int) -> dict[str, str]:
    """Variables that tell a process of a divisible job's piece its own chunks.

    `chunks` are the first chunk of the piece, its number of chunks, and the job's; None: it is no
    piece. The first processes have one chunk more where the chunks do not divide evenly.
    """
    if chunks is None:
        return {}
    first, count, total = chunks
    each, more = divmod(count, size)
    return {
        "COALLOC_CHUNK_FIRST": str(first + rank * each + min(rank, more)),
        "COALLOC_CHUNKS": str(each + (rank < more)),
        "COALLOC_CHUNKS_TOTAL": str(total),
    }


def found_command(name: str, search: str) -> str:
    """The file that this command names, for the user this process runs as."""
    places = [name] if "/" in name else [f"{p or '.'}/{name}" for p in search.split(os.pathsep)]
    fault = FaultError("not_found", f"{name}: no such command")
    for path in places:
        try:
            mode = os.stat(path).st_mode
        except (OSError, ValueError) as error:
            if isinstance(error, PermissionError):
                fault = FaultError("not_executable", f"{path}: {error.strerror}")
            continue
        if stat.S_ISDIR(mode):
            fault = FaultError("not_executable", f"{path}: is a folder")
        elif os.access(path, os.X_OK):
            return path
        else:
            fault = FaultError("not_executable", f"{path}: is not executable")
    raise fault


def check_interpreter(path: str, shown: str) -> None:
    """Refuse a script whose first line names an interpreter that cannot be executed."""
    try:
        with open(path, "rb") as file:
            line, newline, _ = file.read(256).partition(b"\n")
    except OSError:
        return  # executable but not readable: a program
    words = line[2:].replace(b"\t", b" ").split(b" ") if line.startswith(b"#!") else []
    interpreter = next((os.fsdecode(word) for word in words if word), "")
    if interpreter and newline and not os.access(interpreter, os.X_OK):
        why = " (the line ends in a carriage return)" if interpreter.endswith("\r") else ""
        raise FaultError(
            "bad_script",
            f"{shown}: its interpreter {interpreter.strip()} cannot be executed{why}",
        )
