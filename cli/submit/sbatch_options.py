"""Options of sbatch that have no equal here, and what is to be said of each."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple


class Consequence(Enum):
    """The end of a job with an option that has no equal."""

    WARNED = "warned"
    """The same program runs on as much; it is queued."""
    REFUSED = "refused"
    """Something else would run, or not as it was meant to."""


class NoEqual(NamedTuple):
    """An option of sbatch without an equal."""

    flags: tuple[str, ...]
    """As they are typed, the long one last."""
    verdict: Consequence
    why: str
    """What happens instead."""
    value: str = "needed"
    """``needed``, ``optional`` (joined by ``=``) or ``none``."""
    harmless: tuple[str, ...] = ()
    """Values that ask for what happens anyway."""


HETEROGENEOUS = ("hetjob", "packjob", ":")
"""Words that part a job's components."""
W, R = Consequence.WARNED, Consequence.REFUSED
PLANNER = "is not passed on; nodes are chosen by the planner"
COUNTED = "is not passed on; a process takes one slot"
TUNING = "is not passed on"
MAIL = "no mail is sent to users; coalloc wait, or coalloc events --follow, tells of its end"
NAMED = "nodes cannot be named; --constraint asks for their features, --clusters for a cluster"
GPUS = "GPUs are asked for on each node: --gpus-per-node, or --gres"

NO_EQUAL: Mapping[str, NoEqual] = {
    "exclusive": NoEqual(
        ("--exclusive",),
        W,
        "is not passed on; a site says whether a slot is a whole node",
        "optional",
    ),
    "oversubscribe": NoEqual(("-s", "--share", "--oversubscribe"), W, TUNING, "none"),
    "mail_type": NoEqual(("--mail-type",), W, MAIL, harmless=("NONE",)),
    "mail_user": NoEqual(("--mail-user",), W, MAIL),
    "comment": NoEqual(("--comment",), W, TUNING),
    "admin_comment": NoEqual(("--admin-comment",), W, TUNING),
    "wckey": NoEqual(("--wckey",), W, TUNING),
    "nice": NoEqual(("--nice",), W, "is not passed on; --weight says how important", "optional"),
    "priority": NoEqual(("--priority",), W, "is not passed on; --weight says how important"),
    "distribution": NoEqual(("-m", "--distribution"), W, PLANNER),
    "contiguous": NoEqual(("--contiguous",), W, PLANNER, "none"),
    "switches": NoEqual(("--switches",), W, PLANNER),
    "spread_job": NoEqual(("--spread-job",), W, PLANNER, "none"),
    "use_min_nodes": NoEqual(("--use-min-nodes",), W, PLANNER, "none"),
    "mincpus": NoEqual(("--mincpus",), W, PLANNER),
    "hint": NoEqual(("--hint",), W, COUNTED),
    "overcommit": NoEqual(("-O", "--overcommit"), W, COUNTED, "none"),
    "ntasks_per_core": NoEqual(("--ntasks-per-core",), W, COUNTED),
    "ntasks_per_socket": NoEqual(("--ntasks-per-socket",), W, COUNTED),
    "sockets_per_node": NoEqual(("--sockets-per-node",), W, COUNTED),
    "cores_per_socket": NoEqual(("--cores-per-socket",), W, COUNTED),
    "threads_per_core": NoEqual(("--threads-per-core",), W, COUNTED),
    "extra_node_info": NoEqual(("-B", "--extra-node-info"), W, COUNTED),
    "mem_bind": NoEqual(("--mem-bind",), W, TUNING),
    "cpu_freq": NoEqual(("--cpu-freq",), W, TUNING),
    "acctg_freq": NoEqual(("--acctg-freq",), W, TUNING),
    "profile": NoEqual(("--profile",), W, TUNING),
    "power": NoEqual(("--power",), W, TUNING),
    "propagate": NoEqual(
        ("--propagate",), W, "is not passed on; limits are the node's", "optional"
    ),
    "get_user_env": NoEqual(
        ("--get-user-env",), W, "is not passed on; --export says what is", "optional"
    ),
    "time_min": NoEqual(("--time-min",), W, "is not passed on; the limit is --time"),
    "no_kill": NoEqual(
        ("-k", "--no-kill"), W, "the job ends where a node of it fails", "optional", ("off",)
    ),
    "kill_on_invalid_dep": NoEqual(("--kill-on-invalid-dep",), W, TUNING),
    "delay_boot": NoEqual(("--delay-boot",), W, TUNING),
    "ignore_pbs": NoEqual(("--ignore-pbs",), W, "#PBS lines are never read", "none"),
    "open_mode": NoEqual(
        ("--open-mode",), W, "output is appended to what a file holds", harmless=("append",)
    ),
    "nodelist": NoEqual(("-w", "--nodelist"), R, NAMED),
    "exclude": NoEqual(("-x", "--exclude"), R, NAMED),
    "nodefile": NoEqual(("-F", "--nodefile"), R, NAMED),
    "cluster_constraint": NoEqual(("--cluster-constraint",), R, "name clusters with --clusters"),
    "gpus": NoEqual(("-G", "--gpus"), R, GPUS),
    "gpus_per_task": NoEqual(("--gpus-per-task",), R, GPUS),
    "gpus_per_socket": NoEqual(("--gpus-per-socket",), R, GPUS),
    "cpus_per_gpu": NoEqual(("--cpus-per-gpu",), R, "a process takes one slot"),
    "mem_per_gpu": NoEqual(("--mem-per-gpu",), R, "memory is of a process: --mem-per-cpu"),
    "signal": NoEqual(
        ("--signal",),
        R,
        "no signal is sent ahead of the limit; at the limit SIGTERM comes, then SIGKILL",
    ),
    "input": NoEqual(
        ("-i", "--input"),
        R,
        "standard input is empty; redirect it in the script",
        harmless=("/dev/null",),
    ),
    "export_file": NoEqual(("--export-file",), R, "variables are named by --export"),
    "tmp": NoEqual(("--tmp",), R, "disk cannot be asked for; --constraint asks for features"),
    "core_spec": NoEqual(("-S", "--core-spec"), R, "cores cannot be set aside"),
    "thread_spec": NoEqual(("--thread-spec",), R, "threads cannot be set aside"),
    "container": NoEqual(("--container",), R, "start the container in the script"),
    "container_id": NoEqual(("--container-id",), R, "start the container in the script"),
    "burst_buffer": NoEqual(("--bb",), R, "there are no burst buffers here"),
    "burst_buffer_file": NoEqual(("--bbf",), R, "there are no burst buffers here"),
    "network": NoEqual(("--network",), R, "networks cannot be asked for"),
    "reboot": NoEqual(("--reboot",), R, "nodes are not rebooted for a job", "none"),
    "uid": NoEqual(("--uid",), R, "a job is of the user who submits it"),
    "gid": NoEqual(("--gid",), R, "a job has the group of the user who submits it"),
    "het_group": NoEqual(("--het-group",), R, "jobs of several components are not run here"),
}
"""By a name of ours."""
BARE = tuple(flag for each in NO_EQUAL.values() if each.value == "optional" for flag in each.flags)
