"""Splits of a job over clusters, under the kernel's name: see `coalloc.model.split`."""

from __future__ import annotations

from coalloc.model.split import TOLERANCE, low_side, split

__all__ = ["TOLERANCE", "low_side", "split"]
