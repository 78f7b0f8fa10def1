"""``coalloc sbatch``: a batch script of Slurm as it is.

Its ``#SBATCH`` lines are options, the script is started once, and what has no equal here is named:
what would change what runs is refused, what would not is a warning.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator, Mapping
from typing import Any

from coalloc.cli import arguments as parse
from coalloc.cli.command import BAD_USAGE, Command, CommandError, Parser, note
from coalloc.cli.submit import command as submit
from coalloc.cli.submit import options as shared
from coalloc.cli.submit.sbatch_options import BARE, HETEROGENEOUS, NO_EQUAL, Consequence
from coalloc.wire.answers import Submitted

ABOUT = """\
Queue a batch script of Slurm's, as sbatch does: its #SBATCH lines are options, and the command
line wins. The script is copied when it is submitted, and comes from standard input where none is
named. It is started once, on the first of its nodes, while the job holds all its slots; srun in it
starts a process in each slot where the cluster is Slurm's, and mpirun finds them in the file
$COALLOC_HOSTFILE anywhere. The job runs on one cluster, whichever is best.

All options of coalloc submit may stand here, also in #COALLOC lines. A process takes one slot; the
nodes are chosen by the planner. Options of sbatch without an equal are named with their lines:
those that would change what runs are refused, others are warnings."""

PREFIXES = (parse.SBATCH, parse.PREFIX)


def _add(parser: argparse.ArgumentParser) -> None:
    parser.usage = "coalloc sbatch [options] [SCRIPT [ARG...]]"
    # some letters and words mean something else to sbatch than to submit
    parser.conflict_handler = "resolve"
    assert isinstance(parser, Parser)
    parser.bare = BARE
    size = parser.add_argument_group("what it needs")
    submit.add_shape(size)
    _add_layout(size)
    order = parser.add_argument_group("when and where")
    submit.add_order(order)
    shared.add_begin(order, "-b", "--begin")
    order.add_argument("--no-requeue", action="store_false", dest="requeue", help="the default")
    shared.add_batch(parser.add_argument_group("what batch systems are told"))
    submit.add_launch(parser.add_argument_group("how it runs"))
    shared.add_answer(parser.add_argument_group("what is printed"))
    _add_without_equal(parser.add_argument_group("of sbatch, without an equal here"))
    parser.set_defaults(
        once=True, work=None, chunk_s=None, retries=None, keep_going=False, verbose=False
    )
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="SCRIPT [ARG...]")


def _add_layout(group: Any) -> None:
    group.add_argument(
        "-N",
        "--nodes",
        type=parse.procs,
        metavar="N|MIN-MAX",
        help="with --ntasks-per-node, the number of processes; nodes are chosen by the planner",
    )
    group.add_argument("--ntasks-per-node", type=parse.count, metavar="N", help="see -N")
    group.add_argument(
        "-c", "--cpus-per-task", type=parse.count, metavar="1", help="a process takes one slot"
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


def _add_without_equal(group: Any) -> None:
    group.add_argument("-v", "--verbose", action="store_true", help=argparse.SUPPRESS)
    for name, each in NO_EQUAL.items():
        words: dict[str, Any] = {"dest": _dest(name), "help": argparse.SUPPRESS}
        if each.value == "none":
            words |= {"action": "store_const", "const": ""}
        elif each.value == "optional":
            words |= {"nargs": "?"}
        group.add_argument(*each.flags, **words)


def _dest(name: str) -> str:
    return f"sbatch_{name}"


def _run(args: argparse.Namespace) -> int:
    argv, script = submit.asked(args, "sbatch")
    if not script:
        raise shared.usage_error("sbatch", "a script is wanted; --wrap takes a command")
    _refuse_heterogeneous(argv, script)
    parser = Parser(prog="coalloc sbatch", add_help=False)
    _add(parser)
    options, lines = submit.with_script_options(args, parser, script, argv[0], PREFIXES)
    told = Origins(argv[0], lines)
    _judge(options, told)
    _lay_out(options, told)

    def what(done: Submitted) -> str:
        return f"batch job {done.job}"

    return submit.send(options, argv, script, what, "sbatch")


class Origins:
    """The place where each option was said.

    Parameters
    ----------
    shown : str
        The script, for people.
    lines : mapping of option to int
        Of those that come from the script.
    """

    def __init__(self, shown: str, lines: Mapping[str, int]) -> None:
        self._shown, self._lines = shown, lines

    def of(self, option: str) -> str:
        """Beginning of a message on an option."""
        line = self._lines.get(option)
        return f"{self._shown}:{line}: " if line is not None else "sbatch: "

    def refusal(self, option: str, what: str) -> CommandError:
        """The refusal of an option."""
        return CommandError(f"{self.of(option)}{what}", BAD_USAGE)

    def warn(self, option: str, what: str) -> None:
        """Tell that an option is not as it was meant."""
        note(f"warning: {self.of(option)}{what}")


def _refuse_heterogeneous(argv: list[str], script: str) -> None:
    """Refuse a job of several components."""
    for line, words in _lines_of(script, argv[0]):
        if words and words[0] in HETEROGENEOUS:
            what = "jobs of several components are not run here"
            raise CommandError(f"{argv[0]}:{line}: {words[0]}: {what}", BAD_USAGE)


def _lines_of(script: str, shown: str) -> Iterator[tuple[int, list[str]]]:
    try:
        yield from parse.script_options(script, PREFIXES)
    except argparse.ArgumentTypeError as error:
        raise CommandError(f"{shown}: {error}", BAD_USAGE) from error


def _judge(options: argparse.Namespace, told: Origins) -> None:
    """Name every option that has no equal here.

    Raises
    ------
    CommandError
        For one that would change what runs.
    """
    for name, each in NO_EQUAL.items():
        value = getattr(options, _dest(name))
        if value is None or value in each.harmless:
            continue
        said = each.flags[-1] + (f"={value}" if value else "")
        what = f"{said}: {each.why}"
        if each.verdict is Consequence.REFUSED:
            raise told.refusal(_dest(name), what)
        told.warn(_dest(name), what)


def _lay_out(options: argparse.Namespace, told: Origins) -> None:
    """Put processes, memory and devices of nodes in terms of processes."""
    if (options.cpus_per_task or 1) > 1:
        raise told.refusal(
            "cpus_per_task",
            f"--cpus-per-task={options.cpus_per_task}: a process takes one slot, which is a "
            "processor or a node as the site sets it; ask for more processes, and say -c 1",
        )
    nodes, tasks = options.nodes, _processes(options)
    most = tasks[1] if isinstance(tasks, tuple) else tasks or 1
    if nodes == 1 and most > 1:
        raise told.refusal(
            "nodes",
            f"--nodes=1: {most} processes may get slots of several nodes here; leave it out where "
            "they need not share one",
        )
    option = "nodes" if nodes is not None else "ntasks_per_node"
    if (nodes is not None and most > 1) or options.ntasks_per_node:
        plural = "processes" if most > 1 else "process"
        shown = f"{tasks[0]}-{tasks[1]}" if isinstance(tasks, tuple) else str(most)
        told.warn(
            option,
            f"--{option.replace('_', '-')}={_shown(getattr(options, option))}: {shown} {plural}, "
            "on nodes that the planner chooses",
        )
    options.procs = tasks
    if options.mem is not None:
        _share_memory(options, told, most)
    if options.gpus_per_node is not None:
        gres = f"gpu:{options.gpus_per_node}"
        options.gres = f"{options.gres},{gres}" if options.gres else gres


def _shown(value: int | tuple[int, int]) -> str:
    return f"{value[0]}-{value[1]}" if isinstance(value, tuple) else str(value)


def _processes(options: argparse.Namespace) -> int | tuple[int, int] | None:
    """Processes, as sbatch counts them: of each node so many, where they are not given."""
    tasks: int | tuple[int, int] | None = options.procs
    nodes, each = options.nodes, options.ntasks_per_node or 1
    if tasks is not None or (nodes is None and options.ntasks_per_node is None):
        return tasks
    if isinstance(nodes, tuple):
        return nodes[0] * each, nodes[1] * each
    return (nodes or 1) * each


def _share_memory(options: argparse.Namespace, told: Origins, tasks: int) -> None:
    """Memory of a node as that of its processes.

    Raises
    ------
    CommandError
        It is not known how many a node gets.
    """
    memory = options.mem
    if options.memory_mb_per_proc is not None:
        raise told.refusal("mem", "--mem and --mem-per-cpu exclude each other")
    if memory == 0:
        told.warn("mem", "--mem=0: all memory of a node cannot be asked for; none is")
    elif tasks == 1:
        options.memory_mb_per_proc = memory
    elif isinstance(options.nodes, int):
        options.memory_mb_per_proc = math.ceil(memory * options.nodes / tasks)
    elif options.ntasks_per_node:
        options.memory_mb_per_proc = math.ceil(memory / options.ntasks_per_node)
    else:
        raise told.refusal(
            "mem",
            f"--mem={memory}M: is of a node, and nothing says how many of the {tasks} processes a "
            "node gets; say --mem-per-cpu",
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
