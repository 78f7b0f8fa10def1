"""``coalloc sbatch``: a batch script of Slurm as it is.

Its ``#SBATCH`` lines are options, the script is started once, and what has no equal here is named:
what would change what runs is refused, what would not is a warning.
"""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Callable
from typing import Any

from coalloc.cli import arguments as parse
from coalloc.cli.command import Command, Parser
from coalloc.cli.submit import command as submit
from coalloc.cli.submit import options as shared
from coalloc.cli.submit.script_lines import (
    COALLOC,
    SBATCH,
    lines_of,
    unknown_variables,
    variables_of,
)
from coalloc.cli.submit.told import (
    Told,
    add_words,
    before_the_script,
    judge,
    judge_marks,
    merged,
    script_options,
)

ABOUT = """\
Queue a batch script of Slurm's, as sbatch does: its #SBATCH lines are options, and the command
line wins. The script is copied when it is submitted, and comes from standard input where none is
named. It is started once, on the first of its nodes, while the job holds all its slots; srun in it
starts a process in each slot where the cluster is Slurm's, and mpirun finds them in the file
$COALLOC_HOSTFILE anywhere. The job runs on one cluster, whichever is best.

All options of coalloc submit may stand here, also in #COALLOC lines. A process takes one slot; the
nodes are chosen by the planner. Options of sbatch without an equal are named with their lines:
those that would change what runs are refused, others are warnings."""

PREFIXES = (SBATCH, COALLOC)


def _add(parser: argparse.ArgumentParser) -> None:
    parser.usage = "coalloc sbatch [options] [SCRIPT [ARG...]]"
    # some letters and words mean something else to sbatch than to submit
    parser.conflict_handler = "resolve"
    assert isinstance(parser, Parser)
    size = parser.add_argument_group("what it needs")
    submit.add_shape(size)
    _add_layout(size)
    order = parser.add_argument_group("when and where")
    submit.add_order(order)
    order.add_argument("--no-requeue", action="store_false", dest="requeue", help="the default")
    shared.add_batch(parser.add_argument_group("what batch systems are told"))
    submit.add_launch(parser.add_argument_group("how it runs"))
    shared.add_answer(parser.add_argument_group("what is printed"))
    parser.add_argument("-v", "--verbose", action="store_true", help=argparse.SUPPRESS)
    add_words(parser, over=True)
    parser.set_defaults(
        once=True, work=None, chunk_s=None, retries=None, keep_going=False, requeue=None
    )
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="SCRIPT [ARG...]")


def _add_layout(group: Any) -> None:
    group.add_argument(
        "-N",
        "--nodes",
        type=parse.procs,
        metavar="N",
        help="with --ntasks-per-node, the number of processes; nodes are chosen by the planner",
    )
    group.add_argument(
        "--tasks-per-node",
        "--ntasks-per-node",
        dest="ntasks_per_node",
        type=parse.at_least_one,
        metavar="N",
        help="see -N",
    )
    group.add_argument(
        "-c",
        "--cpus-per-task",
        type=parse.at_least_one,
        metavar="1",
        help="a process takes one slot",
    )
    group.add_argument(
        "--mem-per-cpu",
        dest="memory_mb_per_proc",
        type=parse.mebibytes,
        metavar="SIZE",
        help="as --mem-per-proc",
    )
    group.add_argument(
        "--mem",
        type=parse.mebibytes,
        metavar="SIZE",
        help="of each node; with -N, or of one process",
    )
    group.add_argument(
        "--gpus-per-node", metavar="[TYPE:]N", help="as --gres=gpu:[TYPE:]N, on each of its nodes"
    )


def _run(args: argparse.Namespace) -> int:
    before_the_script(args, "sbatch")
    argv, script = submit.asked(args, "sbatch")
    if not script:
        raise shared.usage_error("sbatch", "a script is wanted; --wrap takes a command")
    told = Told("sbatch")
    parser = Parser(prog="coalloc sbatch", add_help=False)
    _add(parser)
    said = script_options(script, argv[0], PREFIXES, told)
    said += variables_of(os.environ)
    options = merged(args, parser, said, told, completes=True)
    _warn_of_unread(options, script, argv[0], told)
    judge(options, told)
    judge_marks(options, told, once=True)
    _lay_out(options, told)
    told.end()
    return submit.send(options, argv, script, lambda done: f"batch job {done.job}", "sbatch")


def _warn_of_unread(options: argparse.Namespace, script: str, shown: str, told: Told) -> None:
    """Name the lines and variables that sbatch may be thought to read."""
    for prefix, lines in lines_of(script, PREFIXES).other.items():
        if options.sbatch_ignore_pbs is None:
            told.warn(f"{shown}:{lines[0]}: ", f"{prefix} lines are not read; sbatch reads them")
    for name in unknown_variables(os.environ):
        told.warn(f"{name}: ", "is no variable that sbatch knows; it is not read")


def _lay_out(options: argparse.Namespace, told: Told) -> None:
    """Put processes, memory and devices of nodes in terms of processes."""

    def refuse(option: str, what: str) -> None:
        told.refuse(told.of(option), f"--{option.replace('_', '-')}={what}")

    if (options.cpus_per_task or 1) > 1:
        refuse(
            "cpus_per_task",
            f"{options.cpus_per_task}: a process takes one slot, which is a processor or a node as "
            "the site sets it; ask for more processes, and say -c 1",
        )
    if isinstance(options.nodes, tuple):
        low, high = options.nodes
        options.nodes = high
        if low < high:
            what = "a range of nodes is not taken; write"
            refuse("nodes", f"{low}-{high}: {what} --nodes={low} or --nodes={high}")
    nodes, tasks = options.nodes, _processes(options)
    most = tasks[1] if isinstance(tasks, tuple) else tasks or 1
    if nodes == 1 and most > 1:
        refuse(
            "nodes",
            f"1: {most} processes may get slots of several nodes here; leave it out where they "
            "need not share one",
        )
    option = "nodes" if nodes is not None else "ntasks_per_node"
    if (nodes is not None and most > 1) or options.ntasks_per_node:
        plural = "processes" if most > 1 else "process"
        shown = f"{tasks[0]}-{tasks[1]}" if isinstance(tasks, tuple) else str(most)
        told.warn(
            told.of(option),
            f"--{option.replace('_', '-')}={getattr(options, option)}: {shown} {plural}, on nodes "
            "that the planner chooses",
        )
    options.procs = tasks
    if options.mem is not None:
        _share_memory(options, told, most, refuse)
    if options.gpus_per_node is not None:
        gres = f"gpu:{options.gpus_per_node}"
        options.gres = f"{options.gres},{gres}" if options.gres else gres


def _processes(options: argparse.Namespace) -> int | tuple[int, int] | None:
    """Processes, as sbatch counts them: of each node so many, where they are not given."""
    tasks: int | tuple[int, int] | None = options.procs
    nodes, each = options.nodes, options.ntasks_per_node
    if tasks is not None or (nodes is None and each is None):
        return tasks
    return (nodes or 1) * (each or 1)


def _share_memory(
    options: argparse.Namespace, told: Told, tasks: int, refuse: Callable[[str, str], None]
) -> None:
    """Memory of a node as that of its processes; refused where it is not known how many it gets."""
    memory = options.mem
    if options.memory_mb_per_proc is not None:
        refuse("mem", f"{memory}M: excludes --mem-per-cpu")
    elif memory == 0:
        told.warn(told.of("mem"), "--mem=0: all memory of a node cannot be asked for; none is")
    elif tasks == 1:
        options.memory_mb_per_proc = memory
    elif options.nodes is not None:
        options.memory_mb_per_proc = math.ceil(memory * options.nodes / tasks)
    elif options.ntasks_per_node:
        options.memory_mb_per_proc = math.ceil(memory / options.ntasks_per_node)
    else:
        refuse(
            "mem",
            f"{memory}M: is of a node, and nothing says how many of the {tasks} processes a node "
            "gets; say --mem-per-cpu",
        )


COMMANDS = {
    "sbatch": Command(
        doc="queue a batch script of Slurm's, with its #SBATCH lines",
        about=ABOUT,
        example="coalloc sbatch job.sh\n"
        "  coalloc sbatch -n 64 -t 2:00:00 -p main model.sh input.nc\n"
        "  coalloc sbatch -n 8 --wrap 'srun ./solve'",
        add=_add,
        run=_run,
    )
}
