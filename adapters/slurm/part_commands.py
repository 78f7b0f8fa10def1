"""Commands of a part's runner to Slurm, and the meaning of their answers.

Imports the standard library only, as the runner does.
"""

from __future__ import annotations

import re
from typing import cast

from coalloc.adapters.runner.batch_job import node_counts
from coalloc.adapters.runner.command import BatchError, CommandRefusedError, UnreachableError
from coalloc.adapters.runner.grant import is_whole
from coalloc.adapters.runner.once import OVERLAP
from coalloc.adapters.runner.payload import BOOT
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
UNREACHED = "no_runner"
"""Reason of a job whose wrappers have not reached their part's runner."""

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
BY_ANOTHER = ("ended_by_admin", "the job was cancelled in Slurm by an administrator")
"""The same of a job that another than its user has cancelled."""
"""How a job's state in Slurm explains that its processes are gone."""


class SlurmSite(BatchSite):
    """Facts of a Slurm cluster for a runner."""

    conf: str
    avoid: str
    """Node set that a claim which may wait must not get."""
    exclusive: bool
    """A part has its nodes for itself."""
    max_time_s: float | None
    """The longest time limit that Slurm lets the part have; None: not known."""
    memory_mb: int
    """Of each process; 0: as much as Slurm gives."""


def site_of(spec: BatchSpec) -> SlurmSite:
    """The part's cluster, whose launcher has written it."""
    return cast(SlurmSite, spec["site"])


def allocation(spec: BatchSpec, *, is_shape: bool = False) -> list[str]:
    """The options by which a part's nodes are asked for, of srun and sbatch alike.

    `is_shape`: any nodes that have room for as many processes, not exactly its own.
    """
    site = site_of(spec)
    words = [f"--job-name={shown_name(spec)}", f"--comment={spec['token']['comment']}"]
    words.append(f"--chdir={spec['cwd']}")
    counts = node_counts(spec)
    if is_shape:
        words += _shape(spec)
    elif site["exclusive"] or len(set(counts.values())) == 1:
        names, size = ",".join(counts), str(len(counts))
        each = "--exclusive" if site["exclusive"] else f"--cpus-per-task={max(counts.values())}"
        words += [each, f"--nodelist={names}", "-N", size, "-n", size, "--ntasks-per-node=1"]
    else:
        # One word for each CPU: the only way to ask for other numbers on other nodes.
        names = ",".join(name for name, count in counts.items() for _ in range(count))
        words += ["--distribution=arbitrary", f"--nodelist={names}"]
        words += ["-N", str(len(counts)), "-n", str(sum(counts.values()))]
    if site["memory_mb"]:
        words.append(f"--mem{'' if site['exclusive'] else '-per-cpu'}={site['memory_mb']}")
    if (wanted_s := asked_s(spec, is_shape=is_shape)) is not None:
        words.append(f"--time={int(wanted_s // 60)}")
    return words + site["options"]


def asked_s(spec: BatchSpec, *, is_shape: bool) -> float | None:
    """The time limit that Slurm is asked for, whole minutes in seconds; None: none."""
    limit_s, queue = spec["time_limit_s"], spec["queue"] if is_shape else None
    held_s = 0.0 if queue is None else queue["hold_s"]
    return None if limit_s is None else 60.0 * minutes(spec, limit_s, held_s)


def minutes(spec: BatchSpec, limit_s: float, held_s: float = 0.0) -> int:
    """Slurm's time limit: the part's own, `limit_s`, in whole minutes.

    Ours ends it as late, by a clock that begins with its processes; Slurm's looks twice a minute,
    and lets it end within ``KillWait``. A part that meets others gets what comes before and after
    its run as well, but no more than the partition allows, where its own is within that.

    Parameters
    ----------
    held_s : float
        For so long it may hold its nodes before it starts, seconds.
    """
    most_s = site_of(spec)["max_time_s"]
    around_s = 0.0 if is_whole(spec) else held_s + HOLD_S + spec["grace_s"]
    wanted = -int(-(limit_s + around_s) // 60)
    if most_s is None or limit_s > most_s:
        return wanted
    return min(wanted, max(1, int(most_s // 60)))


def _shape(spec: BatchSpec) -> list[str]:
    """As many nodes, or CPUs on whatever nodes, as the part has processes."""
    site, size = site_of(spec), str(len(spec["ranks"]))
    begin_s = 0.0 if spec["queue"] is None else spec["queue"]["begin_s"]
    words = ["-n", size]
    if site["exclusive"]:
        words += ["--exclusive", "-N", size, "--ntasks-per-node=1"]
    if site["avoid"]:
        words.append(f"--exclude={site['avoid']}")
    if begin_s >= 1.0:
        words.append(f"--begin=now+{int(begin_s)}")
    return words


def shown_name(spec: BatchSpec) -> str:
    """The name under which Slurm lists and accounts a part: its job's own."""
    name = "".join(c if c.isprintable() else "?" for c in spec["name"]).strip()
    return name[:LONGEST_NAME] or f"coalloc-{spec['job']}"


def srun_words(spec: BatchSpec) -> list[str]:
    """Claim exactly the part's nodes, and run a wrapper on each.

    Without ``--immediate``, whose refusals Slurm accounts as failed jobs: a claim that comes to
    wait is withdrawn (`part_job`). The wrappers' end is the job's, with their exit code.
    """
    words = ["-v", *allocation(spec), *STEP, *([] if site_of(spec)["exclusive"] else ["--overlap"])]
    return [*words, "/bin/sh", "-c", ONE_ON_EACH_NODE, "sh", *_wrapper(spec)]


def sbatch_variables(spec: BatchSpec) -> dict[str, str]:
    """Variables for srun that a script of the step needs: as sbatch has them, and `OVERLAP`."""
    site = site_of(spec)
    unit, variables = ("NODE", {OVERLAP: "1"}) if site["exclusive"] else ("CPU", {})
    if site["memory_mb"]:
        variables[f"SLURM_MEM_PER_{unit}"] = str(site["memory_mb"])
    return variables


def sbatch_words(spec: BatchSpec) -> list[str]:
    """Take a turn in the queue, for any nodes of the part's shape."""
    own = ["--parsable", "--no-requeue", "--output=/dev/null"]
    if spec["queue"] is not None and (nice := spec["queue"]["nice"]):
        own.append(f"--nice={nice}")
    return [*own, *allocation(spec, is_shape=True)]


def _wrapper(spec: BatchSpec) -> list[str]:
    return [spec["site"]["python"], "-I", "-S", "-c", BOOT]


def batch_script(spec: BatchSpec, srun: str) -> str:
    """The script for sbatch; only where it runs is it known on how many nodes.

    It becomes the wrapper of a single node itself; on several, a step has one on each, with all
    that was allocated there.
    """
    wrapper = " ".join("'" + word.replace("'", "'\\''") + "'" for word in _wrapper(spec))
    step = ("--ntasks-per-node=1", "--overlap", "--whole", "--mem=0", *STEP)
    return (
        "#!/bin/sh\n"
        # A requeued job must not come to the barrier a second time.
        '[ "${SLURM_RESTART_COUNT:-0}" = 0 ] || exit 1\n'
        f"[ {NODE_COUNT} = 1 ] && exec {wrapper}\n"
        f"exec {srun} -N {NODE_COUNT} -n {NODE_COUNT} {' '.join(step)} {wrapper}\n"
    )


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
    """The reason of a job as ``scontrol -o show job`` has it; `UNREACHED` by its exit code."""
    code = shown_field(text, "ExitCode").partition(":")[0]
    return UNREACHED if code == str(NO_RUNNER) else shown_field(text, "Reason")


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


def allocated(text: str) -> list[tuple[str, int]]:
    """Node sets and the CPUs on each of their nodes, of ``scontrol -d -o show job``."""
    found = []
    for names, cpus in re.findall(r"(?:^|\s)Nodes=(\S+) CPU_IDs=(\S+)", text):
        spans = (span.partition("-") for span in cpus.split(","))
        found.append((names, sum(int(last or first) - int(first) + 1 for first, _, last in spans)))
    return found


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
