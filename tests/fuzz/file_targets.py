"""Files that users and operators hand in: snapshots, plans, workflows, logs, platforms, keys."""

from __future__ import annotations

import json
from argparse import ArgumentTypeError
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from coalloc.adapters.formats.platforms import parse_platform
from coalloc.adapters.formats.swf_jobs import make_jobs
from coalloc.adapters.formats.workflow import parse_workflow
from coalloc.cli import arguments
from coalloc.cli.command import CommandError
from coalloc.cli.files import read_script
from coalloc.cli.submit.script_lines import COALLOC, SBATCH, lines_of, words_of
from coalloc.client.submission import workflow_submission
from coalloc.daemon.access.key_table import KeyTableError, parse_table
from coalloc.model.errors import ConfigError, InputError
from coalloc.model.formats.decoded import decode_json
from coalloc.model.formats.nodeset import expand
from coalloc.model.formats.plan_json import read_plan
from coalloc.model.formats.snapshot_json import read_snapshot, write_snapshot
from coalloc.model.values import replace
from coalloc.policies.checking.check import check
from coalloc.runtime import texts
from coalloc.runtime.config import file as config_file
from coalloc.runtime.key_files import KeyFileError, parse_key
from tests.fuzz.target import Target
from tests.support.swf_bytes import read_bytes

ROOT = Path(__file__).resolve().parents[2]
TEXTS: dict[str, Callable[[str], object]] = {
    "seconds": arguments.seconds,
    "time_limit": arguments.time_limit,
    "gbps": arguments.gbps,
    "mebibytes": arguments.mebibytes,
    "procs": arguments.procs,
    "number": texts.number,
    "fraction": texts.fraction,
    "count": arguments.count,
    "speedup": texts.speedup,
    "times": arguments.times,
    "names": arguments.names,
    "features": arguments.constraint,
    "indices": arguments.indices,
    "needs": arguments.needs,
    "job": arguments.job,
    "begin": lambda text: arguments.begin(text, 1e9),
    "exported": lambda text: arguments.exported(text, {"A": "1"}),
}


def _snapshot(content: bytes) -> None:
    snapshot = read_snapshot(decode_json(content, "file"))
    again = read_snapshot(decode_json(json.dumps(write_snapshot(snapshot), allow_nan=False)))
    assert again == replace(snapshot, warnings=())  # What was repaired is written repaired.


def _plan(content: bytes) -> None:
    from tests.unit.policies.check.check_case import SNAPSHOT

    plan = read_plan(decode_json(content, "file"))
    for line in check(read_snapshot(SNAPSHOT), plan).violations:
        assert "\n" not in line


def _workflow(name: str) -> Callable[[bytes], None]:
    def read(content: bytes) -> None:
        file = parse_workflow(content, name)
        body = workflow_submission(file.job, file.commands, env={}, cwd="/", template="run {task}")
        json.dumps(body, allow_nan=False)

    return read


def _log(content: bytes) -> None:
    make_jobs(read_bytes(content))


def _platform(content: bytes) -> None:
    for name in ("p.toml", "p.json", "p.xml", "p.machines"):
        with suppress(InputError):
            parse_platform(content, name, name)


def _script(content: bytes) -> None:
    text = read_script(content, "job.sh")
    for _, line in lines_of(text, (SBATCH, COALLOC)).read:
        with suppress(ArgumentTypeError):
            words_of(line)


def _typed(content: bytes) -> None:
    """``NAME text``: a command line's argument of that kind."""
    name, _, text = content.decode("utf-8", "surrogateescape").partition(" ")
    if name in TEXTS:
        TEXTS[name](text)


def _config(content: bytes) -> None:
    config_file.parse(content.decode("utf-8", "replace"), "coallocd.toml", ("/s", "/r", "/c"))


def _nodes(content: bytes) -> None:
    names = expand(content.decode("utf-8", "replace"), "nodes")
    assert len(set(names)) == len(names) > 0


def _workflows() -> dict[str, bytes]:
    from tests.unit.adapters.formats.test_workflow_files import DAX, DOT, OWN, PEGASUS, wfformat

    return {
        "dax": DAX.encode(),
        "pegasus": PEGASUS.encode(),
        "dot": DOT.encode(),
        "wfformat": json.dumps(wfformat()).encode(),
        "own": json.dumps(OWN).encode(),
    }


def _pegasus_json() -> bytes:
    from tests.properties.test_workflow_bytes import PEGASUS_JSON

    return json.dumps(PEGASUS_JSON).encode()


def _json(name: str) -> list[bytes]:
    from tests.unit.policies.check import check_case

    return [json.dumps(dict(getattr(check_case, name))).encode()]


def _logs() -> list[bytes]:
    line = b"7 100 5 60 4 59.5 1024 8 120 2048 1 3 2 9 1 6 5 30\n"
    head = b"; Version: 2.2\n; MaxNodes: 100\n; MaxProcs: 100\n; UnixStartTime: 9\n"
    second = line.replace(b"7 100", b"8 120")
    return [head + line + second, line, b"; a\n\n" + line[:30]]


def _platforms() -> list[bytes]:
    simgrid = (
        b"<?xml version='1.0'?><platform version='4.1'><zone id='a' routing='Full'><cluster id='c'"
        b" prefix='c-' suffix='.x' radical='0-3,7' speed='1Gf' bw='125MBps' lat='50us' core='2'"
        b" bb_bw='2GBps' bb_lat='1ms'/></zone></platform>"
    )
    files = [path.read_bytes() for path in sorted((ROOT / "etc" / "platforms").glob("*.toml"))]
    row = {"name": "a", "nodes": [{"name": "n[1-3]", "slots": 2}], "link_gbps": 1.0}
    return [*files, simgrid, json.dumps({"clusters": [row]}).encode()]


def _keys() -> list[bytes]:
    from coalloc.wire.curve import new_pair

    pair = new_pair()
    body: dict[str, Any] = {"format": "coalloc-key/1", "public": pair.public}
    return [json.dumps({**body, "secret": pair.secret, "server": pair.public}).encode()]


def _tables() -> list[bytes]:
    from coalloc.wire.curve import new_pair

    row = {"key": new_pair().public, "user": "ann", "uid": 7, "gid": 7, "role": "submit"}
    other = {**row, "role": "executor", "clusters": ["alpha"], "revoked": 1.5}
    lines = [{"format": "coalloc-keys/1"}, row, {**row, "role": "operator"}, other]
    return [b"".join(json.dumps(line).encode() + b"\n" for line in lines)]


def _typed_seeds() -> list[bytes]:
    return [
        *(b"seconds 1-02:03:04", b"seconds 90s", b"time_limit UNLIMITED", b"gbps 75Mbps"),
        *(b"mebibytes 4G", b"procs 1-64", b"number 1e3", b"fraction 0.5", b"count 7"),
        *(b"speedup amdahl:0.95", b"speedup downey:40,0.5", b"times 1:100,2:55,8:20"),
        *(b"names a,b", b"features a&b", b"indices 1-9:2,15", b"needs afterok:3:4,afterany:5"),
        *(b"job 17_3", b"begin now+5minutes", b"begin 2026-11-20T13:26:55", b"exported ALL,B=2"),
    ]


def _scripts() -> list[bytes]:
    example = (ROOT / "examples" / "hello.sh").read_bytes()
    return [example, b"#!/bin/sh\n#COALLOC -n 4 --time=5 -J 'a b'\n\n# c\n#COALLOC\ntrue\n"]


TARGETS: dict[str, Target] = {
    "snapshot": Target(run=_snapshot, allowed=(InputError,), seeds=lambda: _json("SNAPSHOT")),
    "plan": Target(run=_plan, allowed=(InputError,), seeds=lambda: _json("PLAN")),
    "dax": Target(
        run=_workflow("x.dax"),
        allowed=(InputError,),
        seeds=lambda: [_workflows()["dax"]],
        words=(b"<job id='x'/>", b"<!DOCTYPE a>", b"<!ENTITY b 'c'>", b"]]>", b"<![CDATA["),
    ),
    "pegasus": Target(
        run=_workflow("x.yml"),
        allowed=(InputError,),
        seeds=lambda: [_workflows()["pegasus"], _pegasus_json()],
        words=(b"&a ", b"*a", b"!!python/name:os.system", b"? ", b"- ", b"|\n", b"<<: *a"),
    ),
    "dot": Target(
        run=_workflow("x.dot"),
        allowed=(InputError,),
        seeds=lambda: [_workflows()["dot"]],
        words=(b"subgraph", b"->", b"--", b"[a=b]", b"/*", b"*/", b"digraph", b"{a b}"),
    ),
    "wfformat": Target(
        run=_workflow("x.json"), allowed=(InputError,), seeds=lambda: [_workflows()["wfformat"]]
    ),
    "workflow": Target(
        run=_workflow("x"), allowed=(InputError,), seeds=lambda: list(_workflows().values())
    ),
    "swf": Target(run=_log, allowed=(InputError,), seeds=_logs, words=(b"; MaxProcs:", b" -1 ")),
    "platform": Target(run=_platform, allowed=(), seeds=_platforms),
    "nodes": Target(
        run=_nodes,
        allowed=(InputError,),
        seeds=lambda: [b"a[1-4,7],b2", b"r[1-2]n[01-10/2]", b"a[1-9]!a[2-3]"],
        words=(b"[1-", b"]", b"/2", b"&", b"^", b"!", b"@g", b"00", b"99999999"),
    ),
    "key": Target(
        run=lambda content: parse_key(content, Path("key.json")),
        allowed=(KeyFileError,),
        seeds=_keys,
    ),
    "keys": Target(
        run=lambda content: parse_table(content, Path("keys.json")),
        allowed=(KeyTableError,),
        seeds=_tables,
    ),
    "script": Target(
        run=_script, allowed=(CommandError, ArgumentTypeError), seeds=_scripts, words=(b"#COALLOC",)
    ),
    "typed": Target(
        run=_typed,
        allowed=(ArgumentTypeError,),
        seeds=_typed_seeds,
        words=tuple(name.encode() + b" " for name in TEXTS),
    ),
    "config": Target(
        run=_config,
        allowed=(ConfigError,),
        seeds=lambda: [(ROOT / "etc" / "coallocd.toml").read_bytes(), b"[daemon]\nmax_array=5\n"],
        words=(b"[[clusters]]\n", b"[a.b]\n", b"'''", b'"""', b"a.b = 1\n", b"1979-05-27"),
    ),
}
