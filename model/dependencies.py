"""Kinds of dependencies between jobs."""

from __future__ import annotations

DEPENDENCY_KINDS = ("after", "afterok", "afterany", "afternotok", "aftercorr", "singleton")
"""`aftercorr` is `afterok` of the array's member with the same index; `singleton` is `afterany` of
every earlier job of the same user and name."""
