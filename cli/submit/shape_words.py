"""The size of a job in sbatch's words, read as processes and the shape that they ask for.

One reader for ``coalloc sbatch`` and ``coalloc submit``; what Slurm refuses is refused in its
words, and what has no equal in a shape with what to write instead.
"""

from __future__ import annotations

import argparse
from collections import Counter
from typing import Any

from msgspec import to_builtins

from coalloc.cli import arguments as parse
from coalloc.cli.command import Parser
from coalloc.cli.submit.told import Told, pass_on
from coalloc.model.errors import InputError
from coalloc.model.formats.gres import read_gres
from coalloc.model.shape import Shape

OPTIONS: tuple[tuple[str, Any, str, str], ...] = (
    ("-N --nodes", parse.procs, "N|MIN-MAX", "nodes; of a range, as few as are enough"),
    ("--tasks-per-node --ntasks-per-node", parse.at_least_one, "N", "processes on each node"),
    ("-c --cpus-per-task", parse.at_least_one, "N", "CPUs of each process, on its node"),
    ("--mem", parse.mebibytes, "SIZE", "memory on each node; 0: all that it has"),
    ("--mem-per-cpu", parse.mebibytes, "SIZE", "memory for each CPU that is asked for"),
    ("--mem-per-gpu", parse.mebibytes, "SIZE", "memory for each GPU"),
    ("-G --gpus", parse.gpus, "[TYPE:]N", "GPUs in all"),
    ("--gpus-per-node", parse.gpus, "[TYPE:]N", "GPUs on each node, as --gres=gpu:[TYPE:]N"),
    ("--gpus-per-task", parse.gpus, "[TYPE:]N", "GPUs of each process"),
    ("--cpus-per-gpu", parse.at_least_one, "N", "CPUs for each GPU, in place of -c"),
    ("--ntasks-per-gpu", parse.at_least_one, "N", "processes for each GPU"),
)
COUNTING = (
    *("cpus_per_task", "nodes", "ntasks_per_node", "exclusive", "gpus_per_task"),
    *("cpus_per_gpu", "ntasks_per_gpu"),
)
"""Options with any of which a process takes CPUs, not a slot, under ``coalloc submit``, too."""
EXCLUDING = (
    ("mem", "mem_per_cpu", "mem_per_gpu", "memory_mb_per_proc"),
    ("cpus_per_gpu", "cpus_per_task"),
    ("gpus_per_task", "ntasks_per_gpu"),
    ("ntasks_per_node", "ntasks_per_gpu"),
)
"""Options of which only one may be said."""


def add_layout(parser: Parser, group: Any) -> None:
    """Options of nodes, and of what is taken of them."""
    for names, read, metavar, about in OPTIONS:
        flags = names.split()
        dest = flags[-1].lstrip("-").replace("-", "_")
        group.add_argument(*flags, dest=dest, type=read, metavar=metavar, help=about)
    parser.bare = (*parser.bare, "--exclusive")
    about = "whole nodes, with nothing else on them; with a value as Slurm has it"
    values = ("", "user", "mcs")
    group.add_argument("--exclusive", nargs="?", choices=values, metavar="user|mcs", help=about)


def lay_out(options: argparse.Namespace, told: Told, *, counts: bool) -> None:
    """Set processes, their memory and the shape of a job to what its words come to.

    Where it `counts`, each process takes a CPU at the least, not a slot.
    """
    for names in EXCLUDING:
        given = [name for name in names if getattr(options, name) is not None]
        if len(given) > 1:
            what = " is mutually exclusive with ".join(f"--{name}" for name in given[:2])
            told.refuse(told.of(given[1]), what.replace("memory_mb", "mem").replace("_", "-"))
    if options.exclusive:
        pass_on(options, told, "exclusive", f"--exclusive={options.exclusive}")
    counts = counts or any(getattr(options, name) is not None for name in COUNTING)
    try:
        size = _Size(options, told)
        shape, memory = size.shape(counts=counts)
    except InputError as error:
        told.refuse(told.of(error.where), f"--{error.where.replace('_', '-')}: {error.what}")
        return
    options.procs, options.memory_mb_per_proc = size.tasks, memory or None
    options.shape, options.gres = to_builtins(shape) or None, None


class _Size:
    """Processes, nodes and GPUs of a job, each as far as it was said."""

    def __init__(self, options: argparse.Namespace, told: Told) -> None:
        self._options, self._told = options, told
        self.on_node = Counter[str]({**(options.gpus_per_node or {}), **(options.gres or {})})
        self.of_task = Counter[str](options.gpus_per_task)
        self.in_all = Counter[str](options.gpus)
        self.each: int | None = options.ntasks_per_node
        self.tasks: int | tuple[int, int] | None = options.procs
        nodes = options.nodes
        self.low, self.high = nodes if isinstance(nodes, tuple) else (nodes, nodes)
        read_gres(",".join([*self.on_node, *self.of_task, *self.in_all]) or "none")  # types agree
        self._count()
        self._place()
        self._share_out()

    @property
    def fewest(self) -> int:
        return self.tasks[0] if isinstance(self.tasks, tuple) else self.tasks or 1

    def _count(self) -> None:
        """Processes, as sbatch counts them where they are not said, and the nodes of GPUs."""
        per_gpu, here = self._options.ntasks_per_gpu, _of_family(self.on_node)
        of_task, gpus = self.of_task.total(), self.in_all.total()
        if per_gpu and here:
            self.each = per_gpu * here
        elif per_gpu and not gpus:
            if self.tasks is None or self.fewest % per_gpu:
                what = "-n/--ntasks has to be a multiple of --ntasks-per-gpu."
                raise InputError("ntasks_per_gpu", what)
            gpus = self.in_all["gpu"] = self.fewest // per_gpu
        if of_task and here:
            self.each = self.each or here // of_task
            if self.each * of_task != here:
                raise InputError("gpus_per_task", f"{self.each} times it are not {here} on a node")
            gpus = gpus or of_task * (self.fewest if self.tasks else self.each * (self.low or 1))
            for name in [name for name in self.on_node if name.partition(":")[0] == "gpu"]:
                del self.on_node[name]
        if here and gpus:
            nodes, rest = divmod(gpus, here)
            most = min(self.high or nodes, self.fewest if self.tasks else nodes)
            if rest or not (self.low or 1) <= nodes <= most:
                raise InputError("gpus_per_node", f"{gpus} in all are not {here} on each node")
            self.low = self.high = nodes
            self.in_all.clear()
        if self.tasks is None and per_gpu and gpus:
            self.tasks = gpus * per_gpu
        elif self.tasks is None and (self.low or self.each):
            self.tasks = (self.low or 1) * (self.each or 1)
        elif self.tasks is None and of_task:
            if not gpus:
                what = "used without either --gpus or -n/--ntasks is not allowed."
                raise InputError("gpus_per_task", what)
            self.tasks = gpus // of_task
        is_same = not of_task or self.fewest * of_task == gpus
        if gpus and not (is_same and (here or per_gpu in {None, self.fewest / gpus})):
            raise InputError("gpus", f"{gpus} are not what {self.fewest} processes come to")

    def _place(self) -> None:
        """Nodes: as few as there are processes, and one where only those of a node are said."""
        if self.low is None or self.high is None:
            if self.each and self._options.procs is None:
                self.low = self.high = 1
            return
        where = self._told.of("nodes")
        if self.low < self.high:
            what = f"--nodes={self.low}-{self.high}: as few as are enough are taken"
            self._told.warn(where, f"{what}; sbatch takes as many as are free")
        if self.fewest < self.low:
            what = f"can't run {self.fewest} processes on {self.low} nodes"
            self._told.warn(where, f"{what}, setting nnodes to {self.fewest}")
            self.low = self.fewest
        if self.each and self.fewest > self.high * self.each:
            raise InputError("ntasks_per_node", "Requested node configuration is not available")
        self.high = min(self.high, self.tasks[1] if isinstance(self.tasks, tuple) else self.fewest)

    def _share_out(self) -> None:
        """GPUs in all as those of each node or of each process."""
        nodes = self.low if self.low == self.high else None
        if self.of_task or not self.in_all:
            return
        if nodes is None and self.tasks in (None, 1):
            self.low = self.high = nodes = 1
        for per, parts in ((self.on_node, nodes), (self.of_task, self.tasks)):
            if isinstance(parts, int) and not any(n % parts for n in self.in_all.values()):
                per.update({name: count // parts for name, count in self.in_all.items()})
                return
        what = f"{self.in_all.total()} in all are not the same on each node or for each process"
        raise InputError("gpus", f"{what}; say --gpus-per-node")

    def shape(self, *, counts: bool) -> tuple[Shape, int]:
        options = self._options
        cpus = self._cpus() or options.cpus_per_task or int(counts)
        memory, on_node = options.memory_mb_per_proc or 0, options.mem or 0
        here, of_task = _of_family(self.on_node), self.of_task.total()
        if options.mem_per_cpu is not None:
            memory = options.mem_per_cpu * max(cpus, 1)
        if options.mem_per_gpu is not None:
            if not here + of_task:
                raise InputError("mem_per_gpu", "did not request any GPU.")
            on_node, memory = options.mem_per_gpu * here, options.mem_per_gpu * of_task
        return Shape(
            cpus_per_proc=cpus,
            memory_mb_per_node=on_node,
            all_memory=options.mem == 0,
            min_nodes=self.low or 1,
            max_nodes=self.high,
            procs_per_node=self.each,
            exclusive=options.exclusive == "",
            per_proc=dict(self.of_task),
            per_node=dict(self.on_node),
        ), memory

    def _cpus(self) -> int:
        """CPUs of a process, where they follow from its GPUs; else 0."""
        per_gpu, of_task = self._options.cpus_per_gpu or 0, self.of_task.total()
        here = _of_family(self.on_node) * per_gpu
        if of_task or not here:
            return of_task * per_gpu
        nodes = 1 if self.fewest == 1 else self.low if self.low == self.high else None
        each = self.each or (self.fewest / nodes if nodes else 0)
        if isinstance(self.tasks, tuple) or not each or here % each:
            what = f"{here} CPUs of a node's GPUs are not the same for each process; say -c"
            raise InputError("cpus_per_gpu", what)
        return int(here // each)


def _of_family(amounts: Counter[str]) -> int:
    return sum(count for name, count in amounts.items() if name.partition(":")[0] == "gpu")
