"""A Slurm launcher whose commands are scripts: they stand in for Slurm's, and start wrappers."""

from __future__ import annotations

import sys
from pathlib import Path

from coalloc.adapters.slurm.launcher import SlurmLauncher
from coalloc.adapters.slurm.settings import read_settings
from tests.support.launch_bed import LaunchTestbed

HEAD = '#!/bin/sh\necho "$(basename $0) $*" >> {log}\n'
GRANTED = 'echo "srun: jobid 12: nodes(2):\\`n[1-2]\', cpu counts: 1(x2)" >&2\n'
BUSY = "echo 'srun: error: Unable to allocate resources: Requested nodes are busy' >&2; exit 1\n"
# one wrapper on each node, as srun would start them
RUN = """\
nodes=$(sed -n 's/.*--nodelist=\\([^ ]*\\) .*/\\1/p' {log} | head -1 | tr , ' ')
while [ "$1" != /bin/sh ]; do shift; done
for node in $nodes; do SLURMD_NODENAME=$node SLURM_JOB_ID=12 "$@" & all="$all $!"; done
for each in $all; do wait $each || code=$?; done
exit ${{code:-0}}
"""


# all jobs that are asked for by number, before they are cancelled, without a comment
LISTED = """\
case "$*" in *"-a -j "*) for each in $(echo "$5" | tr , ' '); do echo "$each "; done;; esac
"""


class FakeSlurm(LaunchTestbed):
    """A launcher whose commands are scripts."""

    def __init__(self, root: Path, **scripts: str) -> None:
        self.state, self.cwd = root / "state", root / "work"
        self.cwd.mkdir(exist_ok=True)
        self.bin, self.log = root / "bin", root / "asked"
        self.bin.mkdir()
        texts = {
            "sinfo": "echo n1; echo n2\n",
            "srun": GRANTED + RUN.format(log=self.log),
            "scancel": "",
            "squeue": LISTED,
            "scontrol": "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1\n",
            **scripts,
        }
        for name, text in texts.items():
            path = self.bin / name
            path.write_text(HEAD.format(log=self.log) + text)
            path.chmod(0o755)
        settings = {
            "bin": str(self.bin),
            "address": "127.0.0.1",
            "python": sys.executable,
            "command_limit_s": 1.0,
        }
        self.launcher = SlurmLauncher(read_settings(settings, "c"), self.state)

    def asked(self, name: str) -> list[str]:
        """What a command was asked, call by call."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return [line.partition(" ")[2] for line in lines if line.startswith(f"{name} ")]
