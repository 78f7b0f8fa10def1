"""Write the generated parts of docs/: schemas, tables of keys, pages that say what data hold.

``make docs`` runs it; ``python docs/build.py --check`` writes nothing and fails where a
file is out of date.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path

from coalloc.adapters.batch.settings import BatchSettings
from coalloc.adapters.gridengine.settings import GridEngineSettings
from coalloc.adapters.slurm.settings import SlurmSettings
from coalloc.model import tables
from coalloc.model.fields import Field, Table
from coalloc.model.schema import plan_schema, snapshot_schema
from coalloc.model.structs import keys
from coalloc.simulation.reproduce.pages import FIGURES, with_results

DOCS = Path(__file__).resolve().parent
TABLES: Mapping[str, Table] = {
    "snapshot": tables.SNAPSHOT,
    "cluster": tables.CLUSTER,
    "node": tables.NODE,
    "job": tables.JOB,
    "rigid": tables.RIGID,
    "moldable": tables.MOLDABLE,
    "workflow": tables.WORKFLOW,
    "divisible": tables.DIVISIBLE,
    "task": tables.TASK,
    "edge": tables.EDGE,
    "started": tables.STARTED,
    "running": tables.RUNNING,
    "reservation": tables.RESERVATION,
    "plan": tables.PLAN,
    "objective": tables.OBJECTIVE,
    "placement": tables.PLACEMENT,
    "deferred": tables.DEFERRED,
    "front": tables.FRONT_POINT,
}
SETTINGS: Mapping[str, type[BatchSettings]] = {
    "slurm": SlurmSettings,
    "gridengine": GridEngineSettings,
}
# Adapters but Slurm's show only what they add to the keys of every batch system.
WHOLE = "slurm"
# The kinds of jobs show only what they add to the keys of every job.
KINDS = ("rigid", "moldable", "workflow", "divisible")
TYPES = {
    "number": "number",
    "integer": "whole number",
    "text": "text",
    "flag": "true or false",
    "texts": "list of texts",
    "numbers": "list of numbers",
    "integers": "list of whole numbers",
    "counts": "object of whole numbers",
    "loads": "object of numbers",
    "any": "see below",
}
# Defaults that stand for what the meaning says of them.
EMPTY: tuple[object, ...] = ("", (), {})
MARKED = re.compile(r"(<!-- keys: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
OF_ADAPTER = re.compile(r"(<!-- settings: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def generated() -> dict[Path, str]:
    """Every generated file and its text."""
    formats, data = DOCS / "FORMATS.md", DOCS / "reproduction"
    return {
        DOCS / "schema" / "snapshot.schema.json": _json(snapshot_schema()),
        DOCS / "schema" / "plan.schema.json": _json(plan_schema()),
        formats: with_tables(formats.read_text(encoding="utf-8")),
        **{
            page: with_results(page.read_text(encoding="utf-8"), data)
            for page in (DOCS / "REPRODUCTION.md", data / FIGURES)
        },
        **{
            DOCS / name: OF_ADAPTER.sub(_settings, (DOCS / name).read_text(encoding="utf-8"))
            for name in ("slurm.md", "adapters.md")
        },
    }


def with_tables(text: str) -> str:
    """Fill in the tables of keys between their marks."""

    def fill(found: re.Match[str]) -> str:
        name = found[2]
        known = tables.JOB if name in KINDS else {}
        rows = [_row(key, field) for key, field in TABLES[name].items() if key not in known]
        head = ["| Key | Value | Default | Meaning |", "|---|---|---|---|"]
        return "\n".join([found[1], *head, *rows, "", found[3]])

    return MARKED.sub(fill, text)


def _settings(found: re.Match[str]) -> str:
    known = () if found[2] == WHOLE else tuple(key for key, _, _ in keys(BatchSettings))
    rows = [
        f"| `{key}` | {f'`{json.dumps(default)}`' if default not in EMPTY else '-'} | {doc} |"
        for key, default, doc in keys(SETTINGS[found[2]])
        if key not in known
    ]
    head = ["| Key of `settings` | Default | Meaning |", "|---|---|---|"]
    return "\n".join([found[1], *head, *rows, "", found[3]])


def _row(key: str, field: Field) -> str:
    if field.needed:
        default = "required"
    elif field.default is None:
        default = "null" if field.nullable else ""
    else:
        default = f"`{json.dumps(field.default)}`"
    return f"| `{key}` | {_value(field)} | {default} | {field.doc} |"


def _value(field: Field) -> str:
    if field.choices:
        return ", ".join(f"`{choice}`" for choice in field.choices)
    text = TYPES[field.kind]
    if field.low > float("-inf"):
        sign = ">" if field.above else "≥"
        text += f" 0 or {sign} {field.low:g}" if field.zero else f" {sign} {field.low:g}"
    if field.high < float("inf"):
        text += f", ≤ {field.high:g}" if field.low > float("-inf") else f" ≤ {field.high:g}"
    return text + (" or null" if field.nullable else "")


def _json(schema: dict[str, object]) -> str:
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def main(arguments: list[str]) -> int:
    """Write what is out of date, or with --check only name it."""
    stale = {
        path: text
        for path, text in generated().items()
        if not path.exists() or path.read_text(encoding="utf-8") != text
    }
    for path, text in stale.items():
        print(path.relative_to(DOCS.parent))
        if "--check" not in arguments:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
    return 1 if stale and "--check" in arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
