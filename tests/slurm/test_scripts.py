"""Scripts after the manuals of real centres: through ``coalloc sbatch`` they are what sbatch runs.

Each goes to the same real Slurm both ways. What it prints, its outputs' names, its variables, and
what Slurm says it holds (nodes, CPUs, memory, GRES, licences, limits) are compared.
"""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest

from tests.testbeds.slurm import ClusterShape, bed
from tests.testbeds.slurm_accounting import missing
from tests.testbeds.slurm_site import SlurmSite

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())

ALPHA = ClusterShape(
    name="a",
    nodes=6,
    conf="SelectTypeParameters=CR_Core_Memory\nDefMemPerCPU=2000\nGresTypes=gpu\nLicenses=matlab:2",
    partitions="PartitionName=gpu Nodes=a[5-6]\nPartitionName=short Nodes=ALL MaxTime=10",
    groups=(
        (4, "Feature=skylake RealMemory=32000"),
        (2, "Feature=epyc RealMemory=32000 Gres=gpu:a100:2"),
    ),
    gres="NodeName=a[5-6] Name=gpu Type=a100 File=/dev/null,/dev/zero\n",
)
ADDED = (
    ("account", "chem", "cluster=a"),
    ("qos", "long", "MaxWall=2-0"),
    ("user", "root", "account=chem", "qos=normal,long"),
)
PROBE = """
echo == env
env -0 | tr '\\n' ' ' | tr '\\0' '\\n' | grep -E '^(SLURM|SBATCH|CUDA|GPU_|ROCR)'
echo == job
scontrol -d -o show job $SLURM_JOB_ID | grep "^JobId=$SLURM_JOB_ID "
"""
TASK = "sh -c 'echo task $SLURM_PROCID of $SLURM_NTASKS, local $SLURM_LOCALID, on $SLURMD_NODENAME"
TASK += ", GPUs $CUDA_VISIBLE_DEVICES'"


class Script(NamedTuple):
    """The ``#SBATCH`` options of a script, its commands, and its first line."""

    options: str
    text: str = f"srun {TASK}\n"
    head: str = "#!/bin/bash"
    refused: str = ""
    """What coalloc says of it instead of running it."""
    odd: tuple[str, ...] = ()
    """Variables that sbatch sets by what it has granted, and we by what was asked for."""


SCRIPTS = {
    "serial": Script("-J serial --mem=4G -o %x-%j.out --mail-type=END", "echo serial\n"),
    "array": Script("--array=0-3%2 -o %x.%A_%a", "echo member $SLURM_ARRAY_TASK_ID\n"),
    "threads": Script(
        "-n1 -c 8",
        "export OMP_NUM_THREADS=$SLURM_CPUS_PER_TASK\necho $OMP_NUM_THREADS threads\n",
    ),
    "nodes": Script("-N 2 --ntasks-per-node=4"),
    "hybrid": Script("-N 2 --ntasks-per-node=2 -c 4", f"srun -c $SLURM_CPUS_PER_TASK {TASK}\n"),
    "gpu": Script("-p gpu --gres=gpu:1 -c 4 --mem=16G", "echo GPUs $CUDA_VISIBLE_DEVICES\n"),
    "gpus": Script("-N 1 --ntasks-per-node=2 --gpus-per-node=2"),
    "gpu-type": Script(
        "--gpus=a100:1 --cpus-per-gpu=4", odd=("SLURM_TASKS_PER_NODE", "SLURM_CPUS_PER_TASK")
    ),
    "exclusive": Script("--nodes=2 --exclusive --mem=0", f"srun -n 16 {TASK}\n"),
    "dependency": Script("--dependency=afterok:{before}", "echo after\n"),
    "constraint": Script("-N 2 -n 4 -C 'skylake|epyc'"),
    "account": Script("-A chem -q long -p main --time=1-12:00 -n 8 --mem-per-cpu=1G"),
    "login": Script(
        "--export=NONE",
        "module() { echo module $*; }\nmodule load gcc\necho $HOME of ${FOREIGN:-none}\n",
        "#!/bin/bash -l",
    ),
    "steps": Script(
        "-N 1 -n 4", f"for i in 1 2 3 4; do srun -n1 -c1 --exact {TASK} & done\nwait\n"
    ),
    "mpirun": Script(
        "-n 6", "mpirun sh -c 'echo rank $OMPI_COMM_WORLD_RANK of $OMPI_COMM_WORLD_SIZE'\n"
    ),
    "licences": Script("--licenses=matlab:1", "echo licensed\n"),
    "scratch": Script(
        "-N 2-2 -n 4 -o %x.%j.%N",
        "scratch=$(mktemp -d)\nsrun sh -c 'echo $SLURM_PROCID' > $scratch/ranks\n"
        "sort $scratch/ranks\nrm -r $scratch\necho from $SLURM_SUBMIT_HOST\n",
    ),
    "signal": Script(
        "--signal=B:USR1@120 --requeue --open-mode=append",
        "trap 'echo caught' USR1\nkill -USR1 $$\necho ${SLURM_RESTART_COUNT:-0} starts\n",
    ),
    "hetjob": Script(
        "-n 1\n#SBATCH hetjob\n#SBATCH -n 2", "srun --het-group=0,1 true\n", refused="het"
    ),
    "torch": Script(
        "-N 2 --ntasks-per-node=2 --gpus-per-node=2 -c 4",
        "export MASTER_ADDR=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -1)\n"
        f"echo first is $MASTER_ADDR\nsrun -c $SLURM_CPUS_PER_TASK {TASK}\n",
    ),
    "excluded": Script("-N 1 -n 8 --mem=16gb -x a1"),
    "python": Script(
        "-n 2 --comment=why --nice=10",
        "import subprocess\nprint(subprocess.check_output(['srun', 'echo', 'step'], text=True))\n"
        f"print(subprocess.check_output(r'''{PROBE}''', shell=True, text=True))\n",
        f"#!{shutil.which('python3', path='/usr/bin:/usr/local/bin') or sys.executable}",
    ),
    "pmi2": Script("-N 2 --ntasks-per-node=2", f"srun --mpi=pmi2 {TASK}\n"),
    "one-thread": Script("-N 1 --ntasks-per-node=1 -c 8 --hint=nomultithread"),
}
IN_CI = Random(24).sample(sorted(SCRIPTS), 3)
OWN = {
    *("SLURM_JOB_ID", "SLURM_JOBID", "SLURM_TASK_PID", "SLURM_JOB_START_TIME"),
    *("SLURM_JOB_END_TIME", "SLURM_GTIDS"),
}
"""Variables that each job has for itself."""
UNTOLD = {
    *("SLURM_MEM_PER_CPU", "SLURM_JOB_DEPENDENCY", "SLURM_EXPORT_ENV", "SLURM_GET_USER_ENV"),
    *("SLURM_OPEN_MODE", "SLURM_CPUS_PER_GPU"),
}
"""Variables in which sbatch repeats one of its options, or a default, and which ours lack."""
COUNTED = {"SLURM_NTASKS", "SLURM_NPROCS"}
"""Variables that sbatch sets where ``-n`` or ``--ntasks-per-node`` stands, and ours always."""
HELD = (
    *("Account", "QOS", "Partition", "NumNodes", "NumCPUs", "TRES", "Features", "OverSubscribe"),
    "Licenses",
)
"""What Slurm says of a job, however it was asked for."""


class Ran(NamedTuple):
    """What one run of a script showed, without what is each run's own."""

    files: Counter[str]
    printed: Counter[str]
    variables: dict[str, Counter[str]]
    held: dict[str, Counter[str]]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmSite]:
    with bed(ALPHA, accounting=True) as made:
        for words in ADDED:
            made["a"].run("sacctmgr", "-i", "add", *words)
        root = made.root / "site"
        root.mkdir()
        with SlurmSite(root, made, given={"slots": "cpus"}) as running:
            yield running


def environment(site: SlurmSite) -> dict[str, str]:
    allow = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    own = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/root", "FOREIGN": "yes", **allow}
    return {**own, **site.bed["a"].slurm.environment()}


def sent(site: SlurmSite, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Submit by one of the two commands, and wait for the end."""
    ours = (sys.executable, "-m", "coalloc.cli.main", "sbatch", "--config", str(site.config))
    program, alpha = (ours if folder.name == "ours" else ("sbatch",)), site.bed["a"]
    done = subprocess.run(
        [*program, "--parsable", *words],
        cwd=folder,
        env=environment(site),
        capture_output=True,
        text=True,
        check=False,
    )
    site.until(lambda: not site.ask("queue")["jobs"])
    site.bed.wait(lambda: not alpha.run("squeue", "-h") and alpha.is_idle(), "it has ended")
    site.until(lambda: all(row["free"] == row["slots"] for row in rows(site)))
    return done


def read_again(site: SlurmSite) -> None:
    """Wait for the next reading of the cluster."""
    since = time.monotonic()
    site.until(lambda: since < read_after(site))


def read_after(site: SlurmSite) -> float:
    """An instant that the last reading came after."""
    asked = time.monotonic()
    (cluster,) = site.ask("nodes")["clusters"]
    return asked - float(cluster["age_s"])


def rows(site: SlurmSite) -> list[Any]:
    """The nodes as our daemon knows them."""
    return [row for cluster in site.ask("nodes")["clusters"] for row in cluster["nodes"]]


def run(site: SlurmSite, name: str, side: str) -> Ran | str:
    """Run a script by `ours` or `plain`; what was said where it was refused."""
    script, folder = SCRIPTS[name], site.root / name / side
    folder.mkdir(parents=True)
    options = script.options
    if "{before}" in options:
        before = sent(site, folder, "-o/dev/null", "-t1", "--wrap=true").stdout.strip()
        options = options.format(before=before)
    probe = "" if "python" in script.head else PROBE
    limit = "" if "--time" in options else "#SBATCH -t 5\n"
    if side == "ours":  # the next reading may have begun before all had ended
        read_again(site)
        read_again(site)
    (folder / "job.sh").write_text(f"{script.head}\n{limit}#SBATCH {options}\n{script.text}{probe}")
    done = sent(site, folder, "job.sh")
    if not done.stdout:
        return done.stderr
    ran, number = Ran(Counter(), Counter(), {}, {}), done.stdout.strip()
    for path in folder.iterdir():
        if path.name != "job.sh":
            ran.files[named(path.name, number)] += 1
            add(ran, path.read_text().replace(str(folder), "DIR"), number)
    return ran


def named(name: str, number: str) -> str:
    """An output's name: without the job's own number, and with what is documented as different."""
    name = re.sub(r"^coalloc-", "slurm-", re.sub(rf"(?<!\d){number}(?!\d)", "ID", name, count=1))
    return name.removesuffix(f".{socket.gethostname()}").removesuffix(".a1")


def add(ran: Ran, text: str, number: str) -> None:
    """What one output tells."""
    printed, _, rest = text.partition("== env\n")
    variables, _, job = rest.partition("== job\n")
    ran.printed.update(printed.splitlines())
    for line in variables.splitlines():
        key, _, value = line.partition("=")
        if key not in OWN:
            value = "ID" if key.endswith("JOB_ID") and value == number else value
            ran.variables.setdefault(key, Counter())[value] += 1
    for key, value in re.findall(r"(?<= )([A-Z][\w/:]*)=(\S*)", job):
        if key in HELD:
            ran.held.setdefault(key, Counter())[value] += 1
    for nodes, cpus, rest in re.findall(r"(?<= )(Nodes=\S+) CPU_IDs=(\S+) (Mem=\S+ GRES=\S*)", job):
        count = sum(int(b or a) - int(a) + 1 for a, b in re.findall(r"(\d+)(?:-(\d+))?", cpus))
        ran.held.setdefault("each", Counter())[f"{nodes} {count} CPUs {rest}"] += 1


@pytest.mark.parametrize(
    "name", [n if n in IN_CI else pytest.param(n, marks=pytest.mark.nightly) for n in SCRIPTS]
)
def test_a_script_is_what_sbatch_makes_of_it(site: SlurmSite, name: str) -> None:
    if name == "mpirun" and shutil.which("mpirun") is None:
        pytest.skip("mpirun not found; as root: apt-get install openmpi-bin")
    plain, ours = run(site, name, "plain"), run(site, name, "ours")
    if SCRIPTS[name].refused:
        assert isinstance(ours, str)
        assert SCRIPTS[name].refused in ours
        return
    assert isinstance(plain, Ran), plain
    assert isinstance(ours, Ran), ours
    shown = [
        {"files": r.files, "printed": r.printed, **r.variables, **r.held} for r in (ours, plain)
    ]
    keys = shown[0].keys() | shown[1].keys()
    both = {key: tuple(one.get(key) for one in shown) for key in keys}
    missing = UNTOLD - shown[0].keys() | COUNTED - shown[1].keys() | {*SCRIPTS[name].odd}
    assert {k: pair for k, pair in both.items() if pair[0] != pair[1] and k not in missing} == {}
