"""A look at a cluster behind a login: Slurm, the nodes and the way from them, clocks."""

from __future__ import annotations

import re
import time

from coalloc.adapters.ssh.shell import Shell
from coalloc.cli.command import CommandError

LOOK_S, JOB_S = 15.0, 20
SLURM = """
sinfo --version 2>&1 | sed 's/^/slurm /'
sinfo -h -o '%R|%D|%l' | sed 's/^/part /'
echo "account $(sacctmgr -nP show user "$(id -un)" format=DefaultAccount 2>/dev/null)"
date '+clock %s.%N'
"""
NODE = """
mark=$HOME/.coalloc-look-$$; : >"$mark"
srun -Q -J coalloc-look -n 1 -t 1 --immediate={limit} sh -c '
test -e "$1" && echo home yes || echo home no
python3 -c "import platform; print(\\"python\\", platform.python_version())" || echo python none
python3 -c "
import socket, sys
for host in sys.argv[1].split(chr(44)):
    try: socket.create_connection((host, int(sys.argv[2])), 2); print(\\"reach\\", host); break
    except OSError: pass" "$2" "$3"
' sh "$mark" '{hosts}' {port}
rm -f "$mark"
"""


def lines(shell: Shell, folder: str, factors: str) -> list[str]:
    """Describe what is there. `CommandError`: no Slurm; `SshError`: no answer."""
    shell.run(":", LOOK_S)  # Opens the channel, so that the clock is not read late.
    before = time.time()
    seen = _said(shell, SLURM, LOOK_S)
    took_s = time.time() - before
    parts = [text.split("|") for text in seen.get("part", ()) if text.count("|") == 2]
    if not parts:
        raise CommandError(f"no Slurm answers there: {' '.join(seen.get('slurm', ()))}")
    ahead_s = float(seen["clock"][0]) - before - took_s
    clocks = "agree" if -took_s <= ahead_s <= 0 else f"differ by {abs(ahead_s) * 1e3:.0f} ms"
    hosts, port = shell.relay(folder)
    node = _said(shell, NODE.format(limit=JOB_S, hosts=hosts, port=port), JOB_S + LOOK_S)
    nodes = f"not looked at, none was free within {JOB_S} s"
    if "python" in node:
        if not node.get("reach"):
            raise CommandError(f"nodes do not reach the login node ({hosts}:{port}): no job starts")
        nodes = f"Python {node['python'][0]}; shared home: {node['home'][0]}; "
        nodes += f"reach the login node: yes ({node['reach'][0]}:{port}), and by it this machine"
    account, limits = seen["account"][0] or "none", (f"{n}: at most {t} a job" for n, _, t in parts)
    return [
        f"logged in ({factors}), one connection; {seen['slurm'][0]}, account {account}",
        f"{sum(int(number) for _, number, _ in parts)} nodes: {nodes}",
        f"clocks {clocks}; {'; '.join(limits)}",
    ]


def _said(shell: Shell, script: str, limit_s: float) -> dict[str, list[str]]:
    """Lines of a script's answer, by their first word."""
    found: dict[str, list[str]] = {}
    for word, rest in re.findall(r"(?m)^(\w+) ?(.*)$", shell.run(script, limit_s).out):
        found.setdefault(word, []).append(rest.strip())
    return found
