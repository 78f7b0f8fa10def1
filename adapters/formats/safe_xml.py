"""XML read by callbacks: no entity is declared or fetched, and nothing is kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from xml.parsers import expat

from coalloc.model.errors import InputError

LARGEST_DEPTH = 100

Start = Callable[[str, Mapping[str, str], int], None]
End = Callable[[str], None]
Text = Callable[[str], None]


def parse_xml(raw: bytes, start: Start, end: End | None = None, text: Text | None = None) -> None:
    """Call back for every element.

    `start` gets the tag without its prefix, the attributes and the line, `end` the tag, `text` a
    piece of text. `InputError` with the line for what is no XML, entities, and elements nested too
    deeply.
    """
    parser = expat.ParserCreate()
    parser.buffer_text = True
    depth = 0

    def refuse(*_: object) -> None:
        raise InputError(f"line {parser.CurrentLineNumber}", "XML entities are refused")

    def begin(tag: str, attributes: dict[str, str]) -> None:
        nonlocal depth
        depth += 1
        if depth > LARGEST_DEPTH:
            raise InputError(f"line {parser.CurrentLineNumber}", "is nested too deeply")
        start(tag.rpartition(":")[2], attributes, parser.CurrentLineNumber)

    def finish(tag: str) -> None:
        nonlocal depth
        depth -= 1
        if end is not None:
            end(tag.rpartition(":")[2])

    parser.EntityDeclHandler = refuse
    parser.SkippedEntityHandler = refuse
    parser.StartElementHandler = begin
    parser.EndElementHandler = finish
    parser.CharacterDataHandler = text
    try:
        parser.Parse(raw, True)
    except expat.ExpatError as error:
        raise InputError("", f"is no XML: {error}") from error
    except (UnicodeDecodeError, LookupError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError("", f"is no XML: {error}") from error
