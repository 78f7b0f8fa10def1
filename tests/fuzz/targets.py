"""Everything that reads strangers' bytes, by name."""

from __future__ import annotations

from tests.fuzz import answer_targets, file_targets, wire_targets
from tests.fuzz.target import Target

TARGETS: dict[str, Target] = {
    **wire_targets.TARGETS,
    **file_targets.TARGETS,
    **answer_targets.TARGETS,
}
