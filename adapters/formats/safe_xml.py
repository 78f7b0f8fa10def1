"""XML as a tree: no entity is declared or fetched."""

from __future__ import annotations

from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers import expat

from coalloc.model.errors import InputError

LARGEST_DEPTH = 100
PLACE = ""
"""Attribute of every element: the line that it begins on. No name in XML is empty."""


def read_xml(raw: bytes) -> Element:
    """Read a document, its tags without their prefixes.

    `InputError` with the line for what is no XML, entities, and elements nested too deeply.
    """
    parser, builder, depth = expat.ParserCreate(), TreeBuilder(), 0

    def refuse(*_: object) -> None:
        raise InputError(f"line {parser.CurrentLineNumber}", "XML entities are refused")

    def begin(tag: str, attributes: dict[str, str]) -> None:
        nonlocal depth
        depth += 1
        place = f"line {parser.CurrentLineNumber}"
        if depth > LARGEST_DEPTH:
            raise InputError(place, "is nested too deeply")
        builder.start(tag.rpartition(":")[2], {**attributes, PLACE: place})

    def finish(tag: str) -> None:
        nonlocal depth
        depth -= 1
        builder.end(tag.rpartition(":")[2])

    parser.buffer_text = True
    parser.EntityDeclHandler = parser.SkippedEntityHandler = refuse
    parser.StartElementHandler, parser.EndElementHandler = begin, finish
    parser.CharacterDataHandler = builder.data
    try:
        parser.Parse(raw, True)
        return builder.close()
    except InputError:
        raise
    except (expat.ExpatError, LookupError, ValueError) as error:
        raise InputError("", f"is no XML: {error}") from error
