"""How much of the parts that must not err is covered by the tests that ran last: ``make coverage``.

Statements and branches are counted apart, so that many of the one cannot hide few of the other.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from coverage import Coverage
from coverage.exceptions import NoDataError

LEAST = 0.95
PARTS: Mapping[str, tuple[str, ...]] = {
    "cores": ("core/*.py",),
    "checker": ("policies/checking/*.py",),
    "model": ("model/*.py",),
    "parsers": (
        "adapters/formats/*.py",
        "adapters/slurm_text*.py",
        "adapters/gridengine/parse_xml.py",
    ),
}


def shares(files: Mapping[str, Mapping[str, Any]], patterns: tuple[str, ...]) -> dict[str, float]:
    """Shares of statements and of branches that were taken, of the files that match.

    Raises
    ------
    LookupError
        No file matches: nothing was measured.
    """
    sums = dict.fromkeys(("num_statements", "covered_lines", "num_branches", "covered_branches"), 0)
    found = [
        value["summary"]
        for name, value in files.items()
        if any(fnmatchcase(name, pattern) for pattern in patterns)
    ]
    if not found:
        raise LookupError(f"no file is like {' or '.join(patterns)}")
    for summary in found:
        for key in sums:
            sums[key] += summary[key]
    return {
        "statements": sums["covered_lines"] / max(sums["num_statements"], 1),
        "branches": sums["covered_branches"] / max(sums["num_branches"], 1),
    }


def main() -> int:
    """Print a line for each part; 1 if one is covered too little, 2 if nothing was measured."""
    measured = Coverage()
    measured.load()
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "coverage.json"
        try:
            measured.json_report(outfile=str(report))
        except NoDataError:
            print("nothing was measured; run make coverage", file=sys.stderr)
            return 2
        files = json.loads(report.read_text())["files"]
    short = False
    print(f"{'':12}{'statements':>11}{'branches':>11}")
    for part, patterns in PARTS.items():
        found = shares(files, patterns)
        short |= min(found.values()) < LEAST
        print(f"{part:12}" + "".join(f"{share:11.1%}" for share in found.values()))
    if short:
        print(f"less than {LEAST:.0%} of a part is covered; coverage report -m names the lines")
    return int(short)


if __name__ == "__main__":
    sys.exit(main())
