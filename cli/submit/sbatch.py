"""``coalloc sbatch``: a batch script of Slurm as it is.

Its ``#SBATCH`` lines are options, the script is started once, and what has no equal here is named:
what would change what runs is refused, what would not is a warning.
"""

from __future__ import annotations

import argparse
import os

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
from coalloc.cli.submit.shape_words import lay_out
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
named. It is started once, on the first of its nodes, while the job holds all that it asks for; srun
in it starts its processes where the cluster is Slurm's, and mpirun finds them in the file
$COALLOC_HOSTFILE anywhere. The job runs on one cluster, whichever is best.

All options of coalloc submit may stand here, also in #COALLOC lines. Nodes, CPUs, memory and GPUs
mean what they mean to sbatch; what only the cluster's Slurm can judge is passed on to it. Options
without an equal are named with their lines: those that would change what runs are refused, others
are warnings."""

PREFIXES = (SBATCH, COALLOC)


def _add(parser: argparse.ArgumentParser) -> None:
    parser.usage = "coalloc sbatch [options] [SCRIPT [ARG...]]"
    # some letters and words mean something else to sbatch than to submit
    parser.conflict_handler = "resolve"
    assert isinstance(parser, Parser)
    submit.add_shape(parser)
    order = parser.add_argument_group("when and where")
    shared.add(order, *submit.ORDER)
    order.add_argument("--no-requeue", action="store_false", dest="requeue", help="the default")
    shared.add(parser.add_argument_group("what batch systems are told"), shared.BATCH)
    shared.add(parser.add_argument_group("how it runs"), *submit.LAUNCH)
    shared.add(parser.add_argument_group("what is printed"), shared.ANSWER)
    parser.add_argument("-v", "--verbose", action="store_true", help=argparse.SUPPRESS)
    add_words(parser, over=True)
    parser.set_defaults(
        once=True, work=None, chunk_s=None, retries=None, keep_going=False, requeue=None
    )
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="SCRIPT [ARG...]")


def _run(args: argparse.Namespace) -> int:
    before_the_script(args, "sbatch")
    argv, script = submit.asked(args, "sbatch")
    if not script:
        raise shared.usage_error("sbatch", "a script is wanted; --wrap takes a command")
    told = Told("sbatch")
    said = script_options(script, argv[0], PREFIXES, told)
    said += variables_of(os.environ)
    options = merged(args, _add, said, told, completes=True)
    _warn_of_unread(options, script, argv[0], told)
    judge(options, told)
    judge_marks(options, told, once=True)
    lay_out(options, told, counts=True)
    told.end()
    return submit.send(options, argv, script, lambda done: f"batch job {done.job}", "sbatch")


def _warn_of_unread(options: argparse.Namespace, script: str, shown: str, told: Told) -> None:
    """Name the lines and variables that sbatch may be thought to read."""
    for prefix, lines in lines_of(script, PREFIXES).other.items():
        if options.sbatch_ignore_pbs is None:
            told.warn(f"{shown}:{lines[0]}: ", f"{prefix} lines are not read; sbatch reads them")
    for name in unknown_variables(os.environ):
        told.warn(f"{name}: ", "is not read")


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
