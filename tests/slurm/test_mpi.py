"""An MPI program over parts of a job in different Slurm clusters, by the example's launcher."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.testbeds.slurm import alike, bed
from tests.testbeds.slurm_site import SlurmSite
from tests.testbeds.ssh import PYTHON

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "mpirun.py"
PROGRAM = r"""
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
    int rank, size, sum;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    printf("rank %d of %d, sum %d, node %s\n", rank, size, sum, getenv("COALLOC_NODE"));
    MPI_Finalize();
    return 0;
}
"""
# The bed's nodes are one machine, and it may have no network but loopback. As root, mpirun asks
# twice.
OPTIONS = (
    "--oversubscribe --mca btl tcp,self --mca btl_tcp_if_include lo --mca oob_tcp_if_include lo"
)
ENVIRONMENT = {
    # Several of Open MPI's daemons are on one machine here: no store in memory that all share.
    "PMIX_MCA_gds": "hash",
    "MPIRUN_OPTIONS": OPTIONS,
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PATH": os.environ["PATH"],
}


@pytest.mark.skipif(
    shutil.which("mpirun") is None or shutil.which("mpicc") is None,
    reason="mpirun or mpicc not found; as root: apt-get install openmpi-bin libopenmpi-dev",
)
def test_mpi_over_two_clusters(root: Path) -> None:
    with bed(*alike(2, 2)) as running:
        site = SlurmSite(root, running)
        source, program = site.work / "sum.c", site.work / "sum"
        source.write_text(PROGRAM)
        subprocess.run(["mpicc", "-o", program, source], check=True)
        with site:
            argv = [PYTHON, str(EXAMPLE), str(program)]
            job = site.submit(argv, 4, launch={"env": ENVIRONMENT})
            ended = site.wait(job)
            text = (site.work / f"coalloc-{job}.out").read_text()
            assert ended["state"] == "completed", (ended, text)
            assert len(ended["clusters"]) == 2
            lines = [line for line in text.splitlines() if line.startswith("rank ")]
            assert sorted(line.partition(", node")[0] for line in lines) == [
                f"rank {rank} of 4, sum 6" for rank in range(4)
            ]
            nodes = [line.partition(", node ")[2] for line in lines]
            assert sorted(nodes) == ["a1", "a2", "b1", "b2"], "each where Slurm put it"
            # A daemon that dies at its start ends the job: mpirun would wait for it.
            agent = site.work / "orted"
            agent.write_text("#!/bin/sh\nexit 7\n")
            agent.chmod(0o755)
            dying = {**ENVIRONMENT, "MPIRUN_OPTIONS": f"{OPTIONS} --launch-agent {agent}"}
            failed = site.wait(site.submit(argv, 4, launch={"env": dying}))
            assert failed["state"] == "failed", failed
