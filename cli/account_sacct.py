"""``coalloc account --sacct``: our accounts beside Slurm's."""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

from coalloc.adapters.runner.command import BatchError
from coalloc.adapters.slurm.accounts import (
    OurRow,
    SlurmRow,
    differences,
    parse_accounts,
    sacct_words,
)
from coalloc.adapters.slurm.commands import Slurm
from coalloc.adapters.slurm.records import ParseError
from coalloc.cli.command import (
    BAD_USAGE,
    DONE,
    FAILED,
    CommandError,
    connect,
    note,
    print_json,
)
from coalloc.cli.output import show_table

SACCT_S = 300.0
"""For the answer of ``sacct``, which may be long."""
DAY_S = 86_400.0


def compare(args: argparse.Namespace) -> int:
    """Print what differs, job by job; returns 1 where anything does."""
    chosen = {"--project": args.project, "--state": args.state, "--swf": args.swf}
    for option, value in chosen.items():
        if value not in (None, False):
            raise CommandError(f"--sacct compares all jobs: not with {option}", BAD_USAGE)
    since, until = args.since or 0.0, time.time() if args.until is None else args.until
    with connect(args) as client:
        ours = [
            OurRow(
                id=row.id,
                user=row.user,
                name=row.name,
                state=row.state,
                started=row.started,
                ended=row.ended,
            )
            for row in client.account(user=args.user, since=since, until=until)
            if args.sacct in row.clusters and row.started is not None
        ]
    first = min((job.started for job in ours), default=until)
    theirs = _read(args, min(max(since, first - DAY_S), until), until)
    found = list(differences(ours, theirs, since=since, until=until))
    if args.json or args.csv:
        rows = [{"job": d.job, "slurm_job": d.number, "difference": d.text} for d in found]
        print_json({"cluster": args.sacct, "jobs": len(ours), "differences": rows})
    elif found:
        show_table(
            ("JOBID", "SLURM", "DIFFERENCE"), ((d.job, d.number or "-", d.text) for d in found)
        )
    jobs = {difference.job for difference in found}
    note(f"{len(ours)} jobs on {args.sacct} compared, {len(jobs) or 'none'} of them differ")
    return FAILED if found else DONE


def _read(args: argparse.Namespace, since: float, until: float) -> list[SlurmRow]:
    words = sacct_words(since, until + DAY_S, args.user)
    path = args.sacct_output
    try:
        if path == "-":
            text = sys.stdin.read()
        elif path:
            text = Path(path).read_text(encoding="utf-8", errors="replace")
        else:
            slurm = Slurm(conf=os.environ.get("SLURM_CONF", ""), timeout_s=SACCT_S)
            text = slurm.run("sacct", *words, env={"TZ": "UTC"})
        return list(parse_accounts(text))
    except (BatchError, OSError) as error:
        raise CommandError(str(error)) from error
    except ParseError as error:
        raise CommandError(f"{path or 'sacct'}: {error}", BAD_USAGE) from error
