"""Options of a policy, checked against their declaration; that of another package by a child.

The code of other packages is never loaded in the daemon. `python -m coalloc.daemon.foreign_options
NAME` reads options as JSON, loads the policy and answers with the first one that is wrong.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from coalloc.model.errors import InputError
from coalloc.policies.options import Options, options_of
from coalloc.policies.registry import lookup

LIMIT_S = 15.0
"""How long a package may take to be loaded, seconds; the daemon waits for it."""
WRONG = 3
"""What the child ends with where an option is wrong."""


def check_options(policy: str, form: type[Options], options: Mapping[str, Any], where: str) -> None:
    """Refuse options that a policy does not have, and values out of range, at their path."""
    known = options_of(form)
    for key, value in options.items():
        if key not in known:
            names = ", ".join(known) or "none"
            raise InputError(f"{where}.{key}", f"unknown option; {policy} has {names}")
        known[key].read(value, f"{where}.{key}")


def check_foreign_options(policy: str, options: Mapping[str, Any], where: str) -> None:
    """Do the same for a policy of another package.

    One that cannot be loaded now is not refused: rounds name it, and go on with their fallbacks.
    """
    if not options:
        return
    command = [sys.executable, "-m", "coalloc.daemon.foreign_options", policy, where]
    try:
        done = subprocess.run(
            command,
            input=json.dumps(options, default=str),
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return
    if done.returncode == WRONG:
        path, what = json.loads(done.stdout)
        raise InputError(path, what)


def main(arguments: Sequence[str]) -> int:
    """Check the options on standard input."""
    policy, where = arguments
    options = json.load(sys.stdin)
    form = lookup(policy).options
    try:
        check_options(policy, form, options, where)
    except InputError as error:
        json.dump((error.where, error.what), sys.stdout)
        return WRONG
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
