"""docs/PROTOCOL.md as data: its sections, tables and examples."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "PROTOCOL.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^```json (\w+)\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


def sections() -> dict[str, str]:
    """Each heading's text up to the next heading."""
    parts = re.split(r"^#{2,5} (.+)$", PAGE, flags=re.MULTILINE)
    return {title.strip("`"): text for title, text in zip(parts[1::2], parts[2::2], strict=True)}


SECTIONS = sections()


def table(text: str, head: str = "Field") -> dict[str, str]:
    """The fields of a table, with their kinds."""
    found = re.search(rf"^\| {re.escape(head)} \| Kind .*\n\|[-|]+\n((?:\|.*\n)+)", text, re.M)
    rows = found[1].splitlines() if found else []
    cells = [row.strip("|").split(" | ") for row in rows]
    return {row[0].strip().strip("`"): row[1].strip() for row in cells}
