"""DOT graphs as daggen writes them: tasks with Amdahl's law, and data on the edges.

Of a node, ``size`` is its floating-point operations and ``alpha`` the share of them that does not
scale: work = size / `REFERENCE_FLOPS` s, pf = 1 - alpha, on any number of processes (one, where
nothing scales). Of an edge, ``size`` is bytes. The keys of `task_graph.EXTENSION` may stand among
the attributes of a node, and ``runtime`` (seconds on one process) in place of ``size``. Other
attributes, and those of the graph, are passed over; defaults (``node [...]``) count; sub-graphs,
ports and HTML texts are refused.

References
----------
https://github.com/frs69wq/daggen
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import NamedTuple

from coalloc.adapters.formats.task_graph import (
    BYTES_PER_GB,
    EXTENSION,
    LARGEST_ALLOTMENT,
    Bytes,
    Draft,
    Fraction,
    Seconds,
    TaskGraph,
    WorkflowFile,
    number,
    read_extension,
)
from coalloc.model.errors import InputError
from coalloc.model.formats.decoded import shown

REFERENCE_FLOPS = 1e9
"""Operations that one process of a node of full speed does in a second."""

_TOKEN = re.compile(
    r"""(?P<space>[\s]+|//[^\n]*|\#[^\n]*|/\*.*?\*/)
    |(?P<text>"(?:[^"\\]|\\.)*")
    |(?P<word>[A-Za-z_\u0080-\U0010ffff][\w\u0080-\U0010ffff]*
        |-?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?(?![\w.]))
    |(?P<mark>->|--|[{}\[\]=;,:<])""",
    re.VERBOSE | re.DOTALL,
)


class _Token(NamedTuple):
    kind: str
    value: str
    line: int


def is_dot(text: str) -> bool:
    """Whether a text begins as a directed graph does."""
    return (
        re.match(
            r"(?:\s|//[^\n]*\n|\#[^\n]*\n|/\*.*?\*/)*(?:strict\s+)?digraph\b", text, re.S | re.I
        )
        is not None
    )


def parse_dot(text: str, name: str) -> WorkflowFile:
    """Read a directed graph; `name` is for one that has none longer than a letter."""
    return _DotReader(text, name).read()


def _tokens(text: str) -> Iterator[_Token]:
    place, line = 0, 1
    while place < len(text):
        found = _TOKEN.match(text, place)
        if found is None:
            raise InputError(f"line {line}", f"{shown(text[place])} does not belong in a DOT graph")
        kind, value = str(found.lastgroup), found.group()
        if kind == "text":
            value = re.sub(r'\\\n|\\(?=")', "", value[1:-1])
        if kind != "space":
            yield _Token(kind, value, line)
        line += found.group().count("\n")
        place = found.end()
    yield _Token("end", "", line)


class _DotReader:
    def __init__(self, text: str, name: str) -> None:
        self.tokens = _tokens(text)
        self.now = next(self.tokens)
        self.name = name
        self.graph = TaskGraph()
        self.defaults: dict[str, dict[str, str]] = {"node": {}, "edge": {}, "graph": {}}
        self.nodes: dict[str, dict[str, str]] = {}
        self.bytes: dict[tuple[str, str], float] = {}

    def read(self) -> WorkflowFile:
        if self._is_word("strict"):
            self._next()
        if not self._is_word("digraph"):
            raise self._wrong("digraph")
        self._next()
        if self.now.kind in ("word", "text"):
            title = self._next().value
            self.name = title if len(title) > 1 else self.name
        self._mark("{")
        while not self._has("}"):
            self._statement()
            while self._has(";"):
                self._next()
        self._next()
        if self.now.kind != "end":
            raise self._wrong("nothing behind the graph")
        for task, attributes in self.nodes.items():
            _describe(self.graph.drafts[task], attributes)
        return self.graph.finish(self.name)

    def _statement(self) -> None:
        if self._has("{") or self._is_word("subgraph"):
            raise InputError(f"line {self.now.line}", "sub-graphs are not read")
        token = self._name()
        if self._has("="):
            self._next()
            self._name()
        elif token.kind == "word" and token.value.lower() in self.defaults:
            self.defaults[token.value.lower()] |= self._attributes()
        elif self._has("->"):
            self._edges(token)
        else:
            self._node(token).update(self._attributes())

    def _edges(self, first: _Token) -> None:
        chain = [first]
        while self._has("->"):
            self._next()
            chain.append(self._name())
        attributes = self.defaults["edge"] | self._attributes()
        for token in chain:
            self._node(token)
        for before, after in pairwise(chain):
            self.graph.link(before.value, after.value)
            if "size" in attributes:
                where = f"task {shown(after.value)}: size of its edge from {shown(before.value)}"
                size = number(attributes["size"], Bytes, where)
                self.graph.edges[before.value, after.value] = size / BYTES_PER_GB

    def _node(self, token: _Token) -> dict[str, str]:
        """The attributes of a node, which begins where it is first named."""
        if token.value not in self.nodes:
            self.graph.add(token.value, f"line {token.line}")
            self.nodes[token.value] = dict(self.defaults["node"])
        return self.nodes[token.value]

    def _attributes(self) -> dict[str, str]:
        out: dict[str, str] = {}
        while self._has("["):
            self._next()
            while not self._has("]"):
                key = self._name().value
                if self._has("="):
                    self._next()
                    out[key] = self._name().value
                elif self.now.kind == "text":
                    out[key] = self._next().value
                else:
                    out[key] = "true"
                if self._has(";") or self._has(","):
                    self._next()
            self._next()
        return out

    def _name(self) -> _Token:
        if self.now.kind not in ("word", "text"):
            raise self._wrong("a name")
        return self._next()

    def _mark(self, mark: str) -> None:
        if not self._has(mark):
            raise self._wrong(f"{mark!r}")
        self._next()

    def _has(self, mark: str) -> bool:
        return self.now.kind == "mark" and self.now.value == mark

    def _is_word(self, word: str) -> bool:
        return self.now.kind == "word" and self.now.value.lower() == word

    def _next(self) -> _Token:
        token = self.now
        if token.kind == "end":
            raise self._wrong("more")
        self.now = next(self.tokens)
        return token

    def _wrong(self, wanted: str) -> InputError:
        found = "the end" if self.now.kind == "end" else shown(self.now.value)
        return InputError(f"line {self.now.line}", f"{wanted} is expected, not {found}")


def _describe(draft: Draft, attributes: Mapping[str, str]) -> None:
    if "runtime" in attributes:
        draft.runtime_s = number(attributes["runtime"], Seconds, f"{draft.where}: runtime")
    elif "size" in attributes:
        size = number(attributes["size"], Bytes, f"{draft.where}: size")
        draft.runtime_s = size / REFERENCE_FLOPS
    more = {key: value for key, value in attributes.items() if key in EXTENSION}
    if "alpha" in attributes:
        draft.parallel_fraction = 1.0 - number(
            attributes["alpha"], Fraction, f"{draft.where}: alpha"
        )
        if draft.parallel_fraction > 0.0 and "max_procs" not in more:
            draft.extend({"max_procs": LARGEST_ALLOTMENT})
    draft.extend(read_extension(more, draft.where))
