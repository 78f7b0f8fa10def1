"""Generic resources in sbatch's words, ``gpu:a100:2,fast``, as counts by name."""

from __future__ import annotations

import re

from coalloc.model.errors import InputError

_COUNT = re.compile(r"([0-9]{1,18})([kmgtp]?)", re.ASCII | re.IGNORECASE)


def read_gres(text: str) -> dict[str, int]:
    """Counts of what is asked for, the last of each name. Raises `InputError`."""
    counts = dict[str, int]()
    for item in text.split(",") if text != "none" else ():
        whole = item.removeprefix("gres:").replace("=", ":")
        name, colon, last = whole.rpartition(":")
        if colon and (found := _COUNT.fullmatch(last)):
            counts[name] = int(found[1]) << 10 * " kmgtp".index(found[2].lower() or " ")
        else:
            counts[whole] = 1
    if any(name.partition(":")[0] in counts for name in counts if ":" in name):
        what = "Invalid GRES specification (with and without type identification)"
        raise InputError("gres", what)
    return {name: count for name, count in counts.items() if name and count}
