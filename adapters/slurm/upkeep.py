"""Acts in Slurm that a reading has shown to be due; the executor carries each out by itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from msgspec import Struct

from coalloc.adapters.base import Act, AdapterError
from coalloc.adapters.runner.command import BatchError, CommandRefusedError
from coalloc.adapters.slurm.commands import Slurm
from coalloc.adapters.slurm.share import Share

AT_ONCE = 500
"""Jobs named to one command."""


class Due(Struct, frozen=True, kw_only=True):
    """Findings of one reading."""

    handed: tuple[str, ...] = ()
    """Jobs handed over to us that Slurm would start: to be held."""
    revived: tuple[str, ...] = ()
    """Jobs of parts that are over, whose end slurmctld forgot: to be cancelled."""

    @property
    def notices(self) -> tuple[str, ...]:
        """The same for operators."""
        if not self.revived:
            return ()
        named = ", ".join(self.revived[:10])
        return (f"slurmctld had forgotten the end of our jobs {named}: cancelled again",)


def acts(due: Due, slurm: Slurm, share: Share) -> tuple[Act, ...]:
    """Acts that are due in Slurm, in the order in which they are best done."""
    commands: list[tuple[str, ...]]
    commands = [("hold_jobs", "scontrol", "hold", ",".join(lot)) for lot in _lots(due.handed)]
    commands += [("cancel_revived_jobs", "scancel", *lot) for lot in _lots(due.revived)]
    found: list[tuple[str, Callable[[], object]]]
    found = [(what, partial(slurm.run, *words, env={"TZ": "UTC"})) for what, *words in commands]
    found += [("keep_share", share.carry_out)] if share.is_due else []
    return tuple(Act(what=what, run=partial(_carry_out, run)) for what, run in found)


def _lots(jobs: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    for first in range(0, len(jobs), AT_ONCE):
        yield jobs[first : first + AT_ONCE]


def _carry_out(run: Callable[[], object]) -> None:
    try:
        run()
    except CommandRefusedError:
        pass  # one has begun or ended since; the others are done
    except BatchError as error:
        raise AdapterError(str(error)) from error
