"""Bytes of files that a user names: unpacked, and known for what they are before they are read."""

from __future__ import annotations

import bz2
import gzip
import lzma
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

from coalloc.model.errors import InputError

HEAD = 1 << 16
"""Bytes that a file is known by."""
BOM = b"\xef\xbb\xbf"
PACKED = (
    ("gzip", b"\x1f\x8b", gzip.open),
    ("bzip2", b"BZh", bz2.open),
    ("xz", b"\xfd7zXZ\0", lzma.open),
)
FOREIGN = tuple(
    (words, re.compile(pattern, re.DOTALL))
    for words, pattern in (
        ("a zip archive", rb"\APK(?:\x03\x04|\x05\x06)"),
        ("a tar archive", rb"\A.{257}ustar"),
        ("a 7z archive", rb"\A7z\xbc\xaf"),
        ("a rar archive", rb"\ARar!"),
        ("a file packed by zstd", rb"\A\x28\xb5\x2f\xfd"),
        ("a file packed by compress", rb"\A\x1f[\x9d\xa0]"),
        ("UTF-16 text", rb"\A(?:\xff\xfe|\xfe\xff|(?:[^\0]\0){8}|(?:\0[^\0]){8})"),
        ("an SQLite database", rb"\ASQLite format 3\0"),
        ("a PDF document", rb"\A%PDF-"),
        ("a program", rb"\A\x7fELF"),
        ("a picture", rb"\A(?:\x89PNG|\xff\xd8\xff|GIF8)|\A\s*(?:<\?xml[^>]*>\s*)?<svg\b"),
        ("an HDF5 file", rb"\A\x89HDF"),
        ("a Parquet file", rb"\APAR1"),
        ("a pointer of Git LFS", rb"\Aversion https://git-lfs"),
        ("an HTML page", rb"(?i)\A\s*(?:<!--.{0,999}-->\s*)?<(?:!doctype html|html)\b"),
        ("a log of the Grid Workloads Archive", rb"\A#\s*JobID\s+SubmitTime"),
        ("a table of sacct", rb"\A\s*JobID(?:Raw)? "),
        ("a trace of Nextflow", rb"\Atask_id[\t,]hash"),
        ("a list of jobs of Batsim's results", rb"\Ajob_id,workload_name"),
        ("a workload of Batsim", rb'\A\s*\{(?=.*"(?:subtime|profiles)"\s*:)(?!.*"tasks"\s*:)'),
        ("a workflow of Galaxy", rb'\A\s*\{.{0,999}"a_galaxy_workflow"'),
        ("a workflow in CWL", rb"(?m)^[ \t{]*[\"']?cwlVersion[\"']?[ \t]*:"),
        (
            "a workflow in WDL",
            rb"\A(?:\s|#[^\n]*\n)*(?:version[ \t]+[\w.]+[ \t]*\n|workflow[ \t]+\w+\s*\{)",
        ),
        (
            "a workflow of DAGMan",
            rb"(?i)\A(?:\s|#[^\n]*\n)*(?:job|subdag|splice|parent|final|config)[ \t]+[^\s=]",
        ),
        (
            "a Mermaid diagram",
            rb"\A(?:---\n.{0,999}?\n---\n)?(?:\s|%%[^\n]*\n)*"
            rb"(?:gantt\s|(?:flowchart|graph)[ \t]+(?:TB|TD|BT|RL|LR)\b(?!\s*\{))",
        ),
        ("an undirected graph", rb"\A\s*(?:strict\s+)?graph\b[^\n{]*\{"),
        ("a Nextflow script", rb"(?m)\A#![^\n]*nextflow|^(?:process|workflow)[ \t]+\w*\s*\{"),
        ("a Snakefile", rb"(?m)^rule[ \t]+\w+[ \t]*:[ \t]*\n"),
        ("a manifest of Kubernetes", rb"\A(?:---\s*\n)?apiVersion:"),
        ("a script", rb"\A#!"),
        ("binary data", rb"\A.{0,99}\0"),
    )
)
"""Files that no reader here takes, by their beginnings."""
HINTS = {
    "archive": "unpack it first",
    "packed": "unpack it first",
    "UTF-16": "convert it: iconv -f UTF-16 -t UTF-8",
    "Nextflow script": "nextflow run -with-dag dag.dot writes its graph",
    "Snakefile": "snakemake --dag writes its graph",
    "Git LFS": "git lfs pull fetches the file itself",
    "sacct": "sacct -P prints what is",
}
ANSI = re.compile(rb"\x1b\[[0-9;]*[A-Za-z]")


def misfit(head: bytes) -> str:
    """Reason for which no reader takes a file that begins so; empty: one may."""
    head = ANSI.sub(b"", head.removeprefix(BOM))
    for words, pattern in FOREIGN:
        if pattern.search(head):
            hint = next((f"; {text}" for word, text in HINTS.items() if word in words), "")
            return f"is {words}, which is not read{hint}"
    graph = re.search(rb"(?m)^[ \t]*(?:strict\s+)?digraph\b[^\n{]*\{", head)
    before = [line for line in head[: graph.start()].splitlines() if line.strip()] if graph else []
    noise = next((line for line in before if not re.match(rb"\s*(?://|/?\*|#)", line)), b"")
    if graph is not None and noise:
        number = head.count(b"\n", 0, graph.start()) + 1
        said = noise.decode("utf-8", "replace")[:60]
        return f"has {said!r} before its graph, which begins in line {number}: leave that out"
    return ""


def read_bytes(path: Path, most: int) -> bytes:
    """The first bytes of a file that a reader may take, unpacked, without a byte order mark."""
    with opened(path) as file:
        return file.read(most)


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """A file that a reader may take, unpacked, behind its byte order mark."""
    try:
        with path.open("rb") as file, unpacked(file, str(path)) as stream:
            yield stream
    except OSError as error:
        raise InputError(str(path), error.strerror or str(error)) from error


@contextmanager
def unpacked(file: BinaryIO, where: str) -> Iterator[BinaryIO]:
    """An open file that can seek, likewise. Raises `InputError`."""
    magic = file.read(6)
    file.seek(0)
    kind, stream = "", file
    for name, mark, make in PACKED:
        if magic.startswith(mark):
            # These read like a BinaryIO but are not declared as one.
            kind, stream = name, cast("BinaryIO", make(file))
    try:
        head = stream.read(HEAD)
        if what := misfit(head):
            raise InputError(where, what)
        stream.seek(len(BOM) if head.startswith(BOM) else 0)
        yield stream
    except (EOFError, OSError, zlib.error, lzma.LZMAError) as error:
        if not kind or getattr(error, "errno", None):
            raise
        raise InputError(where, f"is a damaged {kind} file: {error}") from error
