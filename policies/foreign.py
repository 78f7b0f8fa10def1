"""Policies of other packages, found by the entry points that they declare.

Finding one reads the installed packages' metadata alone. Its module is loaded when the policy is
looked up: in the command that was called, or in the solver's process, never in the daemon's.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points

from coalloc.model.errors import InputError
from coalloc.model.values import replace
from coalloc.policies.base import Policy

GROUP = "coalloc.policies"


def found() -> Mapping[str, EntryPoint]:
    """The entry points by name; of one that is declared twice, the first."""
    out: dict[str, EntryPoint] = {}
    for entry in entry_points(group=GROUP):
        out.setdefault(entry.name, entry)
    return out


def load(entry: EntryPoint) -> Policy:
    """Import the policy that an entry point names.

    Raises `InputError`, whatever goes wrong in the package, in one line.
    """
    where = f"policy {entry.name} of {package_of(entry)}"
    try:
        policy = entry.load()
    except Exception as error:
        raise InputError(where, f"cannot be loaded: {type(error).__name__}: {error}") from error
    if not isinstance(policy, Policy):
        what = f"{entry.value} is {type(policy).__name__}, not a coalloc.policies.base.Policy"
        raise InputError(where, what)
    if policy.name != entry.name:
        raise InputError(where, f"calls itself {policy.name!r}")
    return replace(policy, package=package_of(entry))


def package_of(entry: EntryPoint) -> str:
    """The distribution that declares an entry point, with its version."""
    return f"{entry.dist.name} {entry.dist.version}" if entry.dist else "an unknown package"
