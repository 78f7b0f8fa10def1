"""Write the generated parts of docs/: schemas, tables of keys and fields, what stored data say.

``make docs`` runs it; ``python docs/build.py --check`` writes nothing and fails where a
file is out of date.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from msgspec import NODEFAULT, Struct, inspect, to_builtins
from msgspec.structs import FieldInfo, fields
from protocol import with_fields
from results import FIGURES, with_results
from schemas import NEEDED, UNLIMITED, given_by_others, plan_schema, snapshot_schema

from coalloc.adapters.batch.settings import BatchSettings
from coalloc.adapters.gridengine.settings import GridEngineSettings
from coalloc.adapters.oar.settings import OarSettings
from coalloc.adapters.slurm.settings import SlurmSettings
from coalloc.cli.submit.sbatch_words import WORDS
from coalloc.model.formats.job_json import Times
from coalloc.model.formats.structs import range_text
from coalloc.model.formats.words import field_words
from coalloc.model.jobs import (
    DivisibleJob,
    Edge,
    JobFields,
    MoldableJob,
    RigidJob,
    Started,
    Task,
    WorkflowJob,
)
from coalloc.model.plan import Deferred, FrontPoint, Objective, Placement, Plan
from coalloc.model.platform import Cluster, Node
from coalloc.model.ranges import LARGEST
from coalloc.model.shape import Shape
from coalloc.model.snapshot import Reservation, Running, SnapshotFields

DOCS = Path(__file__).resolve().parent
TABLES: Mapping[str, type[Struct]] = {
    "snapshot": SnapshotFields,
    "cluster": Cluster,
    "node": Node,
    "job": JobFields,
    "rigid": RigidJob,
    "moldable": MoldableJob,
    "workflow": WorkflowJob,
    "divisible": DivisibleJob,
    "shape": Shape,
    "task": Task,
    "edge": Edge,
    "started": Started,
    "running": Running,
    "reservation": Reservation,
    "plan": Plan,
    "objective": Objective,
    "placement": Placement,
    "deferred": Deferred,
    "front": FrontPoint,
}
SETTINGS: Mapping[str, type[BatchSettings]] = {
    "slurm": SlurmSettings,
    "gridengine": GridEngineSettings,
    "oar": OarSettings,
}
# Adapters but Slurm's show only what they add to the keys of every batch system.
WHOLE = "slurm"
# The kinds of jobs show only what they add to the keys of every job.
KINDS = ("rigid", "moldable", "workflow", "divisible")
TAGS = {
    "format": "Name and version.",
    "kind": "Which of the kinds of job below.",
}
# Defaults that stand for what the meaning says of them.
EMPTY: tuple[object, ...] = ("", (), {})
MARKED = re.compile(r"(<!-- keys: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
SBATCH = re.compile(r"(<!-- sbatch: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
OF_ADAPTER = re.compile(r"(<!-- settings: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def generated() -> dict[Path, str]:
    """Every generated file and its text."""
    formats, data = DOCS / "FORMATS.md", DOCS / "reproduction"
    return {
        DOCS / "schema" / "snapshot.schema.json": _json(snapshot_schema()),
        DOCS / "schema" / "plan.schema.json": _json(plan_schema()),
        formats: with_tables(formats.read_text(encoding="utf-8")),
        DOCS / "PROTOCOL.md": with_fields((DOCS / "PROTOCOL.md").read_text(encoding="utf-8")),
        **{
            page: with_results(page.read_text(encoding="utf-8"), data)
            for page in (DOCS / "REPRODUCTION.md", data / FIGURES)
        },
        **{
            DOCS / name: OF_ADAPTER.sub(_settings, (DOCS / name).read_text(encoding="utf-8"))
            for name in ("slurm.md", "adapters.md")
        },
        DOCS / "from-slurm.md": SBATCH.sub(_words, (DOCS / "from-slurm.md").read_text("utf-8")),
    }


def _words(found: re.Match[str]) -> str:
    """The options of sbatch of one consequence; those with the same sentence in one row."""
    alike: dict[str, list[str]] = {}
    for word in WORDS:
        if word.verdict.value == found[2]:
            alike.setdefault(word.why, []).append(f"`{word.flags[-1]}`")
    rows = (f"| {', '.join(names)} | {why} |" for why, names in alike.items())
    return "\n".join([found[1], "| Option | |", "|---|---|", *rows, "", found[3]])


def with_tables(text: str) -> str:
    """Fill in the tables of keys between their marks."""

    def fill(found: re.Match[str]) -> str:
        head = ["| Key | Value | Default | Meaning |", "|---|---|---|---|"]
        return "\n".join([found[1], *head, *_rows(found[2]), "", found[3]])

    return MARKED.sub(fill, text)


def _settings(found: re.Match[str]) -> str:
    form = SETTINGS[found[2]]
    words = field_words(form)
    known = () if found[2] == WHOLE else field_words(BatchSettings)
    rows = []
    for field in fields(form):
        if field.name in words and field.name not in known:
            is_made = field.default is NODEFAULT
            default = field.default_factory() if is_made else field.default
            shown = f"`{json.dumps(default)}`" if default not in EMPTY else "-"
            doc = words[field.name] + _choices(inspect.type_info(field.type))
            rows.append(f"| `{field.encode_name}` | {shown} | {doc} |")
    head = ["| Key of `settings` | Default | Meaning |", "|---|---|---|"]
    return "\n".join([found[1], *head, *rows, "", found[3]])


def _choices(kind: inspect.Type) -> str:
    """Sentence about the values that a setting may have."""
    match kind.type if isinstance(kind, inspect.Metadata) else kind:
        case inspect.LiteralType(values=choices):
            return f" One of {', '.join(f'`{choice}`' for choice in choices)}."
        case inspect.IntType() | inspect.FloatType() as number:
            return f" In {range_text(number)}."
    return ""


def _rows(name: str) -> Iterator[str]:
    """Rows of the table of one kind of object."""
    form = TABLES[name]
    config, words = form.__struct_config__, field_words(form)
    known = {field.name for field in fields(JobFields)} if name in KINDS else set()
    if config.tag_field in TAGS and name not in KINDS:
        tags = KINDS if name == "job" else (config.tag,)
        values = ", ".join(f"`{tag}`" for tag in tags)
        yield f"| `{config.tag_field}` | {values} | required | {TAGS[config.tag_field]} |"
    if form is MoldableJob:
        kind = inspect.type_info(Times)
        yield f"| `times` | {_value(kind)} |  | {(kind.extra_json_schema or {})['description']} |"
    for field in fields(form):
        if field.name not in known:
            value = _value(inspect.type_info(field.type))
            is_unlimited = field.name in UNLIMITED.get(form, ())
            value += " or null" if is_unlimited else ""
            default = "null" if is_unlimited else _default(form, field)
            yield f"| `{field.encode_name}` | {value} | {default} | {words[field.name]} |"


def _default(form: type[Struct], field: FieldInfo) -> str:
    """The default of a key, if it does not depend on other keys."""
    if field.name in NEEDED.get(form, ()):
        return "required"
    if field.name in given_by_others(form):
        return ""
    if field.default_factory is not NODEFAULT:
        return f"`{json.dumps(field.default_factory())}`"
    if field.default is NODEFAULT:
        return "required"
    return "null" if field.default is None else f"`{json.dumps(to_builtins(field.default))}`"


def _value(kind: inspect.Type) -> str:
    """Words for the values of a type."""
    match kind:
        case inspect.Metadata(type=inspect.FloatType() as number, extra={"least": least}):
            return f"number 0 or ≥ {least:g}, ≤ {number.le:g}"
        case inspect.Metadata(type=inner):
            return _value(inner)
        case inspect.FloatType():
            return f"number{_bounds(kind)}"
        case inspect.IntType():
            return f"whole number{_bounds(kind)}"
        case inspect.StrType():
            return "text"
        case inspect.BoolType():
            return "true or false"
        case inspect.LiteralType(values=choices):
            return ", ".join(f"`{choice}`" for choice in choices)
        case inspect.EnumType(cls=choices):
            return ", ".join(f"`{choice.value}`" for choice in choices)
        case inspect.UnionType(types=types) if any(isinstance(t, inspect.NoneType) for t in types):
            return f"{_value(types[0])} or null"
        case inspect.VarTupleType(item_type=inner) if _many(inner):
            return f"list of {_many(inner)}"
        case inspect.DictType(value_type=inner) if _many(inner):
            return f"object of {_many(inner)}"
    return "see below"


def _many(kind: inspect.Type) -> str:
    """Words for several values of a type; none for objects."""
    words = _value(kind)
    return "" if words == "see below" else re.sub(r"^(text|whole number|number)", r"\1s", words)


def _bounds(kind: inspect.FloatType | inspect.IntType) -> str:
    return f" ≥ {kind.ge:g}" + (f", ≤ {kind.le:g}" if kind.le != LARGEST else "")


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
