"""Jobs that are followed while they run, on real Slurm."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

from tests.support.followed import LIMIT_S, at_a_terminal, heard, started
from tests.testbeds.slurm import SlurmTestbed
from tests.testbeds.slurm_site import SlurmSite


def test_output_and_a_terminal_come_from_the_nodes(clusters: SlurmTestbed, root: Path) -> None:
    with SlurmSite(root, clusters, given={"slots": "cpus"}) as site:
        words = ("-M", "a", "-n", "9", "-t", "5", "--", "sh", "-c")
        text = "seq 20000; echo $COALLOC_NODE >&2; test $COALLOC_RANK != 8 || exit 7"
        process = started(site, "run", *words, text)
        out, err = process.communicate(timeout=LIMIT_S)
        assert process.returncode == 7, err
        said = b"".join(b"%d\n" % n for n in range(1, 20_001))
        assert Counter(out) == Counter(9 * said), err  # of several, lines may be cut as in files
        assert len({line for line in err.split() if b"a" in line}) == 2, err
        shell = ("-M", "a", "-t", "5", "--", "sh", "-i")
        process, master = at_a_terminal(site, "run", "--pty", *shell)
        heard(master, lambda said: b"ready> " in said)
        os.write(master, b"echo job $SLURM_JOB_ID; tty\n")
        heard(master, lambda said: b"/dev/pts/" in said)
        os.write(master, b"sh -c 'echo up; exec sleep 600'\n")
        heard(master, lambda said: b"up\r\n" in said)
        os.write(master, b"\x03")
        os.write(master, b"exit 9\n")
        assert process.wait(LIMIT_S) == 9
        os.close(master)
