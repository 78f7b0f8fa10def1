"""Experiments of the papers on one page: their Markdown as HTML, with the pictures inside."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

from coalloc.simulation.report.page import html_page

KINDS = {".png": "image/png", ".svg": "image/svg+xml"}


def experiments_page(pages: Sequence[Path]) -> str:
    """The page of NAME.md files as `coalloc reproduce` writes them, beside their pictures."""
    names = [path.stem for path in pages]
    parts = [f"<section>{markdown(path)}</section>" for path in pages]
    return html_page("coalloc reproduce", ", ".join(names), parts)


def markdown(path: Path) -> str:
    """A file of Markdown as HTML, its headings one level lower."""
    reader = MarkdownIt("commonmark", {"html": False}).enable("table")
    tokens = reader.parse(path.read_text(encoding="utf-8"))
    for token in tokens:
        if token.type.startswith("heading"):
            token.tag = f"h{min(int(token.tag[1]) + 1, 6)}"
        for image in token.children or ():
            if image.type == "image":
                _take_in(image, path.parent)
    return str(reader.renderer.render(tokens, reader.options, {}))


def _take_in(image: Token, folder: Path) -> None:
    """Put the picture itself into the page; where there is none, its name."""
    path = folder / str(image.attrGet("src"))
    if path.suffix in KINDS and path.is_file():
        content = base64.b64encode(path.read_bytes()).decode("ascii")
        image.attrSet("src", f"data:{KINDS[path.suffix]};base64,{content}")
    else:
        image.type, image.content = "text", f"{image.content} (no picture)"
