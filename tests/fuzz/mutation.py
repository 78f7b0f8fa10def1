"""Inputs made from examples: bytes out of place, and JSON with other parts.

Everything follows from the seed of the generator.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from copy import deepcopy
from typing import Any

WORDS = (
    *(b"0", b"-1", b"1e999", b"-0.0", b"NaN", b"Infinity", b"null", b"true", b'""', b"[]", b"{}"),
    *(b"9223372036854775808", b"18446744073709551616", b"9" * 400, b"1e308", b"4294967295"),
    *(b'"\\ud800"', b"\xed\xa0\x80", b"\xff", b"\x00", b"\xef\xbb\xbf", b"\r\n", b"\n", b"'", b'"'),
    *(b"[" * 3000, b'{"a":' * 3000, b"(" * 500, b"a[1-9]", b"a[1-999999999]", b"%s", b"../../x"),
)
VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2**31, 2**53, 2**63 - 1, 2**63, 2**64, -(2**63), 10**30),
    *(0.5, -0.0, 1e-320, 1e308, 1e18, "", "a", "\x00", "é\u2028", "x" * 3000, "a[1-9]", "1_5"),
    *([], {}, [[]], [None], {"": 0}, {"a": {"b": []}}, [0] * 50, "alpha", "alpha1", "7.1"),
)
MOST_REPEATS = 2000
MOST_CHANGES = 5


class Mutator:
    """Changes examples.

    Parameters
    ----------
    seeds : sequence of bytes
    words : sequence of bytes
        Of the grammar, besides those that trouble every reader.
    longest : int
        Bytes; what is longer is cut off.
    structured : float
        Share of the changes that leave JSON what it is.
    """

    def __init__(
        self,
        seeds: Sequence[bytes],
        words: Sequence[bytes] = (),
        *,
        seed: int = 0,
        longest: int = 1 << 16,
        structured: float = 0.5,
    ) -> None:
        self.structured = structured
        self.random = random.Random(seed)
        self.seeds = list(seeds) or [b""]
        self.words = [*WORDS, *words]
        self.longest = longest

    def fresh(self) -> bytes:
        """An example, changed."""
        return self.changed(self.random.choice(self.seeds))

    def changed(self, content: bytes) -> bytes:
        """The same content with some changes."""
        is_structured = self.random.random() < self.structured
        for _ in range(self.random.randint(1, MOST_CHANGES)):
            content = self._in_json(content) if is_structured else self._cut(content)
        return content[: self.longest]

    def _cut(self, content: bytes) -> bytes:
        """Bytes removed, doubled, exchanged, or put in."""
        pick = self.random
        at = pick.randint(0, len(content))
        end = min(len(content), at + pick.choice((0, 1, 1, 2, 4, 8, 40, 400)))
        match pick.randrange(8):
            case 0:
                new = b""
            case 1:
                new = content[at:end] * 2
            case 2:
                new = content[at:end] * pick.choice((3, 30, MOST_REPEATS))
            case 3:
                new = bytes(pick.randrange(256) for _ in range(pick.randint(1, 4)))
            case 4:
                other = pick.choice(self.seeds)
                start = pick.randint(0, len(other))
                return content[:at] + other[start:]
            case 5 if at < end:
                new = bytes([content[at] ^ (1 << pick.randrange(8))]) + content[at + 1 : end]
            case _:
                new = pick.choice(self.words)
        return content[:at] + new[: self.longest] + content[end:]

    def _in_json(self, content: bytes) -> bytes:
        """Another value at one place, where the content is JSON, or one of its lines is."""
        lines = content.split(b"\n") if b"\n" in content else [content]
        place = self.random.randrange(len(lines))
        for piece, rest in ((content, None), (lines[place], place)):
            try:
                value = json.loads(piece)
            except (ValueError, RecursionError):
                continue
            if not isinstance(value, dict | list) or not value:
                continue
            self._replace(value)
            changed = json.dumps(value).encode()
            if rest is None:
                return changed
            lines[rest] = changed
            return b"\n".join(lines)
        return self._cut(content)

    def _replace(self, value: Any) -> None:
        pick = self.random
        holders = [value]
        for holder in holders:  # which grows while it is gone through
            inner = holder.values() if isinstance(holder, dict) else holder
            holders += [item for item in inner if isinstance(item, dict | list) and item]
        holder = pick.choice(holders)
        key = pick.choice(list(holder) if isinstance(holder, dict) else range(len(holder)))
        match pick.randrange(6):
            case 0:
                del holder[key]
            case 1:
                holder[key] = deepcopy(pick.choice(holders))
            case 2 if isinstance(holder, dict):
                holder[str(pick.choice(VALUES))[:40]] = holder.pop(key)
            case 3 if isinstance(holder, list):
                holder += deepcopy(holder * pick.choice((1, 2, 40)))[: self.longest // 16]
            case _:
                holder[key] = deepcopy(pick.choice(VALUES))
