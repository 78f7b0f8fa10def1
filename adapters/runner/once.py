"""A command that is started once, in the place of its job's first process, as sbatch does.

One process is started on the node of that place; on each other node one waits, so that the node
stays the part's until the command has ended. What the command starts by itself is the batch
system's to place: within Slurm, ``srun`` starts one process in each slot of the part. Imports the
standard library only, as the runner does.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from coalloc.adapters.runner.spec import NodeSpec, RunnerSpec

OVERLAP: Final = "COALLOC_OVERLAP"
"""Set in a step of wrappers that only steps with ``--overlap`` may overlap: srun refuses that
option beside ``--exclusive``."""
HOLDS: Final = "holds"
"""Key of a place whose process only waits for the command's end."""
OF_SLURM = (
    *("SLURM_CONF", "SLURM_CLUSTER_NAME", "SLURMD_NODENAME", "SLURM_JOB_ID"),
    *("SLURM_JOB_PARTITION", "SLURM_JOB_ACCOUNT", "SLURM_JOB_QOS", "SLURM_JOB_RESERVATION"),
    *("SLURM_JOB_UID", "SLURM_JOB_GID", "SLURM_JOB_USER", "SLURM_JOB_GPUS"),
    *("SLURM_JOB_START_TIME", "SLURM_JOB_END_TIME", "SLURM_SUBMIT_HOST"),
    *("SLURM_CPUS_ON_NODE", "SLURM_MEM_PER_CPU", "SLURM_MEM_PER_NODE", "SLURM_PRIO_PROCESS"),
    *("SLURM_HINT", "SLURM_THREADS_PER_CORE"),
    *("SLURM_TOPOLOGY_ADDR", "SLURM_TOPOLOGY_ADDR_PATTERN", "SLURM_WORKING_CLUSTER"),
    *("SLURM_GPUS_ON_NODE", "CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL"),
    "SLURM_TASK_PID",  # in whose place the command's own is put (`runner.rank`)
)
"""Variables of a Slurm job that mean the same in the step of the wrappers and in a script."""
OF_TASKS = ("SLURM_CPUS_PER_TASK", "SLURM_GPUS_PER_TASK", "SLURM_NTASKS_PER_NODE")
"""Variables of a batch job by which the tasks of its steps would be like its own."""
REPEATED: Final = {"gpus": "SLURM_GPUS", "gpus_per_node": "SLURM_GPUS_PER_NODE"}
"""Options of sbatch that scripts read again: the client puts them in a job's own variables."""
OF_ARRAYS = ("JOB_ID", "TASK_ID", "TASK_COUNT", "TASK_MIN", "TASK_MAX", "TASK_STEP")
"""Variables of an array's member, behind `COALLOC_ARRAY_` and `SLURM_ARRAY_`."""


def started_once(spec: RunnerSpec) -> RunnerSpec:
    """The spec of a runner; of a command started once, with the one process that it starts."""
    if not spec.get("once"):
        return spec
    ranks = spec["ranks"]
    place = next((each for each in ranks if each["rank"] == 0), None)
    if place is None:
        return {**spec, "ranks": [{**ranks[0], HOLDS: True}]}
    # What the command starts may use all that the part has on this machine.
    cpus = sorted({cpu for each in ranks for cpu in each.get("cpus") or ()})
    whole = place.copy()
    whole["cpus"] = cpus or None
    if any("gpus" in each for each in ranks):
        whole["gpus"] = list(dict.fromkeys(gpu for each in ranks for gpu in each.get("gpus", ())))
    return {**spec, "ranks": [whole]}


def is_holder(spec: RunnerSpec) -> bool:
    """Whether a node of a command that is started once has not the command itself."""
    return bool(spec.get("once")) and all(each["rank"] != 0 for each in spec["ranks"])


def script_environment(spec: NodeSpec, environ: Mapping[str, str]) -> dict[str, str]:
    """The user's variables, and those by which a batch system tells a script of its job.

    ``hosts`` of a node's spec are the part's nodes, as the batch system names them, with their
    processes in rank order. `environ` is the wrapper's, which the batch system has started.
    """
    env: dict[str, str] = spec["env"]
    hosts = [(name, int(count)) for name, count in spec["hosts"]]
    if "SLURM_JOB_ID" in environ:
        repeated = REPEATED.values()
        kept = {n: env[n] for n in env if not n.startswith("SLURM_") or n in repeated}
        return {**kept, **_slurm_variables(spec, hosts, environ)}
    if "JOB_ID" in environ:
        slots = spec["size"] * int(env.get("COALLOC_CPUS_PER_TASK", 1))
        return dict(env, NSLOTS=str(slots), NHOSTS=str(len(hosts)))
    return env


def _slurm_variables(
    spec: NodeSpec, hosts: list[tuple[str, int]], environ: Mapping[str, str]
) -> dict[str, str]:
    """Variables as of sbatch, by which srun starts the part's processes."""
    size, nodes = str(spec["size"]), str(len(hosts))
    ordered = sorted((name for name, _ in hosts), key=lambda n: (n.rstrip("0123456789"), len(n), n))
    names = ",".join(name for name, _ in hosts)
    is_slurms = ",".join(ordered) == names and environ.get("SLURM_JOB_NUM_NODES") == nodes
    if is_slurms:
        names = environ.get("SLURM_JOB_NODELIST", names)
    tasks = _repeated([count for _, count in hosts])
    cpus = environ.get("SLURM_JOB_CPUS_PER_NODE", "")
    shape = spec["shape"]
    each = max(1, shape.get("cpus_per_proc", 0))
    if not cpus or ("," in cpus and not is_slurms):
        # Slurm's own has its order of the nodes, which need not be that of the ranks.
        cpus = _repeated([count * each for _, count in hosts])
    out = {name: environ[name] for name in OF_SLURM if name in environ}
    gpus = environ.get("SLURM_STEP_GPUS")
    if gpus:
        out.setdefault("SLURM_JOB_GPUS", gpus)
    if each > 1:
        out["SLURM_CPUS_PER_TASK"] = str(each)
    most = shape.get("procs_per_node")
    if most:
        out["SLURM_NTASKS_PER_NODE"] = str(most)
    gpus = gpus_of(shape)
    if gpus:
        out["SLURM_GPUS_PER_TASK"] = gpus
    nodes_asked = {shape.get("min_nodes", 1), shape.get("max_nodes", 0)}
    if shape.get("exclusive") and not most and nodes_asked == {int(size)}:
        # Whole nodes, of which it is not said how many tasks they take: as many as they can.
        tasks = re.sub(r"(^|,)(\d+)", lambda found: f"{found[1]}{int(found[2]) // each}", cpus)
    else:
        out.update(dict.fromkeys(("SLURM_NTASKS", "SLURM_NPROCS"), size))
    out.update(
        {
            "SLURM_NODE_ALIASES": environ.get("SLURM_NODE_ALIASES", "(null)"),
            "SLURM_JOBID": environ["SLURM_JOB_ID"],
            "SLURM_JOB_NAME": spec["name"],
            "SLURM_SUBMIT_DIR": spec["cwd"],
            **dict.fromkeys(("SLURM_JOB_NUM_NODES", "SLURM_NNODES"), nodes),
            **dict.fromkeys(("SLURM_JOB_NODELIST", "SLURM_NODELIST"), names),
            "SLURM_TASKS_PER_NODE": tasks,
            "SLURM_JOB_CPUS_PER_NODE": cpus,
            **dict.fromkeys(("SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID", "SLURM_GTIDS"), "0"),
        }
    )
    if OVERLAP in environ:
        out["SLURM_OVERLAP"] = "1"
    for name in OF_ARRAYS:
        value = spec["env"].get(f"COALLOC_ARRAY_{name}")
        if value:
            out[f"SLURM_ARRAY_{name}"] = value
    return out


def gpus_of(shape: Mapping[str, Any]) -> str:
    """GPUs of each process, as ``--gpus-per-task`` has them; empty: none."""
    asked = (f"{name}:{count}" for name, count in shape.get("per_proc", {}).items())
    return ",".join(word[len("gpu:") :] for word in asked if word.startswith("gpu:"))


def _repeated(counts: list[int]) -> str:
    """Numbers as Slurm writes them: ``2(x3),1``."""
    runs = [(count, len(list(group))) for count, group in groupby(counts)]
    return ",".join(f"{count}(x{times})" if times > 1 else str(count) for count, times in runs)
