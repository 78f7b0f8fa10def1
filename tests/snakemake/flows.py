"""Workflows, and Snakemake run on them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests.snakemake.conftest import SNAKEMAKE
from tests.support.live_site import Running

FAN = """
rule all:
    input: "joined"

rule map:
    output: "part{n}"
    resources: mem_mb=64, runtime=5
    shell: "echo {wildcards.n} > {output}"

rule join:
    input: expand("part{n}", n=range(3))
    output: "joined"
    threads: 2
    resources:
        mem_mb=100, runtime=7, coalloc_clusters="beta", coalloc_weight="2.5",
        coalloc_base_time="20"
    shell: "cat {input} > {output}; echo threads {threads} >> {output}"
"""

FAILING = """
rule all:
    input: "good", "second", "bad"

rule good:
    output: "good"
    shell: "touch {output}"

rule second:
    output: "second"
    shell: "if [ -e tried ]; then touch {output}; else touch tried; exit 3; fi"

rule bad:
    output: "bad"
    shell: "echo the reason is here >&2; exit 4"
"""

LONG = """
rule all:
    input: expand("long{n}", n=range(2))

rule long:
    output: "long{n}"
    shell:
        "touch running{wildcards.n}; "
        "for i in $(seq 900); do if [ -e gate ]; then break; fi; sleep 0.1; done; "
        "[ -e gate ] && touch {output}"
"""

WIDE = """
rule wide:
    output: "wide"
    resources: coalloc_procs=9
    shell: "touch {output}"
"""

MISSPELT = """
rule misspelt:
    output: "x"
    resources: coalloc_bandwith="75Mbps"
    shell: "touch {output}"
"""


def started(site: Running, folder: Path, text: str, *options: str) -> subprocess.Popen[str]:
    """Snakemake in a folder of its own."""
    folder.mkdir(exist_ok=True)
    (folder / "Snakefile").write_text(text)
    # Interrupts are ignored in whatever a shell runs in the background, and that is inherited.
    command = ["env", "--default-signal=INT", str(SNAKEMAKE), "--executor", "coalloc"]
    command += ["--jobs", "4", "--latency-wait", "10"]
    return subprocess.Popen(
        [*command, "--coalloc-config", str(site.config), *options],
        cwd=folder,
        env={**os.environ, "HOME": str(site.root)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def run(site: Running, folder: Path, text: str, *options: str) -> tuple[int, str]:
    """Its exit code and what it printed."""
    process = started(site, folder, text, *options)
    try:
        said, _ = process.communicate(timeout=240)
    finally:
        process.kill()
        process.wait()
    return process.returncode, said
