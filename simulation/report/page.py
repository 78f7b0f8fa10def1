"""The frame of a report: one HTML page with nothing outside it, in light and dark."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from importlib.resources import files
from pathlib import Path

from coalloc.model.errors import InputError

SHADES = 7
"""Colours and dashes that the style has for series; further series begin again."""


def check_report(path: Path | None) -> None:
    """Refuse a report that could not be written, before anything is computed for it.

    Raises `InputError`.
    """
    if path is not None and path.is_dir():
        raise InputError("--report", f"{path} is a folder")
    if path is not None and not path.parent.is_dir():
        raise InputError("--report", f"there is no folder {path.parent}")


def html_page(title: str, subtitle: str, parts: Sequence[str]) -> str:
    """The page.

    `title`, `subtitle`: plain text.
    `parts` (sequence of str): HTML, in this order.
    """
    style = (files(__package__) / "data" / "report.css").read_text(encoding="utf-8")
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{style}</style></head><body><main>\n"
        f'<h1>{escape(title)}</h1><p class="quiet">{escape(subtitle)}</p>\n'
        + "\n".join(parts)
        + "\n</main></body></html>\n"
    )


def section(title: str, *parts: str) -> str:
    """A part of a page under a heading; `parts` are HTML."""
    return f"<section><h2>{escape(title)}</h2>{''.join(parts)}</section>"


def html_table(
    head: Sequence[str], rows: Sequence[Sequence[str]], best: Sequence[frozenset[int]] = ()
) -> str:
    """A table of plain texts.

    `best` (sequence of frozenset of int): for each row, the columns to be marked.
    """
    marks = best or [frozenset()] * len(rows)
    body = "".join(
        "<tr>"
        + "".join(
            f'<td class="best">{escape(cell)}</td>' if i in mark else f"<td>{escape(cell)}</td>"
            for i, cell in enumerate(row)
        )
        + "</tr>"
        for row, mark in zip(rows, marks, strict=True)
    )
    heads = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in head)
    return f"<table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>"
