"""Files of other kinds are known before they are read; ours are read however they are packed."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from coalloc.adapters.formats.platforms import read_platform
from coalloc.adapters.formats.sacct_log import read_log
from coalloc.adapters.formats.swf import read_swf
from coalloc.adapters.formats.workflow import is_workflow, read_workflow
from coalloc.cli.command import CommandError
from coalloc.cli.files import load_snapshot
from coalloc.model.errors import InputError

BATSIM = {"id": 0, "subtime": 0, "walltime": -1, "res": 4, "profile": "d"}
FOREIGN = {
    "is a zip archive, which is not read; unpack it first": b"PK\3\4" + bytes(40),
    "is a tar archive, which is not read; unpack it first": b"a" + bytes(256) + b"ustar\x0000",
    "is a file packed by zstd, which is not read; unpack it first": b"\x28\xb5\x2f\xfd..",
    "is UTF-16 text, which is not read; convert it": "1 0 0 9 1".encode("utf-16"),
    "is UTF-16 text, which": "1 0 0 9 1 and more".encode("utf-16-le"),
    "is an SQLite database, which": b"SQLite format 3\0" + bytes(9),
    "is a PDF document, which": b"%PDF-1.7\n",
    "is a program, which": b"\x7fELF\2\1\1",
    "is a picture, which": b'<?xml version="1.0"?>\n<svg width="9">',
    "is an HTML page, which": b"\n<!-- x --><!DOCTYPE html><html>404</html>",
    "is a pointer of Git LFS, which is not read; git": b"version https://git-lfs.github.com/spec\n",
    "is a log of the Grid Workloads Archive, which": b"# JobID\tSubmitTime\n1 0 0 9 1 1\n",
    "is a table of sacct, which is not read; sacct -P": b"JobID    User\n1  ann\n",
    "is a trace of Nextflow, which": b"task_id\thash\tnative_id\tname\n1\ta/b\t7\tx\n",
    "is a workload of Batsim, which": json.dumps({"nb_res": 4, "jobs": [BATSIM]}).encode(),
    "is a workload of Batsim, ": json.dumps({"jobs": [], "profiles": {"d": {}}}).encode(),
    "is a workflow in CWL, which": b"#!/usr/bin/env cwl-runner\ncwlVersion: v1.2\n",
    "is a workflow in CWL, ": b'{"cwlVersion": "v1.0", "class": "Workflow"}',
    "is a workflow in WDL, which": b"# x\nversion 1.1\n\nworkflow hello {\n}\n",
    "is a workflow of DAGMan, which": b"# diamond\nJOB A a.sub\nJob B b.sub\nPARENT A CHILD B\n",
    "is a Mermaid diagram, which": b"%% x\nflowchart TB\n  a --> b\n",
    "is a Mermaid diagram, ": b"---\ntitle: x\n---\ngraph LR\n  a --> b\n",
    "is an undirected graph, which": b"graph G {\n a -- b;\n}\n",
    "is a Nextflow script, which": b"params.x = 1\nprocess align {\n  script: 'x'\n}\n",
    "is a Snakefile, which is not read; snakemake --dag": b"rule all:\n    input: 'x'\n",
    "is a manifest of Kubernetes, which": b"apiVersion: v1\nkind: Job\n",
    "is a script, which": b"#!/bin/sh\necho\n",
    "is binary data, which": b"12 \0\1\2\3",
    "has 'Building DAG of jobs...' before its graph, which begins in line 3": (
        b"\x1b[33mBuilding DAG of jobs...\x1b[0m\n\n\x1b[0mdigraph snakemake_dag {\n 0; 1;\n}\n"
    ),
}
"""What is said, and how such a file begins."""
PACKINGS: dict[str, Callable[[bytes], bytes]] = {
    "plain": bytes,
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
}
LOG = b"1 0 -1 9 1 -1 -1 1 60 -1 1 1 1 1 1 -1 -1 -1\n2 5 -1 9 1 -1 -1 1 60 -1 1 1 1 1 1 -1 -1 -1\n"
ACCOUNTS = b"JobID|Submit|Start|End|NCPUS\n7|1763632800|1763632860|1763632999|4\n"
OURS: dict[str, tuple[bytes, Callable[[Path], Any]]] = {
    "log.swf": (LOG, lambda path: read_swf(path).jobs),
    "header.swf": (b"; MaxProcs: 4\n" + LOG, lambda path: read_swf(path).header),
    "jobs.sacct": (ACCOUNTS, lambda path: read_log(path).jobs),
    "flow.dot": (b"digraph g {\n a; b;\n a -> b;\n}\n", lambda path: read_workflow(path).job),
    "flow.json": (b'{"tasks": [{"id": "a", "work": 9}]}', lambda path: read_workflow(path).job),
    "site.toml": (b'[[clusters]]\nname = "a"\n[[clusters.nodes]]\nname = "a1"\n', read_platform),
}
READERS = (read_log, read_swf, is_workflow, read_workflow, read_platform, load_snapshot)


@pytest.mark.parametrize("packing", PACKINGS)
@pytest.mark.parametrize("said", FOREIGN)
def test_a_file_of_another_kind_is_named(said: str, packing: str, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(PACKINGS[packing](FOREIGN[said]))
    for read in READERS[: None if packing == "plain" else -1]:
        with pytest.raises((InputError, CommandError)) as caught:
            read(path)
        assert str(caught.value).startswith(f"{path}: {said}")
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("bom", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("packing", PACKINGS)
@pytest.mark.parametrize("name", OURS)
def test_ours_are_read_packed_and_marked(
    name: str, packing: str, bom: bytes, tmp_path: Path
) -> None:
    content, read = OURS[name]
    plain, path = tmp_path / name, tmp_path / packing / name
    path.parent.mkdir()
    plain.write_bytes(content)
    path.write_bytes(PACKINGS[packing](bom + content))
    assert read(path) == read(plain)
    assert is_workflow(path) == name.startswith("flow")


@pytest.mark.parametrize("packing", ["gz", "bz2", "xz"])
def test_what_is_cut_is_told(packing: str, tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(PACKINGS[packing](LOG * 999)[:-9])
    with pytest.raises(InputError, match=r"is a damaged (gzip|bzip2|xz) file"):
        read_swf(path)
