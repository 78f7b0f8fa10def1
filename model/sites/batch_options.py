"""Options of a job that its batch systems are told, in sbatch's words."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from coalloc.model.errors import InputError
from coalloc.model.values import replace

LONGEST = 256
"""Characters of one option."""


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
    gres: str = ""
    passed: tuple[str, ...] = ()
    """Options that only the batch system judges, each as it was written: ``--exclude=n1``."""

    def given(self) -> Iterator[tuple[str, str]]:
        """Option and value of those that were said, in the order of `NAMES`; none of `passed`."""
        return ((n, value) for n in NAMES if n != "passed" and (value := getattr(self, n)))

    def with_account(self, account: str) -> BatchOptions:
        """The same for another account."""
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
    for name, value in options.given():
        if len(value) > LONGEST:
            raise InputError(f"{where}.{name}", f"is longer than {LONGEST} characters")
        if not value.isprintable() or any(letter.isspace() for letter in value):
            raise InputError(f"{where}.{name}", f"{value!r} holds a blank or a control character")
