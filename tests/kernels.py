"""The compiled kernels of a checkout: one cache for the tests and for the daemons they start.

``python -m tests.kernels`` compiles what is not there yet. Import it before anything imports numba.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

CACHE = os.environ.setdefault(
    "NUMBA_CACHE_DIR", str(Path(__file__).resolve().parents[1] / ".numba")
)


def main() -> int:
    """Return 0 where everything could be compiled."""
    from coalloc.daemon.solver.worker import warm

    failures = warm()
    print("\n".join(failures), end="", file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
