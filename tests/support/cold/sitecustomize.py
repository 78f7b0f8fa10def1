"""Has a solver wait for its end, and compile nothing: it takes three seconds of a core to warm."""

import os
import sys

if "coalloc.daemon.solver.worker" in sys.orig_argv:
    os.read(0, 1)
    os._exit(0)
