"""Options of a job that its batch systems are told, in sbatch's words."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from coalloc.model.errors import InputError
from coalloc.model.values import replace

LONGEST = 256
"""Characters of one option."""
_VALUED = (
    *("acctg-freq", "core-spec", "cores-per-socket", "cpu-freq", "distribution", "exclude"),
    *("extra-node-info", "gpu-bind", "gpu-freq", "gres-flags", "hint", "mem-bind", "mincpus"),
    *("network", "nodelist", "ntasks-per-core", "ntasks-per-socket", "prefer", "signal"),
    *("sockets-per-node", "switches", "thread-spec", "threads-per-core", "tmp", "tres-bind"),
    *("exclusive", "wckey"),
)
_BARE = ("contiguous", "overcommit", "spread-job", "use-min-nodes")
PASSED = frozenset((*(f"{name}=" for name in _VALUED), *_BARE))
"""Options that only the batch system of a job's one cluster judges; ``=``: it has a value."""


class BatchOptions(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Options of a job for the batch systems, each as sbatch has it; empty: not said."""

    account: str = ""
    """Of the batch system; a job's own may be mapped to another on each cluster."""
    qos: str = ""
    partition: str = ""
    """One or several, with commas between them."""
    constraint: str = ""
    """Of node features, where it is more than a list of features that every node must have."""
    reservation: str = ""
    licenses: str = ""
    passed: tuple[str, ...] = ()
    """Options of `PASSED`, each as it was written: ``--exclude=n1``."""

    def given(self) -> Iterator[tuple[str, str]]:
        """Option and value of those that were said, in the order of `NAMES`; none of `passed`."""
        return ((n, value) for n in NAMES if n != "passed" and (value := getattr(self, n)))

    def written(self) -> Iterator[tuple[str, str]]:
        """Field and option, as a command has it, of all that were said."""
        yield from ((name, f"--{name}={value}") for name, value in self.given())
        yield from (("passed", option) for option in self.passed)

    def with_account(self, account: str) -> BatchOptions:
        return self if account == self.account else replace(self, account=account)

    @property
    def partitions(self) -> tuple[str, ...]:
        """The partitions of which one is to take the job; empty: the default one."""
        return tuple(name for name in self.partition.split(",") if name)


NAMES = BatchOptions.__struct_fields__
PLAIN = BatchOptions()
"""Nothing is asked."""


def check_options(options: BatchOptions, where: str = "batch") -> None:
    """Refuse what is no value of an option of a command. Raises `InputError`."""
    if options is PLAIN:
        return
    for name, value in (*options.given(), *(("passed", each) for each in options.passed)):
        if len(value) > LONGEST:
            raise InputError(f"{where}.{name}", f"is longer than {LONGEST} characters")
        if not value.isprintable() or any(letter.isspace() for letter in value):
            raise InputError(f"{where}.{name}", f"{value!r} holds a blank or a control character")
    for option in options.passed:
        name, equals, value = option.partition("=")
        if name[:2] != "--" or name[2:] + equals not in PASSED or bool(equals) != bool(value):
            known = ", ".join(f"--{each}" for each in sorted(PASSED))
            raise InputError(f"{where}.passed", f"{option!r} is not one of {known}")
