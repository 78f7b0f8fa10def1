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
    """Consequence in words; of one that is meant, what to write for it at ``coalloc submit``,
    and nothing where it is the same there."""
    variables: str = ""
    """The input variables that stand for it."""
    value: str = "needed"
    """``needed``, ``optional`` (joined by ``=``) or ``none``."""
    harmless: tuple[str, ...] = ()
    """Values that ask for what happens anyway."""

    @property
    def flags(self) -> list[str]:
        """The names, apart."""
        return self.names.split()

    @property
    def dest(self) -> str:
        """The name of its value where coalloc has no such option."""
        return f"sbatch_{self.flags[-1].lstrip('-').replace('-', '_')}"


HETEROGENEOUS = ("hetjob", "packjob")
"""Words that part a job's components, as one with a colon before it does."""
M, W, R = Consequence.MEANT, Consequence.WARNED, Consequence.REFUSED
PLANNER = "is not passed on; nodes are chosen by the planner"
COUNTED = "is not passed on; a process takes one slot"
TUNING = "is not passed on"
MAIL = "no mail is sent to users; coalloc wait, or coalloc events --follow, tells of its end"
NAMED = "nodes cannot be named; --constraint asks for their features, --clusters for a cluster"
GPUS = "GPUs are asked for on each node: --gpus-per-node, or --gres"
SHAPE = "-n says how many processes there are, and the planner chooses their nodes"
WEIGHT = "is not passed on; --weight says how important"
STEP = "is an option of srun; write it in the script, behind srun"
COMPONENTS = "jobs of several components are not run here"
INTERACTIVE = "no interactive jobs; coalloc submit --wait runs a command until it has ended"

WORDS: tuple[Word, ...] = (
    Word("-A --account", M, variables="SBATCH_ACCOUNT"),
    Word("-a --array", M, variables="SBATCH_ARRAY_INX"),
    Word("-b --begin", M),
    Word("-D --chdir", M),
    Word("-M --cluster --clusters", M, variables="SLURM_CLUSTERS SBATCH_CLUSTERS"),
    Word("-C --constraint", M, variables="SBATCH_CONSTRAINT"),
    Word("-c --cpus-per-task", M, "a process takes one slot; -n says how many there are"),
    Word("--deadline", M),
    Word("-d --dependency", M),
    Word("-e --error", M, variables="SBATCH_ERROR"),
    Word("--export", M, variables="SBATCH_EXPORT"),
    Word("--gpus-per-node", M, "write --gres=gpu:{}", "SBATCH_GPUS_PER_NODE"),
    Word("--gres", M, variables="SBATCH_GRES"),
    Word("-H --hold", M, value="none"),
    Word("-J --job-name", M, variables="SBATCH_JOB_NAME"),
    Word("-L --licenses", M),
    Word("--mem", M, "is of a node; --mem-per-proc is of a process", "SBATCH_MEM_PER_NODE"),
    Word("--mem-per-cpu", M, "write --mem-per-proc={}", "SBATCH_MEM_PER_CPU"),
    Word("--no-requeue", M, "is the default; leave it out", "SBATCH_NO_REQUEUE", "none"),
    Word("-N --nodes", M, SHAPE),
    Word("-n --ntasks", M),
    Word("--tasks-per-node --ntasks-per-node", M, SHAPE),
    Word("-o --output", M, variables="SBATCH_OUTPUT"),
    Word("--parsable", M, value="none"),
    Word("-p --partition", M, variables="SBATCH_PARTITION"),
    Word("-q --qos", M, variables="SBATCH_QOS"),
    Word("-Q --quiet", M, value="none"),
    Word("--requeue", M, variables="SBATCH_REQUEUE", value="none"),
    Word("--reservation", M, variables="SBATCH_RESERVATION"),
    Word("--test-only", M, value="none"),
    Word("-t --time", M, variables="SBATCH_TIMELIMIT"),
    Word("-v --verbose", M, "there is no more to say", "SBATCH_DEBUG", "none"),
    Word("-W --wait", M, variables="SBATCH_WAIT", value="none"),
    Word("--wrap", M),
    # the same program runs on as much
    Word("--acctg-freq", W, TUNING, "SBATCH_ACCTG_FREQ"),
    Word("--admin-comment", W, TUNING),
    Word("--comment", W, TUNING),
    Word("--contiguous", W, PLANNER, value="none"),
    Word("--cores-per-socket", W, COUNTED),
    Word("--cpu-freq", W, TUNING, "SBATCH_CPU_FREQ_REQ"),
    Word("--delay-boot", W, TUNING, "SBATCH_DELAY_BOOT"),
    Word("-m --distribution", W, PLANNER, "SBATCH_DISTRIBUTION"),
    Word(
        "--exclusive",
        W,
        "is not passed on; a site says whether a slot is a whole node",
        "SBATCH_EXCLUSIVE",
        "optional",
    ),
    Word("--extra", W, TUNING),
    Word("-B --extra-node-info", W, COUNTED),
    Word(
        "--get-user-env",
        W,
        "is not passed on; --export says what is",
        "SBATCH_GET_USER_ENV",
        "optional",
    ),
    Word("--gpu-bind", W, TUNING, "SBATCH_GPU_BIND"),
    Word("--gpu-freq", W, TUNING, "SBATCH_GPU_FREQ"),
    Word("--gres-flags", W, TUNING, "SBATCH_GRES_FLAGS"),
    Word("--hint", W, COUNTED, "SLURM_HINT SBATCH_HINT"),
    Word("--ignore-pbs", W, "#PBS lines are never read", "SBATCH_IGNORE_PBS", "none"),
    Word(
        "--kill-on-invalid-dep",
        W,
        "a job whose dependency can no longer be met is cancelled",
        harmless=("yes",),
    ),
    Word("--mail-type", W, MAIL, harmless=("NONE",)),
    Word("--mail-user", W, MAIL),
    Word("--mem-bind", W, TUNING, "SBATCH_MEM_BIND"),
    Word("--mincpus", W, PLANNER),
    Word("--nice", W, WEIGHT, value="optional"),
    Word(
        "-k --no-kill",
        W,
        "the job ends where a node of it fails",
        "SBATCH_NO_KILL",
        "optional",
        ("off",),
    ),
    Word("--ntasks-per-core", W, COUNTED),
    Word("--ntasks-per-socket", W, COUNTED),
    Word("--oom-kill-step", W, TUNING, value="optional"),
    Word(
        "--open-mode",
        W,
        "output is appended to what a file holds",
        "SBATCH_OPEN_MODE",
        harmless=("append",),
    ),
    Word("-O --overcommit", W, COUNTED, "SBATCH_OVERCOMMIT", "none"),
    Word("-s --share --oversubscribe", W, TUNING, value="none"),
    Word("--power", W, TUNING, "SBATCH_POWER"),
    Word("--prefer", W, PLANNER),
    Word("--priority", W, WEIGHT),
    Word("--profile", W, TUNING, "SBATCH_PROFILE"),
    Word("--propagate", W, "is not passed on; limits are the node's", value="optional"),
    Word("--segment", W, PLANNER),
    Word("--sockets-per-node", W, COUNTED),
    Word("--spread-job", W, PLANNER, "SBATCH_SPREAD_JOB", "none"),
    Word("--switches", W, PLANNER, "SBATCH_REQ_SWITCH SBATCH_WAIT4SWITCH"),
    Word("--threads-per-core", W, COUNTED, "SBATCH_THREADS_PER_CORE"),
    Word("--time-min", W, "is not passed on; the limit is --time"),
    Word("--tres-bind", W, TUNING),
    Word("--use-min-nodes", W, PLANNER, "SBATCH_USE_MIN_NODES", "none"),
    Word(
        "--wait-all-nodes",
        W,
        "a job starts when all its nodes are ready",
        "SBATCH_WAIT_ALL_NODES",
        harmless=("1",),
    ),
    Word("--wckey", W, TUNING, "SBATCH_WCKEY"),
    # something else would run, or not as it was meant to
    Word("--batch", R, "the script runs on the job's first node", "SBATCH_BATCH"),
    Word("--bb", R, "there are no burst buffers here", "SBATCH_BURST_BUFFER"),
    Word("--bbf", R, "there are no burst buffers here"),
    Word("--cluster-constraint", R, "name clusters with --clusters", "SBATCH_CLUSTER_CONSTRAINT"),
    Word("--container", R, "start the container in the script", "SBATCH_CONTAINER"),
    Word("--container-id", R, "start the container in the script"),
    Word("-S --core-spec", R, "cores cannot be set aside", "SBATCH_CORE_SPEC"),
    Word("--cpus-per-gpu", R, "a process takes one slot", "SBATCH_CPUS_PER_GPU"),
    Word("-x --exclude", R, NAMED),
    Word("--export-file", R, "variables are named by --export"),
    Word("--gid", R, "a job has the group of the user who submits it"),
    Word("-G --gpus", R, GPUS, "SBATCH_GPUS"),
    Word("--gpus-per-socket", R, GPUS, "SBATCH_GPUS_PER_SOCKET"),
    Word("--gpus-per-task", R, GPUS, "SBATCH_GPUS_PER_TASK"),
    Word("-h --help", R, "no help is given in a script", value="none"),
    Word("--het-group", R, COMPONENTS),
    Word(
        "-i --input",
        R,
        "standard input is empty; redirect it in the script",
        "SBATCH_INPUT",
        harmless=("/dev/null",),
    ),
    Word("--mcs-label", R, "labels cannot be asked for"),
    Word("--mem-per-gpu", R, "memory is of a process: --mem-per-cpu", "SBATCH_MEM_PER_GPU"),
    Word("--network", R, "networks cannot be asked for", "SBATCH_NETWORK"),
    Word("-F --nodefile", R, NAMED),
    Word("-w --nodelist", R, NAMED),
    Word("--ntasks-per-gpu", R, GPUS),
    Word("--ntasks-per-tres", R, GPUS),
    Word("--reboot", R, "nodes are not rebooted for a job", value="none"),
    Word(
        "--signal",
        R,
        "no signal is sent ahead of the limit; at the limit SIGTERM comes, then SIGKILL",
        "SBATCH_SIGNAL",
    ),
    Word("--thread-spec", R, "threads cannot be set aside", "SBATCH_THREAD_SPEC"),
    Word("--tmp", R, "disk cannot be asked for; --constraint asks for features"),
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
