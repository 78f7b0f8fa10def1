"""The words of sbatch: its options and their variables, and what each comes to here.

One row serves ``coalloc sbatch``, ``coalloc submit``, the documents and the tests, which hold each
against the real command: it means the same here, is a warning, or is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple


class Consequence(Enum):
    """The end of a job with an option of sbatch."""

    MEANT = "meant"
    """The option means the same; ``coalloc sbatch`` declares it."""
    PASSED = "passed"
    """Passed on with a batch script, for the Slurm of its one cluster to judge."""
    WARNED = "warned"
    """The same program runs on as much; it is queued."""
    REFUSED = "refused"
    """Something else would run, or not as it was meant to."""


class Word(NamedTuple):
    """An option of sbatch."""

    names: str
    """As they are typed; the last is the one that is shown."""
    verdict: Consequence
    why: str = ""
    """Consequence in words; of one that is meant, where ``coalloc submit`` has none such."""
    variables: str = ""
    """The input variables that stand for it."""
    value: str = "needed"
    """``needed``, ``optional`` (joined by ``=``) or ``none``."""
    harmless: tuple[str, ...] = ()
    """Values that ask for what happens anyway."""

    @property
    def flags(self) -> list[str]:
        return self.names.split()

    @property
    def dest(self) -> str:
        """The name of its value where coalloc has no such option."""
        return f"sbatch_{self.flags[-1].lstrip('-').replace('-', '_')}"


HETEROGENEOUS = ("hetjob", "packjob")
"""Words that part a job's components, as one with a colon before it does."""
M, P, W, R = Consequence
PASSED_ON = "is for the Slurm of one cluster; coalloc sbatch, and submit --once, pass it on"
TUNING = "is not passed on"
GPUS = "GPUs are asked for by --gpus-per-node, --gpus-per-task or --gres"
WEIGHT = "is not passed on; --weight says how important"
STEP = "is an option of srun; write it in the script, behind srun"
COMPONENTS = "jobs of several components are not run here"
INTERACTIVE = "coalloc run --pty gives a terminal; there is no X11"

_SAME = (
    *(("-A --account", "SBATCH_ACCOUNT"), ("-a --array", "SBATCH_ARRAY_INX"), ("-b --begin", "")),
    *(("-D --chdir", ""), ("-M --cluster --clusters", "SLURM_CLUSTERS SBATCH_CLUSTERS")),
    *(("-C --constraint", "SBATCH_CONSTRAINT"), ("--deadline", ""), ("-d --dependency", "")),
    *(("-e --error", "SBATCH_ERROR"), ("--export", "SBATCH_EXPORT"), ("--gres", "SBATCH_GRES")),
    *(("-J --job-name", "SBATCH_JOB_NAME"), ("-L --licenses", ""), ("-n --ntasks", "")),
    *(("-o --output", "SBATCH_OUTPUT"), ("-p --partition", "SBATCH_PARTITION")),
    *(("-q --qos", "SBATCH_QOS"), ("--reservation", "SBATCH_RESERVATION")),
    *(("-t --time", "SBATCH_TIMELIMIT"), ("--wrap", ""), ("-c --cpus-per-task", "")),
    *(("--cpus-per-gpu", "SBATCH_CPUS_PER_GPU"), ("-G --gpus", "SBATCH_GPUS")),
    *(("--gpus-per-node", "SBATCH_GPUS_PER_NODE"), ("--gpus-per-task", "SBATCH_GPUS_PER_TASK")),
    *(("--mem", "SBATCH_MEM_PER_NODE"), ("--mem-per-cpu", "SBATCH_MEM_PER_CPU")),
    *(("--mem-per-gpu", "SBATCH_MEM_PER_GPU"), ("-N --nodes", "")),
    *(("--tasks-per-node --ntasks-per-node", ""), ("--ntasks-per-gpu", "")),
    *(("--mail-type", ""), ("--mail-user", "")),
)
"""Options that mean the same and have a value, and their variables."""
_PASSED = (
    *(("--acctg-freq", "SBATCH_ACCTG_FREQ"), ("-S --core-spec", "SBATCH_CORE_SPEC")),
    *(("--cores-per-socket", ""), ("--cpu-freq", "SBATCH_CPU_FREQ_REQ")),
    *(("-m --distribution", "SBATCH_DISTRIBUTION"), ("-x --exclude", "")),
    *(("-B --extra-node-info", ""), ("--gpu-bind", "SBATCH_GPU_BIND")),
    *(("--gpu-freq", "SBATCH_GPU_FREQ"), ("--gres-flags", "SBATCH_GRES_FLAGS")),
    *(("--hint", "SLURM_HINT SBATCH_HINT"), ("--mem-bind", "SBATCH_MEM_BIND")),
    *(("--mincpus", ""), ("--network", "SBATCH_NETWORK"), ("-w --nodelist", "")),
    *(("--ntasks-per-core", ""), ("--ntasks-per-socket", ""), ("--prefer", "")),
    *(("--signal", "SBATCH_SIGNAL"), ("--sockets-per-node", "")),
    *(("--switches", "SBATCH_REQ_SWITCH"), ("--thread-spec", "SBATCH_THREAD_SPEC")),
    *(("--threads-per-core", "SBATCH_THREADS_PER_CORE"), ("--tmp", ""), ("--tres-bind", "")),
    ("--wckey", "SBATCH_WCKEY"),
)
_PASSED_BARE = (
    *(("--contiguous", ""), ("-O --overcommit", "SBATCH_OVERCOMMIT")),
    *(("--spread-job", "SBATCH_SPREAD_JOB"), ("--use-min-nodes", "SBATCH_USE_MIN_NODES")),
)
"""Options of one cluster's Slurm, and their variables; the second have no value."""

WORDS: tuple[Word, ...] = (
    *(Word(names, M, variables=variables) for names, variables in _SAME),
    Word("-H --hold", M, value="none"),
    Word("--no-requeue", M, "is the default; leave it out", "SBATCH_NO_REQUEUE", "none"),
    Word("--parsable", M, value="none"),
    Word("-Q --quiet", M, value="none"),
    Word("--requeue", M, variables="SBATCH_REQUEUE", value="none"),
    Word("--test-only", M, value="none"),
    Word("-v --verbose", M, "there is no more to say", "SBATCH_DEBUG", "none"),
    Word("-W --wait", M, variables="SBATCH_WAIT", value="none"),
    Word("--exclusive", M, variables="SBATCH_EXCLUSIVE", value="optional"),
    # one cluster's Slurm judges it
    *(Word(names, P, PASSED_ON, variables) for names, variables in _PASSED),
    *(Word(names, P, PASSED_ON, variables, "none") for names, variables in _PASSED_BARE),
    # the same program runs on as much
    Word("--admin-comment", W, TUNING),
    Word("--comment", W, TUNING),
    Word("--delay-boot", W, TUNING, "SBATCH_DELAY_BOOT"),
    Word("--extra", W, TUNING),
    Word("--get-user-env", W, "--export says what is", "SBATCH_GET_USER_ENV", "optional"),
    Word("--ignore-pbs", W, "#PBS lines are never read", "SBATCH_IGNORE_PBS", "none"),
    Word("--kill-on-invalid-dep", W, "a job that waits in vain is cancelled", harmless=("yes",)),
    Word("--nice", W, WEIGHT, value="optional"),
    Word("-k --no-kill", W, "a failed node ends the job", "SBATCH_NO_KILL", "optional", ("off",)),
    Word("--oom-kill-step", W, TUNING, value="optional"),
    Word("--open-mode", W, "output is appended", "SBATCH_OPEN_MODE", harmless=("append",)),
    Word("-s --share --oversubscribe", W, TUNING, value="none"),
    Word("--power", W, TUNING, "SBATCH_POWER"),
    Word("--priority", W, WEIGHT),
    Word("--profile", W, TUNING, "SBATCH_PROFILE"),
    Word("--propagate", W, "is not passed on; limits are the node's", value="optional"),
    Word("--segment", W, "is not passed on; nodes are chosen by the planner"),
    Word("--time-min", W, "is not passed on; the limit is --time"),
    Word(
        "--wait-all-nodes", W, "all of them are awaited", "SBATCH_WAIT_ALL_NODES", harmless=("1",)
    ),
    # something else would run, or not as it was meant to
    Word("--batch", R, "the script runs on the job's first node", "SBATCH_BATCH"),
    Word("--bb", R, "there are no burst buffers here", "SBATCH_BURST_BUFFER"),
    Word("--bbf", R, "there are no burst buffers here"),
    Word("--cluster-constraint", R, "name clusters with --clusters", "SBATCH_CLUSTER_CONSTRAINT"),
    Word("--container", R, "start the container in the script", "SBATCH_CONTAINER"),
    Word("--container-id", R, "start the container in the script"),
    Word("--export-file", R, "variables are named by --export"),
    Word("--gid", R, "a job has the group of the user who submits it"),
    Word("--gpus-per-socket", R, GPUS, "SBATCH_GPUS_PER_SOCKET"),
    Word("-h --help", R, "no help is given in a script", value="none"),
    Word("--het-group", R, COMPONENTS),
    Word("-i --input", R, "redirect it in the script", "SBATCH_INPUT", harmless=("/dev/null",)),
    Word("--mcs-label", R, "labels cannot be asked for"),
    Word("-F --nodefile", R, "write the names behind --nodelist"),
    Word("--ntasks-per-tres", R, GPUS),
    Word("--reboot", R, "nodes are not rebooted for a job", value="none"),
    Word("--tres-per-task", R, GPUS),
    Word("--uid", R, "a job is of the user who submits it"),
    Word("--usage", R, "coalloc sbatch --help shows the options", value="none"),
    Word("-V --version", R, "coalloc --version shows it", value="none"),
    # of srun and salloc
    Word("--immediate", R, "a job waits; --deadline says until when", value="optional"),
    Word("--kill-on-bad-exit", R, STEP, value="optional"),
    Word("--label", R, STEP, value="none"),
    Word("--mpi", R, STEP),
    Word("--no-shell", R, INTERACTIVE, value="none"),
    Word("--pty", R, INTERACTIVE, value="none"),
    Word("--unbuffered", R, STEP, value="none"),
    Word("--x11", R, INTERACTIVE, value="optional"),
)
BY_FLAG: Mapping[str, Word] = {flag: word for word in WORDS for flag in word.flags}


def written_out(flag: str) -> str:
    """A long option in full, as getopt_long completes it; as it is where that cannot be."""
    begun = {BY_FLAG[each].flags[-1] for each in BY_FLAG if each.startswith(flag)}
    return begun.pop() if len(begun) == 1 and len(flag) > 2 else flag
