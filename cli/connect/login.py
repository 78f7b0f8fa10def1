"""A look at a cluster behind a login: Slurm, the nodes and the way from them, clocks."""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Iterable
from typing import Any, NamedTuple

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
mark=$HOME/.coalloc-look-$$; mkdir "$mark" && mkfifo "$mark/in" "$mark/out"; trap : PIPE
srun -Q -J coalloc-look -n 1 -t 1 --immediate={limit} sh -c '
test -e "$1" && echo home yes || echo home no
python3 -c "import platform; print(\\"python\\", platform.python_version())" || echo python none
for place in "$2" "$3"; do python3 -c "
import socket, sys
name, hosts, port = sys.argv[1].split(chr(58))
for host in hosts.split(chr(44)):
    try: socket.create_connection((host, int(port)), 2); print(name, host); break
    except OSError: pass" "$place"; done
echo ticks; while read -r line; do date +%s.%N; done
' sh "$mark" 'login:{login}' 'head:{head}' <"$mark/in" >"$mark/out" &
exec 3>"$mark/in" 4<"$mark/out"
while read -r line <&4 && [ "$line" != ticks ]; do echo "$line"; done
for n in 1 2 3 4 5; do a=$(date +%s.%N); echo >&3; read -r b <&4; echo "tick $a $b $(date +%s.%N)"
done
exec 3>&-; rm -rf "$mark"
"""
MOST_APART_S = 0.01
"""Clocks that surely differ by more, seconds, cannot start the parts of a job together."""


class Look(NamedTuple):
    """A cluster as it was found: lines for its user, and settings that follow."""

    lines: list[str]
    settings: dict[str, Any]


def look(shell: Shell, folder: str, factors: str, route: str) -> Look:
    """Describe what is there. `route`: as in the settings.

    Raises `CommandError` where there is no Slurm, or no way to its nodes, and `SshError`.
    """
    shell.run(":", LOOK_S)  # Opens the channel, so that the clock is not read late.
    before = time.time()
    seen = _said(shell, SLURM, LOOK_S)
    took_s = time.time() - before
    parts = [text.split("|") for text in seen.get("part", ()) if text.count("|") == 2]
    if not parts:
        raise CommandError(f"no Slurm answers there: {' '.join(seen.get('slurm', ()))}")
    ahead_s = float(seen["clock"][0]) - before - took_s / 2
    hosts, port = shell.relay(folder)
    nodes = f"not looked at, none was free within {JOB_S} s"
    settings: dict[str, Any] = {"route": route}
    with socket.create_server(("", 0)) as here:
        head = f"{socket.getfqdn()}:{here.getsockname()[1]}"
        script = NODE.format(limit=JOB_S, login=f"{hosts}:{port}", head=head)
        node = _said(shell, script, JOB_S + LOOK_S)
    if "python" in node:
        way, settings["route"] = _route(node, route, f"{hosts}:{port}", head)
        nodes = f"Python {node['python'][0]}; shared home: {node['home'][0]}; {way}"
        if settings["route"] == "head":
            settings["address"] = head.partition(":")[0]
        more_s, more_took_s = _apart(node.get("tick", ()))
        ahead_s, took_s = ahead_s + more_s, took_s + more_took_s
    apart_s = abs(ahead_s) - took_s / 2
    clocks = "agree" if apart_s <= 0.0 else f"differ by {abs(ahead_s) * 1e3:.0f} ms"
    if settings["route"] == "files" and apart_s > MOST_APART_S:
        settings["whole_jobs"] = True
        clocks += ": only jobs of this cluster alone start there"
    account, limits = seen["account"][0] or "none", (f"{n}: at most {t} a job" for n, _, t in parts)
    lines = [
        f"logged in ({factors}), one connection; {seen['slurm'][0]}, account {account}",
        f"{sum(int(number) for _, number, _ in parts)} nodes: {nodes}",
        f"clocks {clocks}; {'; '.join(limits)}",
    ]
    return Look(lines, settings)


def _route(node: dict[str, list[str]], asked: str, login: str, head: str) -> tuple[str, str]:
    """The way to the nodes in words, and its name in the settings. Raises `CommandError`."""
    version = [int(word) for word in re.findall("[0-9]+", node["python"][0])]
    is_old = version < [3, 6]  # or there is none
    lacks = "nodes have no Python 3.6 or later"
    ways = {  # whether there is such a way, what it is, why there is none
        "login": (
            "login" in node and not is_old,
            f"reach the login node: yes ({login}), and by it this machine",
            lacks if is_old else f"nodes do not reach the login node ({login})",
        ),
        "head": (
            "head" in node and not is_old,
            f"reach this machine: yes ({head})",
            lacks if is_old else f"nodes do not reach this machine ({head})",
        ),
        "files": (
            node["home"] == ["yes"],
            "reach nobody that is asked: told and read by files in that home",
            "nodes do not share the login node's home",
        ),
    }
    tried = list(ways) if asked == "auto" else [asked]
    for name in tried:
        if ways[name][0]:
            return f"{ways[name][1]}; route {name}", name
    raise CommandError(f"{'; '.join(dict.fromkeys(ways[n][2] for n in tried))}: no job starts")


def _apart(ticks: Iterable[str]) -> tuple[float, float]:
    """Seconds of a node's clock before the login node's, and of the way there and back."""
    times = [[float(word) for word in tick.split()] for tick in ticks if tick.count(" ") == 2]
    ways = [(end - start, at - (start + end) / 2) for start, at, end in times]
    took_s, ahead_s = min(ways, default=(0.0, 0.0))
    return ahead_s, took_s


def _said(shell: Shell, script: str, limit_s: float) -> dict[str, list[str]]:
    """Lines of a script's answer, by their first word."""
    found: dict[str, list[str]] = {}
    for word, rest in re.findall(r"(?m)^(\w+) ?(.*)$", shell.run(script, limit_s).out):
        found.setdefault(word, []).append(rest.strip())
    return found
