"""A damaged store is noticed, whatever was done to it, or serves all that was acknowledged."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from coalloc.daemon.store.errors import StoreError
from coalloc.daemon.store.sqlite import Store
from tests.support.damages import damage, fill, served

FILES = ("", "-wal", "-mark")


@pytest.mark.parametrize(
    "seeds",
    [range(14), pytest.param(range(14, 210), marks=pytest.mark.slow)],
    ids=["some", "many"],
)
def test_a_damage_is_noticed_or_harms_nothing(tmp_path: Path, seeds: range) -> None:
    store = Store(tmp_path / "live.db")
    fill(store)
    for end in FILES:  # as a killed daemon leaves them
        shutil.copyfile(tmp_path / f"live.db{end}", tmp_path / f"killed.db{end}")
    store.close()

    def copied(name: str) -> Path:
        for end in FILES:
            shutil.copyfile(tmp_path / f"killed.db{end}", tmp_path / f"{name}.db{end}")
        return tmp_path / f"{name}.db"

    acknowledged = served(copied("whole"))
    wrong = []
    for seed in seeds:
        path = copied(str(seed))
        how = damage(path, seed)
        fault = _fault(path, acknowledged)
        if fault:
            wrong.append(f"{how}: {fault}")
        for end in FILES:
            Path(f"{path}{end}").unlink(missing_ok=True)
    assert not wrong, "\n".join(wrong)


def _fault(path: Path, acknowledged: Any) -> str:
    try:
        found = served(path)
    except StoreError as error:
        said = str(error)
        is_clear = str(path) in said and "restore" in said and "\n" not in said
        return "" if is_clear else said
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "" if found == acknowledged else "served in silence"
