"""``python -m coalloc.simulation``: the command ``coalloc simulate`` by itself."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from coalloc.simulation.command import add_arguments, run


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit status."""
    parser = argparse.ArgumentParser(prog="python -m coalloc.simulation", allow_abbrev=False)
    add_arguments(parser)
    return run(parser.parse_args(arguments))


if __name__ == "__main__":
    sys.exit(main())
