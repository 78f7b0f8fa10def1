"""Damage to a store, drawn by seed, and all that a store serves, to compare with what it held.

Each damage is done to the files of a store that nobody uses: as a bad disk, an interrupted copy, a
full disk, a killed daemon whose WAL is gone, or somebody with ``sqlite3`` leaves them.
"""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from coalloc.core.base.effects import (
    AddUsage,
    Effect,
    SaveHistory,
    SaveMeta,
    SavePlan,
    SavePromises,
    SaveToken,
    SaveUsage,
    SendOrder,
)
from coalloc.core.base.messages import Abort
from coalloc.core.base.start_intervals import Promise
from coalloc.daemon.store.recall import recall
from coalloc.daemon.store.sqlite import Store
from coalloc.daemon.store.tables import TABLES
from tests.support.stored import event, saved_job, saved_launch

PAGE = 4096
JOBS = 150


def fill(store: Store) -> None:
    """Some of everything that a daemon keeps, in several commits."""
    store.commit([SaveMeta(key="store", value="s")])
    for n in range(1, JOBS + 1):
        job, ended = str(n), float(n) if n % 3 == 0 else None
        effects: list[Effect] = [
            saved_job(job, ended=ended, size=n % 7 * 150),
            saved_launch(job, "sleep", "x" * (n % 50)),
            SaveToken(user="ann", token=f"token {n}", job=job),
            event(2 * n, job=job, time=float(n), size=n % 90),
            event(2 * n + 1, time=float(n)),
            SaveMeta(key="last_job", value=job),
            SendOrder(cluster="ab"[n % 2], seq=n, order=Abort(job=job, attempt=1)),
            AddUsage(
                day=n // 20, project="p", user=f"u{n % 3}", cluster="a", proc_s=1.5,
                coallocated_proc_s=0.5, jobs=1, wait_s=2.0,
            ),
        ]  # fmt: skip
        if n % 10 == 0:
            effects += [
                SavePlan(round=n, time=float(n), body={"of": n}),
                SaveHistory(key=f"ann job{n}", values=(1.0,), ratios=(0.5,), runs=((2, 1.0),)),
                SaveUsage(project="p", user=f"u{n}", proc_s=n / 7, at=1.0),
                SavePromises(job=job, promises=(Promise(1.0, 2.0, 3.0, "first"),)),
            ]
        store.commit(effects)


def served(path: Path) -> Any:
    """All that a daemon could say from this store.

    Raises
    ------
    StoreError
        It is noticed that the store is damaged.
    """
    store = Store(path)
    try:
        memory = recall(store, keep_ended=20)
        for _ in store.examine():
            pass
        jobs = [str(n) for n in range(1, JOBS + 2)]
        found = [
            *([store.job(job), store.launch(job), store.events(0, 99, job)] for job in jobs),
            *(store.job_of_token("ann", f"token {job}") for job in jobs),
            *(store.plan(n) for n in range(0, JOBS + 10, 10)),
            store.events(0, 9999),
            store.finished(9999),
            store.accounts(0.0, 1e9, 0, "", "", 9999),
            store.used_days((-1, "", "", ""), 9999, 9999),
        ]
        past = memory.remembered
        others = [getattr(past, name) for name in past.__struct_fields__ if name != "sharing"]
        return [others, past.sharing.usage, past.sharing.days, memory.outbox, found]
    finally:
        store.close()


def bits(path: Path, dice: random.Random) -> None:
    content = bytearray(path.read_bytes())
    for _ in range(dice.randint(1, 40)):
        content[dice.randrange(len(content))] ^= 1 << dice.randrange(8)
    path.write_bytes(content)


def zeroed(path: Path, dice: random.Random) -> None:
    content = bytearray(path.read_bytes())
    at = dice.randrange(len(content) // PAGE) * PAGE
    content[at : at + PAGE] = bytes(PAGE)
    path.write_bytes(content)


def swapped(path: Path, dice: random.Random) -> None:
    content = bytearray(path.read_bytes())
    a, b = (n * PAGE for n in dice.sample(range(len(content) // PAGE), 2))
    content[a : a + PAGE], content[b : b + PAGE] = content[b : b + PAGE], content[a : a + PAGE]
    path.write_bytes(content)


def truncated(path: Path, dice: random.Random) -> None:
    size = path.stat().st_size
    to = dice.choice([0, dice.randrange(size), dice.randrange(size // PAGE) * PAGE])
    with path.open("r+b") as file:
        file.truncate(to)


def gone(path: Path, dice: random.Random) -> None:
    path.unlink()


def nonsense(path: Path, dice: random.Random) -> None:
    """A row changed or removed with other means than ours."""
    with closing(sqlite3.connect(path)) as raw:
        name = dice.choice([table.name for table in TABLES])
        columns = [row[1] for row in raw.execute(f"PRAGMA table_info({name})")]
        keys = raw.execute(f"SELECT {columns[0]} FROM {name}").fetchall()
        if not keys:
            return
        key = dice.choice(keys)[0]
        if dice.random() < 0.3:
            raw.execute(f"DELETE FROM {name} WHERE {columns[0]} = ?", (key,))
        else:
            value = dice.choice(["nonsense", "{}", "", b"\xff\xfe", -1, 2**60, "\x00"])
            change = f"UPDATE OR IGNORE {name} SET {dice.choice(columns[1:])} = ?"
            raw.execute(f"{change} WHERE {columns[0]} = ?", (value, key))
        raw.commit()


def dropped(path: Path, dice: random.Random) -> None:
    with closing(sqlite3.connect(path)) as raw:
        kind, name = dice.choice(
            raw.execute("SELECT type, name FROM sqlite_master WHERE sql IS NOT NULL").fetchall()
        )
        raw.execute(f"DROP {kind} {name}")


DAMAGES: Mapping[str, Callable[[Path, random.Random], None]] = {
    each.__name__: each for each in (bits, zeroed, swapped, truncated, gone, nonsense, dropped)
}
TO_WAL = ("bits", "zeroed", "truncated", "gone")
"""Those that the WAL of a killed daemon may suffer instead."""


def damage(path: Path, seed: int) -> str:
    """Damage the files of a store; returns how."""
    dice = random.Random(f"damage {seed}")
    wal = Path(f"{path}-wal")
    kind = [*DAMAGES][seed % len(DAMAGES)]
    is_wal = wal.exists() and kind in TO_WAL and dice.random() < 0.5
    if not is_wal and wal.exists():
        # What the WAL holds would be put over the damage.
        with closing(sqlite3.connect(path)) as raw:
            raw.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    DAMAGES[kind](wal if is_wal else path, dice)
    return f"seed {seed}: {kind} of {'the WAL' if is_wal else 'the store'}"
