"""Streams of a part of several wrappers, between them and the executor, as those of one runner.

Each wrapper's streams get its number among the part's nodes behind their names. What a wrapper has
said is kept until it is asked for, one chunk of each stream: so none waits for another, and what
was not asked for is asked of its wrapper again. Imports the standard library only.
"""

from __future__ import annotations

import json
from typing import Any

from coalloc.adapters.runner.batch.barrier import Barrier, NodeWrapper
from coalloc.adapters.runner.status import END
from coalloc.adapters.runner.stream_link import StreamLink


class StreamRelay:
    """Passes wishes on to a part's wrappers, and their answers back."""

    def __init__(self, folder: str, barrier: Barrier) -> None:
        self.link = StreamLink(folder, self.wish)
        self._barrier = barrier
        barrier.on_word["stream"] = self._heard
        self._wanted: dict[str, Any] | None = None
        self._said: dict[str, tuple[int, str]] = {}
        self._ended: set[int] = set()

    def _nodes(self) -> list[tuple[int, NodeWrapper]]:
        """The nodes that have streams, with their numbers."""
        nodes = [each for each in enumerate(self._barrier.nodes.values()) if not each[1].is_holder]
        # Files may be the same on all nodes, as the usual ones are.
        return nodes if nodes and nodes[0][1].spec.get("stream") else nodes[:1]

    def wish(self, wish: dict[str, Any]) -> None:
        """Answer from what was said, or ask the wrappers."""
        if "at" in wish:
            self._wanted = wish
        if self._answer() and not wish.keys() & {"signal", "input", "size"}:
            return
        for number, node in self._nodes():
            own = dict(wish)
            if "at" in wish:
                mark = str(number)
                own["at"] = {
                    name[0]: at for name, at in wish["at"].items() if name[1:] in {mark, ""}
                }
            self._barrier.tell(node, "stream", json.dumps(own, separators=(",", ":")))

    def _heard(self, node: NodeWrapper, text: str) -> None:
        said = json.loads(text)
        number = next(number for number, each in self._nodes() if each is node)
        for name, at, data in said.get("chunks", ()):
            self._said[f"{name}{number}"] = at, data
        if said.get("ended"):
            self._ended.add(number)
        if "taken" in said:
            self.link.say(said)
        self._answer()

    def _answer(self) -> bool:
        """Say what is wanted, if it is there; whether it was."""
        if self._wanted is None:
            return True
        wanted = self._wanted["at"]
        chunks = []
        for name, (at, data) in list(self._said.items()):
            asked = wanted.get(name, wanted.get(name[0], 0))
            if at >= asked:
                chunks.append([name, at, data])
            else:
                del self._said[name]
        over = (number in self._ended or END in node.records for number, node in self._nodes())
        is_end = not chunks and all(over)
        if not chunks and not is_end:
            return False
        number, self._wanted = self._wanted["number"], None
        self.link.say({"number": number, "chunks": chunks, "ended": is_end})
        return True
