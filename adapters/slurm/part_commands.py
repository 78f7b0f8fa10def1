"""Commands of a part's runner to Slurm, and the meaning of their answers.

Imports the standard library only, as the runner does.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import cast

from coalloc.adapters.runner.batch.job import behind_s, node_counts
from coalloc.adapters.runner.command import BatchError, CommandRefusedError, UnreachableError
from coalloc.adapters.runner.grant import is_whole
from coalloc.adapters.runner.once import OF_TASKS, OVERLAP, gpus_of
from coalloc.adapters.runner.payload import BOOT
from coalloc.adapters.runner.rank import FaultError
from coalloc.adapters.runner.spec import BatchSite, BatchSpec
from coalloc.adapters.runner.status import NO_RUNNER
from coalloc.adapters.slurm.pending_reasons import (
    FATES,
    NEVER,
    OTHERS_FIRST,
    UNKNOWN,
    WAITS,
    fate_of,
    is_stuck,
)

LONGEST_NAME = 200
HOLD_S = 20.0
"""Between a grant and the start: the other parts and the wrappers come up, seconds."""
ALIVE = frozenset(
    {"PENDING", "CONFIGURING", "RUNNING", "SUSPENDED", "STOPPED", "RESIZING", "SIGNALING"}
)
"""States of a Slurm job whose processes may run, or will."""
ENDING = "COMPLETING"
"""State that stands before a job's end state until its nodes are free."""
REQUEUED = frozenset({"PENDING", "REQUEUED", "REQUEUE_HOLD", "SPECIAL_EXIT"})
"""States of a job that has run and is to run once more."""

NODE_COUNT = '"$SLURM_JOB_NUM_NODES"'
STEP = (
    *("--wait=0", "--mpi=none", "--cpu-bind=none", "--input=none"),
    *("--kill-on-bad-exit=1", "--export=ALL"),
)
"""Options of the step that the wrappers are."""
BY_FILES = tuple(word for word in STEP if not word.startswith(("--input", "--kill")))
"""The same of a step that hears its standard input, and in which nodes end one by one."""
UNBOUND = "--gpu-bind=closest"
"""Where each task has GPUs: the first sees all of its node. (With ``none``, 22.05 shows none.)"""
ONE_ON_EACH_NODE = 'exec 2>&1; [ "${SLURM_LOCALID:-0}" = 0 ] || exit 0; exec "$@"'
"""Slurm counts CPUs that are not equally many on each node as tasks; the first brings all up."""
FULL = ("job queue full", "temporarily unable to accept")
"""Message of srun and sbatch before they try again for a minute: MaxJobCount, most often."""
WAITABLE = frozenset(ours for _, fate, ours, _ in FATES if fate == WAITS) | {UNKNOWN}
"""Refusals of a claim at once after which it may wait its turn."""
REFUSALS = (
    # Its words about limits on time come with the refusal for too many jobs, too.
    ("job violates", "over_limit"),
    ("insufficient priority", OTHERS_FIRST),
    ("requested nodes are busy", "nodes_taken"),
    ("required node not available", "node_unavailable"),
    ("requested node configuration is not available", "nodes_taken"),
    ("invalid node name", "unknown_node"),
    ("invalid partition", "partition_closed"),
    ("required partition not available", "partition_closed"),
    ("nodes not in this partition", "unknown_node"),
    ("requested node not in this partition", "unknown_node"),
    ("invalid account", "not_permitted"),
    ("invalid qos", "not_permitted"),
    ("invalid feature", "not_permitted"),
    ("invalid generic resource", "not_permitted"),
    ("invalid license", "not_permitted"),
    ("requested reservation is invalid", "not_permitted"),
    ("access denied to requested reservation", "not_permitted"),
    ("permission denied", "not_permitted"),
    ("not permitted", "not_permitted"),
    ("invalid user id", "user_unknown"),
    ("time limit", "bad_time_limit"),
    *((phrase, "slurm_full") for phrase in FULL),
    ("licenses job requested", "over_limit"),
    ("requested partition configuration", "over_limit"),
)
"""What Slurm says, in lower case, and the reason of the refusal."""

NO_SUCH_JOB = ("invalid job id", "invalid job array id")
NO_ACCOUNTING = ("accounting storage is disabled", "cannot be run")
"""What Slurm says, in lower case, of a job that it has not, and of accounting that is not there."""
UNREACHED, NOT_LAUNCHED = "no_runner", "not_launched"
"""Reasons of a job whose wrappers have not reached their part's runner; or have not begun."""

FIRST = "Resources"
"""Reason of a job that waits for nodes alone: those behind it have the reason ``Priority``."""
UNDECIDED = frozenset({"", "None"})
"""Reasons of a job that Slurm has not looked at yet."""
ENDS = {
    "TIMEOUT": ("time_limit", "Slurm's own time limit ended the job"),
    "DEADLINE": ("time_limit", "Slurm's deadline ended the job"),
    "CANCELLED": ("cancelled_there", "the job was cancelled in Slurm"),
    "NODE_FAIL": ("node_failed", "a node of the job failed"),
    "BOOT_FAIL": ("node_failed", "a node of the job did not boot"),
    "PREEMPTED": ("preempted", "the job was preempted in Slurm"),
    "OUT_OF_MEMORY": ("out_of_memory", "the job ran out of memory"),
    "REVOKED": ("cancelled_there", "the job was revoked in Slurm"),
}
"""How a job's state in Slurm explains that its processes are gone."""
BY_ANOTHER = ("ended_by_admin", "the job was cancelled in Slurm by an administrator")
"""The same of a job that another than its user has cancelled."""
BY_SLURM = ("node_failed", "Slurm could not launch the job on its nodes, and cancelled it")
"""The same of one that slurmd has cancelled since it may not be requeued."""
SLURMD = "0"
"""Uid of who has, then."""
UNBEGUN = frozenset({"0:0", "0:54"})
"""Exit codes of a cancelled job whose wrappers had not begun (22.05): of sbatch, and of srun where
a prolog failed. Others that are cancelled end by a signal, mostly 15, or with a code."""


class SlurmSite(BatchSite):
    """Facts of a Slurm cluster for a runner."""

    conf: str
    avoid: str
    """Node set that a claim which may wait must not get."""
    exclusive: bool
    """A part has its nodes for itself."""
    passed: bool
    """Its options are more than what a claim at once can say."""
    max_time_s: float | None
    """The longest time limit that Slurm lets the part have; None: not known."""
    memory_mb: int
    """Of each process; 0: its job says no such thing, or as much as Slurm gives."""


def site_of(spec: BatchSpec) -> SlurmSite:
    """The part's cluster, whose launcher has written it."""
    return cast(SlurmSite, spec["site"])


def allocation(spec: BatchSpec, *, is_shape: bool = False) -> list[str]:
    """Options of srun and sbatch for exactly a part's nodes, or any with room for its shape."""
    words = [f"--job-name={shown_name(spec)}", f"--comment={spec['token']['comment']}"]
    words.append(f"--chdir={spec['cwd']}")
    counts, cpus = node_counts(spec), cpus_each(spec)
    names, size = ",".join(counts), str(len(counts))
    # First, so that what follows prevails.
    words += site_of(spec)["options"]
    if is_shape:
        words += [*_shape(spec), *_gres(spec, 1 if is_one_on_each(spec) else 0)]
    elif is_whole_nodes(spec) or len(set(counts.values())) == 1:
        # One task on each node sees all CPUs and GPUs that the part asks for there.
        words += ["--exclusive"] if is_whole_nodes(spec) else []
        if not is_one_on_each(spec):
            words.append(f"--cpus-per-task={max(counts.values()) * cpus}")
        words += [f"--nodelist={names}", "-N", size, "-n", size, "--ntasks-per-node=1"]
        words += _gres(spec, min(counts.values()))
    else:
        # How many on which of them is Slurm's to find: it heeds no distribution before it starts.
        words += [f"--nodelist={names}", "-N", size, "-n", str(sum(counts.values()))]
        words += [*([f"--cpus-per-task={cpus}"] if cpus > 1 else []), *_gres(spec, 0)]
    words += [f"--mem{unit}={value}" for unit, value in memory_of(spec)]
    if (wanted_s := asked_s(spec, is_shape=is_shape)) is not None:
        words.append(f"--time={int(wanted_s // 60)}")
    return words


def may_be_at_once(spec: BatchSpec) -> bool:
    """Whether a claim at once can say all that is asked, and its step has all that is granted.

    Other options may be of a batch job alone. A step of tasks that are not one on each node takes
    whole cores for each; one of whole nodes has no GPUs for which nobody has asked.
    """
    of_tasks = cpus_each(spec) > 1 or gpus_of(spec["shape"])
    is_uneven = len(set(node_counts(spec).values())) > 1 and not is_whole_nodes(spec)
    is_open = spec["shape"].get("exclusive", False)
    return not (site_of(spec)["passed"] or is_open or (is_uneven and of_tasks))


def cpus_each(spec: BatchSpec) -> int:
    """CPUs of each process."""
    return max(1, int(spec["shape"].get("cpus_per_proc", 0)))


def is_whole_nodes(spec: BatchSpec) -> bool:
    """Whether the part has its nodes for itself."""
    return site_of(spec)["exclusive"] or spec["shape"].get("exclusive", False)


def is_one_on_each(spec: BatchSpec) -> bool:
    """Whether a process is a node."""
    return site_of(spec)["exclusive"] and not spec["shape"].get("cpus_per_proc", 0)


def memory_of(spec: BatchSpec) -> list[tuple[str, int]]:
    """Ending of ``--mem`` and MiB, on each node or for each CPU; none where nothing is asked."""
    site, shape, each = site_of(spec), spec["shape"], site_of(spec)["memory_mb"]
    on_node = shape.get("memory_mb_per_node", 0)
    if shape.get("all_memory"):
        return [("", 0)]
    if each and not on_node and not site["exclusive"]:
        return [("-per-cpu", -(-each // cpus_each(spec)))]
    total = on_node + each * max(node_counts(spec).values())
    return [("", total)] if total else []


def _gres(spec: BatchSpec, procs: int) -> list[str]:
    """GRES of nodes with so many processes each; 0: with numbers that differ."""
    on_node, gpus = dict(spec["shape"].get("per_node", {})), gpus_of(spec["shape"])
    for name, count in spec["shape"].get("per_proc", {}).items():
        if procs:
            on_node[name] = on_node.get(name, 0) + count * procs
        elif not name.startswith("gpu"):
            raise FaultError("not_permitted", f"{name} for each process cannot be asked of Slurm")
    words = ",".join(f"{name}:{count}" for name, count in on_node.items())
    of_tasks = [f"--gpus-per-task={gpus}"] if gpus and not procs else []
    return [*([f"--gres={words}"] if words else []), *of_tasks]


def asked_s(spec: BatchSpec, *, is_shape: bool) -> float | None:
    """The time limit that Slurm is asked for, whole minutes in seconds; None: none."""
    limit_s, queue = spec["time_limit_s"], spec["queue"] if is_shape else None
    held_s = 0.0 if queue is None else queue["hold_s"]
    return None if limit_s is None else 60.0 * minutes(spec, limit_s, held_s)


def minutes(spec: BatchSpec, limit_s: float, held_s: float = 0.0) -> int:
    """Slurm's time limit: the part's own, `limit_s`, in whole minutes.

    Ours ends it as late, by a clock that begins with its processes; Slurm's looks twice a minute,
    and lets it end within ``KillWait``. A part that meets others gets what comes before (`held_s`
    seconds with its nodes) and after its run as well, but no more than the partition allows, where
    its own is within that.
    """
    most_s = site_of(spec)["max_time_s"]
    around_s = behind_s(spec) if is_whole(spec) else held_s + HOLD_S + spec["grace_s"]
    wanted = -int(-(limit_s + around_s) // 60)
    if most_s is None or limit_s > most_s:
        return wanted
    return min(wanted, max(1, int(most_s // 60)))


def _shape(spec: BatchSpec) -> list[str]:
    """As many nodes, or CPUs on whatever nodes, as the part's processes ask for."""
    site, shape, size = site_of(spec), spec["shape"], str(len(spec["ranks"]))
    begin_s = 0.0 if spec["queue"] is None else spec["queue"]["begin_s"]
    words = ["-n", size]
    nodes, on_each = _node_range(spec), shape.get("procs_per_node", 0)
    if is_one_on_each(spec):
        nodes, on_each = size, 1
    elif not on_each and memory_of(spec) and site["memory_mb"] and memory_of(spec)[0][0] == "":
        on_each = max(node_counts(spec).values())  # for so many is the memory of a node
    if (cpus := cpus_each(spec)) > 1:
        words += ["-c", str(cpus)]
    if is_whole_nodes(spec):
        words.append("--exclusive")
    words += ["-N", nodes] if nodes else []
    words += [f"--ntasks-per-node={on_each}"] if on_each else []
    if site["avoid"]:
        words.append(f"--exclude={site['avoid']}")
    if begin_s >= 1.0:
        words.append(f"--begin=now+{int(begin_s)}")
    return words


def _node_range(spec: BatchSpec) -> str:
    """The nodes that a part may have, as ``-N`` has them; empty: any number."""
    low, high = spec["shape"].get("min_nodes", 1), spec["shape"].get("max_nodes", 0)
    if low == 1 and not high:
        return ""
    if not is_whole(spec):  # they are of all parts together
        low = high = len(node_counts(spec))
    high = high or len(spec["ranks"])
    return str(low) if low == high else f"{low}-{high}"


def shown_name(spec: BatchSpec) -> str:
    """The name under which Slurm lists and accounts a part: its job's own."""
    name = "".join(c if c.isprintable() else "?" for c in spec["name"]).strip()
    return name[:LONGEST_NAME] or f"coalloc-{spec['job']}"


def srun_words(spec: BatchSpec) -> list[str]:
    """Claim exactly the part's nodes, and run a wrapper on each.

    Without ``--immediate``, whose refusals Slurm accounts as failed jobs: a claim that comes to
    wait is withdrawn (`part_job`). The wrappers' end is the job's, with their exit code.
    """
    words = ["-v", *allocation(spec), *STEP, *([] if is_whole_nodes(spec) else ["--overlap"])]
    words += [UNBOUND] if any(word.startswith("--gpus-per-task") for word in words) else []
    return [*words, "/bin/sh", "-c", ONE_ON_EACH_NODE, "sh", *_wrapper(spec)]


def sbatch_variables(spec: BatchSpec) -> dict[str, str]:
    """Variables for srun that a script of the step needs: as sbatch has them, and `OVERLAP`."""
    variables = {OVERLAP: "1"} if is_whole_nodes(spec) else {}
    for unit, value in memory_of(spec):
        if value:
            variables[f"SLURM_MEM_PER_{'CPU' if unit else 'NODE'}"] = str(value)
    return variables


def sbatch_words(spec: BatchSpec, *, is_shape: bool = True) -> list[str]:
    """Take a turn in the queue, for any nodes of the part's shape, or for exactly its own."""
    own = ["--parsable", "--no-requeue", "--output=/dev/null"]
    if spec["queue"] is not None and (nice := spec["queue"]["nice"]):
        own.append(f"--nice={nice}")
    return [*own, *allocation(spec, is_shape=is_shape)]


def _wrapper(spec: BatchSpec) -> list[str]:
    return [spec["site"]["python"], "-I", "-S", "-c", BOOT]


def batch_script(spec: BatchSpec, place: Mapping[str, str], by_files: str = "") -> str:
    """The script for sbatch; only where it runs is it known on how many nodes.

    `by_files` is the script where nodes reach nobody: its arguments are the step, of a shell.

    The wrapper and its `place` stand in it: they are in no command's words or environment, and a
    site that exports none has them nevertheless. It becomes the wrapper of a single node itself; on
    several, a step has one on each, with all that was allocated there.
    """
    words = ["/bin/sh"] if by_files else _wrapper(spec)
    wrapper = " ".join("'" + word.replace("'", "'\\''") + "'" for word in words)
    layout = f"-n {NODE_COUNT} --ntasks-per-node=1 --whole"
    if gpus := gpus_of(spec["shape"]):
        # A step with other tasks would have other GPUs than the job has.
        layout = f"-n {len(spec['ranks'])} -c {cpus_each(spec)} --gpus-per-task={gpus} {UNBOUND}"
        wrapper = f"/bin/sh -c '{ONE_ON_EACH_NODE}' sh {wrapper}"
    exports = "\n".join(f"export {name}={shlex.quote(value)}" for name, value in place.items())
    folder = spec["site"]["bin"]  # which the node need not have
    path = f'PATH={shlex.quote(folder)}:"$PATH"\n' if folder else ""
    step = f"srun -N {NODE_COUNT} {layout} --overlap --mem=0"
    unset = f"unset {' '.join(OF_TASKS)}\n"
    # A requeued job must not come to the barrier a second time.
    head = f'#!/bin/sh\n[ "${{SLURM_RESTART_COUNT:-0}}" = 0 ] || exit 1\n{exports}\n'
    if by_files:
        return f"{head}{path}set -- {step} {' '.join(BY_FILES)} {wrapper}\n{by_files}"
    run = f"{path}exec {step} {' '.join(STEP)} {wrapper}\n"
    return f"{head}[ {NODE_COUNT} = 1 ] && exec {wrapper}\n{unset}{run}"


def granted(said: str) -> str:
    """The job's number in what srun or sbatch said; empty where there is none."""
    match = re.search(r"jobid (\d+): nodes", said) or re.match(r"(\d+)(;|\s|$)", said)
    return match.group(1) if match else ""


def told(said: str) -> str:
    """Errors of srun, without what it was asked for (``-v``) and how it goes about it."""
    lines = said.rpartition("end of defined options")[2].splitlines()
    return "\n".join(line for line in lines if "error:" in line) or "\n".join(lines)


def pending_claim(said: str) -> str:
    """The number of a claim of srun's that waits; empty where it does not."""
    match = re.search(r"job (\d+) queued and waiting", said)
    return match.group(1) if match else ""


def refusal(error: BatchError) -> str:
    """The reason in a command's refusal."""
    said = error.why.lower()
    if isinstance(error, UnreachableError):
        return "slurm_full" if any(phrase in said for phrase in FULL) else "unreachable"
    limits = map(fate_of, re.findall(r"\b(?:QOS|Assoc|Max)\w+", error.why))
    if lasting := next((reason for fate, reason in limits if fate == NEVER), ""):
        return lasting
    return next((reason for phrase, reason in REFUSALS if phrase in said), UNKNOWN)


def shown_field(text: str, key: str) -> str:
    """The value of a field of ``scontrol -o show job``; empty where there is none."""
    match = re.search(rf"(?:^|\s){key}=(\S*)", text)
    return match.group(1) if match else ""


def shown_reason(text: str) -> str:
    """The reason of a job as ``scontrol -o show job`` has it; two of ours by its exit code."""
    code = shown_field(text, "ExitCode")
    if code.partition(":")[0] == str(NO_RUNNER):
        return UNREACHED
    has_nodes = shown_field(text, "NodeList") not in {"", "(null)"}
    if shown_field(text, "JobState") == "CANCELLED" and has_nodes and code in UNBEGUN:
        return NOT_LAUNCHED
    return shown_field(text, "Reason")


def is_no_such_job(error: BatchError) -> bool:
    """Whether a refusal says that there is no such job; any other leaves the job unknown."""
    said = error.why.lower() if isinstance(error, CommandRefusedError) else ""
    return any(phrase in said for phrase in NO_SUCH_JOB)


def canceller(said: str) -> str:
    """The uid of who has cancelled a job, in what sacct says of its state; empty: nobody."""
    match = re.search(r"CANCELLED by (\d+)", said)
    return match.group(1) if match else ""


def is_without_accounting(error: BatchError) -> bool:
    """Whether there is no accounting that sacct could ask, or no sacct."""
    return any(phrase in error.why.lower() for phrase in NO_ACCOUNTING)


def allocated(text: str) -> list[tuple[str, int, str]]:
    """Node sets, the CPUs on each of their nodes, and its GRES, of ``scontrol -d show job``."""
    found = []
    shown = r"(?:^|\s)Nodes=(\S+) CPU_IDs=(\S+)(?: Mem=\S*)?(?: GRES=(\S*))?"
    for names, cpus, gres in re.findall(shown, text):
        spans = (span.partition("-") for span in cpus.split(","))
        count = sum(int(last or first) - int(first) + 1 for first, _, last in spans)
        found.append((names, count, gres))
    return found


def room_of(spec: BatchSpec, cpus: int, gres: str) -> int:
    """Processes for which what was allocated on a node is enough."""
    if is_one_on_each(spec):
        return 1
    most = cpus // cpus_each(spec)
    for name, each in spec["shape"].get("per_proc", {}).items():
        named = re.findall(rf"(?:^|,){re.escape(name)}(?::[^:,(]*)?:(\d+)", gres)
        most = min(most, sum(map(int, named)) // each)
    return min(most, int(spec["shape"].get("procs_per_node", most)))


def explained(state: str, reason: str) -> tuple[str, str]:
    """Reason and detail of a job that ended in this state."""
    if state == "PENDING" and is_stuck(reason):
        return fate_of(reason)[1], f"Slurm says {reason}"
    known = ENDS.get(state)
    if known is not None:
        return known
    if state in ALIVE or state in {"COMPLETED", ENDING, "FAILED"}:
        return "step_failed", f"the wrappers ended before they reported (job {state.lower()})"
    return "ended_in_slurm", f"the job is {state or 'UNKNOWN'} in Slurm ({reason or 'no reason'})"
