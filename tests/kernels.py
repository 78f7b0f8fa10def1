"""The compiled kernels of a checkout: one cache for the tests and for the daemons they start.

``python -m tests.kernels`` compiles what is not there yet: what a solver does before it is warm,
and what the quick suite needs beside that. Import it before anything imports numba.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import tempfile
from pathlib import Path

CACHE = os.environ.setdefault(
    "NUMBA_CACHE_DIR", str(Path(__file__).resolve().parents[1] / ".numba")
)


def main() -> int:
    """Return 0 where everything could be compiled."""
    from coalloc.daemon.solver.warming import warm
    from coalloc.policies.registry import POLICIES
    from tests.contract.test_policies import first_plan

    failures = warm()
    print("\n".join(failures), end="", file=sys.stderr)
    beside = multiprocessing.get_context("fork").Process(target=_simulate)
    beside.start()
    for name in POLICIES:
        first_plan(name, "mixed")
    beside.join()
    return 1 if failures or beside.exitcode else 0


def _simulate() -> None:
    """Replay a few jobs with the kernels of the simulation."""
    from coalloc.adapters.formats.platforms import read_platform
    from coalloc.simulation.replay import replay
    from coalloc.simulation.workload import read_workload
    from tests.integration.test_simulate import LOG, PLATFORM

    with tempfile.TemporaryDirectory() as folder:
        log, platform = Path(folder, "log.swf"), Path(folder, "four.toml")
        log.write_text(LOG)
        platform.write_text(PLATFORM)
        replay(read_workload([log]), read_platform(platform), "easy", path="stream")


if __name__ == "__main__":
    sys.exit(main())
