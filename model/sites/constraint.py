"""Constraints on node features as Slurm writes them: ``(fast|slow)&ib``, ``[rack1|rack2]``."""

from __future__ import annotations

import re
from collections.abc import Collection

_TOKEN = re.compile(r"[&,|()\[\]]|[^&,|()\[\]]+")


def admits(constraint: str, features: Collection[str]) -> bool:
    """Whether a node with these features may be among those of a job with this constraint.

    Brackets, which ask for one alternative on all nodes, are read as parentheses here, and of
    counts (``fast*4&slow*2``) a node has to match one: how they go together is the batch system's
    to say. What cannot be read forbids nothing.
    """
    text = constraint.replace("[", "(").replace("]", ")")
    if "*" in text:
        text = re.sub(r"\*[0-9]+", "", text.replace("&", "|").replace(",", "|"))
    tokens = _TOKEN.findall(text)
    try:
        found, rest = _any_of(tokens, features)
    except IndexError:
        return True
    return found or bool(rest)


def _any_of(tokens: list[str], features: Collection[str]) -> tuple[bool, list[str]]:
    found, rest = _all_of(tokens, features)
    while rest and rest[0] == "|":
        other, rest = _all_of(rest[1:], features)
        found |= other
    return found, rest


def _all_of(tokens: list[str], features: Collection[str]) -> tuple[bool, list[str]]:
    found, rest = _one(tokens, features)
    while rest and rest[0] in "&,":
        other, rest = _one(rest[1:], features)
        found &= other
    return found, rest


def _one(tokens: list[str], features: Collection[str]) -> tuple[bool, list[str]]:
    if tokens[0] == "(":
        found, rest = _any_of(tokens[1:], features)
        return found, rest[1:]
    name = tokens[0]
    is_met = name.removeprefix("!") not in features if name[0] == "!" else name in features
    return is_met, tokens[1:]
