"""The program that a command line is about, behind the launchers and interpreters before it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

# fmt: off
_VALUED: Mapping[str, frozenset[str]] = {
    "mpirun": frozenset(("-n", "-np", "-c", "-N", "-H", "-x", "--host", "--hostfile",
        "-machinefile", "--machinefile", "-hostfile", "--map-by", "--bind-to", "--rank-by", "--mca",
        "-mca", "-ppn", "-genv", "-env", "-host", "-f", "--wdir", "-wdir")),
    "srun": frozenset(("-n", "-N", "-c", "-p", "-w", "-x", "-t", "-A", "-q", "-J", "-C", "-D", "-o",
        "-e", "-i", "-m", "-G", "-B", "-L", "-M", "-d", "-r", "--ntasks", "--nodes", "--partition",
        "--time", "--account", "--gres", "--mem", "--cpus-per-task", "--export", "--mpi")),
    "torchrun": frozenset(("--nproc_per_node", "--nproc-per-node", "--nnodes", "--node_rank",
        "--node-rank", "--rdzv_id", "--rdzv-id", "--rdzv_backend", "--rdzv-backend",
        "--rdzv_endpoint", "--rdzv-endpoint", "--master_addr", "--master-addr", "--master_port",
        "--master-port", "--max_restarts", "--max-restarts")),
    "accelerate": frozenset(("--config_file", "--num_processes", "--num_machines")),
    "apptainer": frozenset(("-B", "--bind", "-H", "--home", "--env", "--pwd", "-W", "--workdir",
        "--overlay", "-o", "--env-file")),
    "env": frozenset(("-u", "--unset", "-C", "--chdir")),
    "python": frozenset(("-W", "-X", "--check-hash-based-pycs")),
    "java": frozenset(("-cp", "-classpath", "--class-path", "-p", "--module-path")),
    "julia": frozenset(("-p", "-t", "-L", "-J", "--project", "--threads", "--procs", "--sysimage")),
    "perl": frozenset(("-I",)), "ruby": frozenset(("-I", "-r")), "Rscript": frozenset(),
    "node": frozenset(("-r", "--require")),
    "bash": frozenset(("-o", "-O", "--rcfile", "--init-file")),
    "nice": frozenset(("-n", "--adjustment")), "ionice": frozenset(("-c", "-n", "--class")),
    "timeout": frozenset(("-k", "-s", "--kill-after", "--signal")),
    "stdbuf": frozenset(("-i", "-o", "-e")), "numactl": frozenset(("-N", "-m", "-C", "-i")),
    "taskset": frozenset(), "time": frozenset(("-f", "-o")), "nohup": frozenset(),
    "setsid": frozenset(), "exec": frozenset(), "conda": frozenset(("-n", "-p", "--name")),
    "uv": frozenset(("--with", "--python", "-p", "--project")), "poetry": frozenset(),
    "pixi": frozenset(("-e",)),
}
"""Launchers and interpreters, and those of their options whose value is the next word."""
_ALIASES = {
    "mpiexec": "mpirun", "orterun": "mpirun", "prterun": "mpirun", "singularity": "apptainer",
    "sh": "bash", "dash": "bash", "zsh": "bash", "ksh": "bash", "nodejs": "node",
    "pypy": "python",
}
# fmt: on
_WORDS = {
    "apptainer": ("exec", "run"),
    "conda": ("run",),
    "uv": ("run",),
    "poetry": ("run",),
    "pixi": ("run",),
    "accelerate": ("launch",),
}
"""Subcommands behind which a command follows."""
_FIRST_IS_NO_PROGRAM = frozenset({"apptainer", "timeout", "taskset"})
"""Their first argument is an image, a time or a mask."""
_TEXTS = frozenset({"-c", "-e", "-E", "--eval"})
"""Options of interpreters before the text of a program."""
_INTERPRETERS = frozenset({"python", "bash", "perl", "ruby", "julia", "node", "Rscript", "java"})
_VERSION = re.compile(r"[0-9][0-9.]*$")
_ASSIGNED = re.compile(r"[A-Za-z_][A-Za-z_0-9]*=")


def program_of(argv: Sequence[str]) -> str:
    """The script, module or executable that a command is about, without its folder.

    Launchers (mpirun, srun, torchrun, apptainer, env, ...) and interpreters are passed over with
    their options: of ``mpirun -n 4 python -u train.py`` it is ``train.py``. Where nothing follows
    them, or a program's text does, it is the launcher or interpreter itself.
    """
    words = list(argv)
    found = ""
    while words:
        word = words.pop(0)
        name = word.rpartition("/")[2]
        if found == "env" and _ASSIGNED.match(word):
            continue
        plain = _VERSION.sub("", name) or name
        known = _ALIASES.get(plain, plain)
        if known not in _VALUED:
            return name or found or word
        found = name
        module = _pass_over(known, words)
        if module is not None:
            return module or found
    return found


def _pass_over(launcher: str, words: list[str]) -> str | None:
    """Take a launcher's options off; a module's name where they end the search, "" for its own."""
    if words and words[0] in _WORDS.get(launcher, ()):
        words.pop(0)
    is_interpreter = launcher in _INTERPRETERS
    while words and words[0].startswith("-"):
        option = words.pop(0)
        if option == "--":
            break
        if is_interpreter and option in _TEXTS:
            return ""
        if option in ("-m", "-jar") and launcher in ("python", "java") and words:
            return words[0].rpartition("/")[2]
        if option in _VALUED[launcher] and words:
            words.pop(0)
    if launcher in _FIRST_IS_NO_PROGRAM and words:
        first = words.pop(0)
        if launcher == "apptainer" and not words:
            return first.rpartition("/")[2]  # what the image runs by itself
    while launcher == "env" and words and _ASSIGNED.match(words[0]):
        words.pop(0)
    return None
