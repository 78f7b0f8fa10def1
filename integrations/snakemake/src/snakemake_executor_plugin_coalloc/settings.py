"""The plugin's options on Snakemake's command line.

Snakemake reads the annotations as objects: no ``from __future__ import annotations`` here, and
only ``typing.Optional`` is understood.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Optional

from snakemake_interface_executor_plugins.settings import ExecutorSettingsBase


@dataclass
class ExecutorSettings(ExecutorSettingsBase):
    """Options of the command line: ``--coalloc-config`` and so on."""

    config: Optional[Path] = field(  # noqa: UP045 - see above
        default=None,
        metadata={"help": "coalloc's configuration; default: $COALLOC_CONFIG, the user's"},
    )
    patience: int = field(
        default=600,
        metadata={"help": "Seconds that the daemon may be away before its jobs count as failed"},
    )
    keep_logs: bool = field(
        default=False,
        metadata={"help": "Keep the logs of jobs that succeeded, too"},
    )
