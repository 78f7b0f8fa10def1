"""Keys on disk, the table of keys, and the limits of what a user may ask for."""

from __future__ import annotations

import errno
import itertools
import os
import pwd
from pathlib import Path
from typing import Any

import pytest
import structlog

from coalloc.core.base.messages import Prepare
from coalloc.core.base.requests import Refused
from coalloc.daemon.access.access import REFUSALS_AT_ONCE, UNANSWERED, Access, TokenBucket
from coalloc.daemon.access.key_table import (
    MAX_KEYS_EVER,
    MAX_KEYS_PER_USER,
    Grant,
    KeyTable,
    KeyTableError,
    Role,
)
from coalloc.executor.access import OPEN_ACCESS, ExecutorAccess
from coalloc.model.settings import AccessConfig
from coalloc.runtime import logs
from coalloc.runtime.key_files import KeyFile, KeyFileError, calling, read_key, write_key
from coalloc.wire.curve import CurveClient, is_key, new_pair


def grant(user: str = "ada", uid: int = 1000, **fields: Any) -> Grant:
    return Grant(key=fields.pop("key", new_pair().public), user=user, uid=uid, gid=uid, **fields)


def test_a_key_is_written_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "key.json"
    key = KeyFile(pair=new_pair(), server=new_pair().public)
    old = os.umask(0)
    try:
        write_key(path, key)
    finally:
        os.umask(old)
    assert path.stat().st_mode & 0o777 == 0o600
    assert read_key(path) == key
    assert key.pair.secret not in repr(key)
    assert key.pair.secret not in repr(calling(key, "", path))


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o660, 0o610])
def test_a_private_key_that_others_can_read_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "key.json"
    write_key(path, KeyFile(pair=new_pair()))
    path.chmod(mode)
    with pytest.raises(KeyFileError, match=rf"mode {mode:04o} lets others in"):
        read_key(path)


def test_what_is_no_private_key(tmp_path: Path) -> None:
    path = tmp_path / "key.json"
    one, other = new_pair(), new_pair()
    bodies = {
        "is not JSON": "no",
        "is not a key file": '{"format": "other/1"}',
        "are no pair|is no pair|no pair": (
            f'{{"format": "coalloc-key/1", "public": "{one.public}", "secret": "{other.secret}"}}'
        ),
    }
    for words, body in bodies.items():
        path.write_text(body)
        path.chmod(0o600)
        with pytest.raises(KeyFileError, match=words):
            read_key(path)
    path.unlink()
    os.mkfifo(path, 0o600)
    with pytest.raises(KeyFileError, match="is not a regular file"):
        read_key(path)
    with pytest.raises(KeyFileError, match="No such file"):
        read_key(tmp_path / "none")
    with pytest.raises(KeyFileError, match="does not name the daemon's key"):
        calling(KeyFile(pair=one), "", path)


@pytest.mark.parametrize("text", ["", "x" * 39, "x" * 41, "x" * 39 + " ", "é" * 40, None, 5])
def test_what_is_no_key(text: object) -> None:
    assert not is_key(text)
    assert is_key(new_pair().public)


def test_a_new_key_is_no_option_of_a_command() -> None:
    assert not [pair for pair in (new_pair() for _ in range(500)) if pair.public[0] == "-"]


def test_the_table_outlives_the_daemon(tmp_path: Path) -> None:
    table = KeyTable(tmp_path / "keys.json")
    mine, executor = grant(), grant("root", 0, role=Role.EXECUTOR, clusters=("alpha",))
    table.authorize(mine)
    table.authorize(executor)
    table.revoke(mine.key, 5.0)
    again = KeyTable(tmp_path / "keys.json")
    assert list(again) == list(table)
    assert again.of_user(mine.uid) == table.of_user(mine.uid)
    assert again.live(mine.key) is None
    assert again.live(executor.key) == executor
    assert (tmp_path / "keys.json").stat().st_mode & 0o777 == 0o600


def test_what_the_table_refuses(tmp_path: Path) -> None:
    table = KeyTable(tmp_path / "keys.json")
    mine = grant()
    table.authorize(mine)
    refused = {
        "is not a public key": grant(key="x"),
        "belongs to another user": grant("bob", 1001, key=mine.key),
        "an executor's key names its clusters": grant(role=Role.EXECUTOR),
        "no other key does": grant(clusters=("alpha",)),
    }
    for words, each in refused.items():
        with pytest.raises(KeyTableError, match=words):
            table.authorize(each)
    table.revoke(mine.key, 1.0)
    with pytest.raises(KeyTableError, match="was revoked, and stays so"):
        table.authorize(mine)
    for _ in range(MAX_KEYS_PER_USER):
        table.authorize(grant())
    with pytest.raises(KeyTableError, match=f"at most {MAX_KEYS_PER_USER}"):
        table.authorize(grant())
    for text in ("", mine.key[:7], "0" * 8):
        with pytest.raises(KeyTableError, match="key:"):
            table.named(text, None)
    with pytest.raises(KeyTableError, match="no key that you may revoke"):
        table.named(mine.key, 1001)


def test_a_table_that_cannot_be_trusted(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    for text in ("", "{}", '{"format": "coalloc-keys/9", "keys": []}', '{"format": 1}'):
        path.write_text(text)
        path.chmod(0o600)
        with pytest.raises(KeyTableError, match=str(path)):
            KeyTable(path)
    path.chmod(0o666)
    with pytest.raises(KeyTableError, match="others than the daemon may write"):
        KeyTable(path)


def test_a_change_appends_its_line_and_no_more(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    table = KeyTable(path)
    sizes = []
    for number in range(30):
        table.authorize(grant(uid=1000 + number))
        sizes.append(path.stat().st_size)
    inode = path.stat().st_ino
    table.revoke(next(iter(table)).key, 5.0)
    assert path.stat().st_ino == inode, "it was not written anew"
    assert {later - before for before, later in itertools.pairwise(sizes)} <= {sizes[1] - sizes[0]}


def test_what_a_crash_has_left_of_a_line_is_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    table = KeyTable(path)
    first, second = grant(), grant()
    table.authorize(first)
    with path.open("ab") as file:
        file.write(b'{"key":"abc","us')
    table = KeyTable(path)
    assert list(table) == [first]
    table.authorize(second)
    assert list(KeyTable(path)) == [first, second]


def test_a_change_that_is_written_in_part_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "keys.json"
    table = KeyTable(path)
    first, second = grant(), grant()
    table.authorize(first)

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(KeyTableError, match="No space left on device; nothing was changed"):
            table.authorize(second)
    assert list(KeyTable(path)) == list(table) == [first]
    table.authorize(second)
    assert list(KeyTable(path)) == [first, second]


def test_a_user_enrols_so_many_keys_and_no_more(tmp_path: Path) -> None:
    """Revoked ones are never forgotten, so they count; what is enrolled can always be revoked."""
    table = KeyTable(tmp_path / "keys.json")
    for _ in range(MAX_KEYS_EVER):
        mine = grant()
        table.authorize(mine, by_admin=False)
        table.revoke(mine.key, 1.0)
    with pytest.raises(KeyTableError, match="root may authorize more"):
        table.authorize(grant(), by_admin=False)
    table.authorize(grant("bob", 1001), by_admin=False)
    table.authorize(grant())


def test_nothing_changes_that_cannot_be_written(tmp_path: Path) -> None:
    table = KeyTable(tmp_path / "none" / "keys.json")
    mine = grant()
    with pytest.raises(KeyTableError, match="nothing was changed"):
        table.authorize(mine)
    assert table.known(mine.key) is None


def test_a_bucket_fills_up_again() -> None:
    bucket = TokenBucket(2.0, 4.0)
    bucket.take(7.0)
    assert bucket.left(0.0) == -3.0
    assert bucket.left(2.0) == 1.0
    assert bucket.left(100.0) == 4.0


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def opened(tmp_path: Path, clock: Clock, **settings: Any) -> tuple[Access, str, str]:
    """An access with a key of ada's and one of bob's."""
    table = KeyTable(tmp_path / "keys.json")
    ada, bob = grant(), grant("bob", 1001)
    for each in (ada, bob):
        table.authorize(each)
    config = AccessConfig(**settings)
    return Access(new_pair(), table, config, logs.get_logger(), clock=clock), ada.key, bob.key


def test_who_asks_too_fast_is_refused_and_then_not_even_answered(
    tmp_path: Path, clock: Clock
) -> None:
    access, ada, bob = opened(tmp_path, clock, requests_per_s=10.0, burst=5.0)
    assert [access.refusal(ada, 10) for _ in range(4)] == [None] * 4
    told = [access.refusal(ada, 10) for _ in range(int(REFUSALS_AT_ONCE) + 100)]
    codes = {refused.code for refused in told if refused is not None}
    assert codes == {"too_fast"}
    assert told.count(UNANSWERED) in range(95, 102)
    assert access.refusal(bob, 10) is None
    clock.now = 0.5
    assert access.refusal(ada, 10) is None


def test_long_questions_and_long_messages_count_for_more(tmp_path: Path, clock: Clock) -> None:
    access, ada, bob = opened(tmp_path, clock, requests_per_s=10.0, burst=50.0)
    assert access.refusal(ada, 10) is None
    access.charge(ada, 1.0)
    assert access.refusal(ada, 10) is not None
    assert access.refusal(bob, 100 << 16) is None
    assert access.refusal(bob, 10) is not None


def test_the_questions_of_one_user_take_little_time_in_a_row(tmp_path: Path, clock: Clock) -> None:
    """He asks without pause; each answer takes 30 ms, in which nobody else is answered."""
    access, ada, _ = opened(tmp_path, clock, requests_per_s=1000.0, burst=1000.0)
    clock.now = 60.0
    rows = [0.0]
    while clock.now < 70.0:
        if access.refusal(ada, 10) is None:
            access.charge(ada, 0.03)
            clock.now += 0.03
            rows[-1] += 0.03
        else:
            clock.now += 0.001
            rows.append(0.0)
    assert 2.0 < sum(rows) < 3.0
    assert max(rows) < 0.2


def test_no_limit(tmp_path: Path, clock: Clock) -> None:
    access, ada, _ = opened(tmp_path, clock, requests_per_s=0.0)
    assert not any(access.refusal(ada, 1 << 30) for _ in range(1000))


def order(uid: int, **fields: Any) -> Prepare:
    nodes = {"a1": 1}
    return Prepare(
        job="1",
        attempt=1,
        part=0,
        nodes=nodes,
        all_nodes=nodes,
        first_rank=0,
        size=1,
        uid=uid,
        gid=uid,
        lease_s=1.0,
        **fields,
    )


def test_an_executor_starts_jobs_of_users_only() -> None:
    security = CurveClient(pair=new_pair(), server=new_pair().public)
    access = ExecutorAccess(security=security)
    assert access.may_run(order(1)) == ""
    assert "root" in access.may_run(order(0))
    assert "no user" in access.may_run(order(-1))
    assert access.may_run(order(-1, foreign="4711")) == ""
    assert ExecutorAccess(security=security, root_jobs=True).may_run(order(0)) == ""
    assert OPEN_ACCESS.may_run(order(-1)) == ""
    mine = ExecutorAccess(security=security, owner="ada")
    assert "of ada only" in mine.may_run(order(1, user="bob"))
    assert "of ada only" in mine.may_run(order(1, user="ada", foreign="4711"))


def test_an_executor_starts_jobs_of_the_account_that_the_daemon_means() -> None:
    access = ExecutorAccess(security=CurveClient(pair=new_pair(), server=new_pair().public))
    name = pwd.getpwuid(1).pw_name
    assert access.may_run(order(1, user=name)) == ""
    assert access.may_run(order(1, user="ada")) == f"uid 1 is {name} here, and not ada"
    unused = next(uid for uid in range(40_000, 60_000) if not _has_account(uid))
    assert (
        access.may_run(order(unused, user="ada")) == f"there is no account with uid {unused} here"
    )
    assert access.may_run(order(unused, user="ada", foreign="4711")) == ""


def _has_account(uid: int) -> bool:
    try:
        pwd.getpwuid(uid)
    except KeyError:
        return False
    return True


def test_refusals_of_one_code_share_a_line_whatever_they_say(tmp_path: Path, clock: Clock) -> None:
    access, ada, _ = opened(tmp_path, clock)
    with structlog.testing.capture_logs() as lines:
        for number in range(50):
            access.statement_refused(ada, f"cluster{number}")
            access.admits("clients", new_pair().public)
    assert [line["event"] for line in lines] == ["statement_refused", "connection_refused"]


def test_refusals_of_a_users_requests_share_a_line_whatever_job_they_name(
    tmp_path: Path, clock: Clock
) -> None:
    access, ada, _ = opened(tmp_path, clock)
    with structlog.testing.capture_logs() as lines:
        for number in range(50):
            for what in (f"job {number} belongs to bob", f"job 7_{number} belongs to bob", "only"):
                access.request_refused(
                    access.caller(ada), Refused(code="not_allowed", message=what)
                )
    assert [line["what"] for line in lines] == ["job 0 belongs to bob", "only"]
