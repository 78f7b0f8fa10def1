"""A model of a disk that forgets at a loss of power what nobody has synchronised."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


class ForgetfulDisk:
    """What of a folder is on disk: contents that were synchronised, under synchronised names.

    As POSIX has it, ``fsync`` of a file keeps its content and no name, and that of a folder keeps
    the names in it and no content. A rename or a creation of which the folder was not synchronised
    is undone. What is there when the model is made is on disk.
    """

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch, *, hears_folders: bool) -> None:
        self._root, self._hears_folders = root, hears_folders
        self._contents: dict[int, bytes] = {}
        self._names: dict[int, dict[str, int]] = {}
        self._held: list[int] = []
        for folder, _, files in os.walk(root):
            self._keep_names(Path(folder))
            for name in files:
                path = Path(folder, name)
                if path.is_file():
                    self._contents[path.stat().st_ino] = path.read_bytes()
        fsync = os.fsync

        def synchronise(descriptor: int) -> None:
            fsync(descriptor)
            path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
            if not path.is_dir():
                self._contents[path.stat().st_ino] = path.read_bytes()
            elif self._hears_folders:
                self._keep_names(path)

        monkeypatch.setattr(os, "fsync", synchronise)
        monkeypatch.setattr(os, "fdatasync", synchronise)

    def after_power_loss(self) -> dict[str, bytes]:
        """The files that are left, by their paths from the root."""
        found: dict[str, bytes] = {}
        folders = [("", self._root.stat().st_ino)]
        for prefix, inode in folders:
            for name, entry in self._names.get(inode, {}).items():
                if entry in self._contents:
                    found[prefix + name] = self._contents[entry]
                else:
                    folders.append((f"{prefix}{name}/", entry))
        return found

    def close(self) -> None:
        """Let go of the files that were held."""
        for descriptor in self._held:
            os.close(descriptor)

    def _keep_names(self, folder: Path) -> None:
        entries = [path for path in folder.iterdir() if path.is_file() or path.is_dir()]
        # Held open, so that the number of a file that goes is not given to another.
        self._held += [os.open(path, os.O_RDONLY) for path in entries]
        names = {path.name: path.stat().st_ino for path in entries}
        self._names[folder.stat().st_ino] = names
