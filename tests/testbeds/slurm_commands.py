"""Slurm's commands behind a folder of their own, where they are counted and made to misbehave.

The folder is the setting ``bin``. Each command there writes its name and arguments into a log,
does what its spell says (a few lines of shell, or nothing), and becomes the real one.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

NAMES = ("salloc", "sbatch", "scancel", "scontrol", "sinfo", "squeue", "srun", "sacct")
TEXT = """\
#!/bin/sh
printf '%s\\n' "{name} $*" >> {folder}/log
[ -e {folder}/{name}.spell ] && . {folder}/{name}.spell
exec {real} "$@"
"""
SLOW = "sleep {seconds:g}"
GARBAGE = "head -c 4000 /dev/urandom; exit 0"
EMPTY = "exit 0"


class Commands:
    """Slurm's commands in a folder."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self.folder, self.log = folder, folder / "log"
        self.log.touch(mode=0o666)
        for name in NAMES:
            real = shutil.which(name)
            if real is not None:
                path = folder / name
                path.write_text(TEXT.format(name=name, folder=folder, real=real))
                path.chmod(0o755)

    def spell(self, name: str, text: str) -> None:
        """From now on, a command does this first; it may end there."""
        path = self.folder / f"{name}.spell"
        new = path.with_suffix(".new")
        new.write_text(f"{text}\n")
        os.rename(new, path)

    def lift(self, *names: str) -> None:
        """Let commands be themselves again; all of them where none is named."""
        for name in names or NAMES:
            (self.folder / f"{name}.spell").unlink(missing_ok=True)

    def calls(self, *beginning: str) -> int:
        """How many calls began with these words."""
        words = list(beginning)
        lines = self.log.read_text(errors="replace").split("\n")[:-1]
        return sum(line.split()[: len(words)] == words for line in lines)

    def forget(self) -> None:
        """Count anew."""
        os.truncate(self.log, 0)
