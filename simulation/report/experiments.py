"""Experiments of the papers on one page: their Markdown as HTML, with the pictures inside."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Sequence
from html import escape
from itertools import groupby
from pathlib import Path

from coalloc.simulation.report.page import html_page

IMAGE = re.compile(r"!\[(.*?)\]\((.*?)\)")
CODE, STRONG = re.compile(r"`(.+?)`"), re.compile(r"\*\*(.+?)\*\*")
KINDS = {".png": "image/png", ".svg": "image/svg+xml"}


def experiments_page(pages: Sequence[Path]) -> str:
    """The page of NAME.md files as `coalloc reproduce` writes them, beside their pictures."""
    names = [path.stem for path in pages]
    parts = [f"<section>{markdown(path)}</section>" for path in pages]
    return html_page("coalloc reproduce", ", ".join(names), parts)


def markdown(path: Path) -> str:
    """A page of Markdown as HTML: headings, paragraphs, lists, tables, code and pictures."""
    text = path.read_text(encoding="utf-8")
    return "\n".join(
        html for block in re.split(r"\n\s*\n", text.strip()) for html in _block(block, path.parent)
    )


def _block(block: str, folder: Path) -> Iterator[str]:
    """The parts of a block of lines without an empty one."""
    for kind, group in groupby(block.splitlines(), _kind):
        lines = list(group)
        if kind == "heading":
            for line in lines:
                level = min(len(line) - len(line.lstrip("#")) + 1, 6)
                yield f"<h{level}>{_inline(line.lstrip('# '), folder)}</h{level}>"
        elif kind == "table":
            yield _table(lines, folder)
        elif kind == "item":
            items = "".join(f"<li>{_inline(line[2:], folder)}</li>" for line in lines)
            yield f"<ul>{items}</ul>"
        else:
            yield f"<p>{_inline(' '.join(lines), folder)}</p>"


def _kind(line: str) -> str:
    if line.startswith("#"):
        return "heading"
    if line.startswith("|"):
        return "table"
    return "item" if line.startswith("- ") else "text"


def _table(lines: Sequence[str], folder: Path) -> str:
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    body = [row for row in rows[1:] if not all(set(cell) <= set("-: ") for cell in row)]
    head = "".join(f"<th>{_inline(cell, folder)}</th>" for cell in rows[0])
    cells = (
        "<tr>" + "".join(f"<td>{_inline(cell, folder)}</td>" for cell in row) + "</tr>"
        for row in body
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(cells)}</tbody></table>"


def _inline(text: str, folder: Path) -> str:
    parts, last = [], 0
    for found in IMAGE.finditer(text):
        parts += [_words(text[last : found.start()]), _image(found[1], folder / found[2])]
        last = found.end()
    return "".join([*parts, _words(text[last:])])


def _words(text: str) -> str:
    return STRONG.sub(
        r"<strong>\1</strong>", CODE.sub(r"<code>\1</code>", escape(text, quote=False))
    )


def _image(name: str, path: Path) -> str:
    """The picture itself; where there is none, its name."""
    kind = KINDS.get(path.suffix)
    if kind is None or not path.is_file():
        return f"<em>{escape(name)} (no picture)</em>"
    content = base64.b64encode(path.read_bytes()).decode("ascii")
    return f'<img alt="{escape(name)}" src="data:{kind};base64,{content}">'
