"""What is put to the real sbatch and to ``coalloc sbatch``, and what the real one makes of it.

``python -m tests.support.sbatch_cases`` asks a real Slurm anew and writes its answers, which
``make test`` holds the command against.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from coalloc.cli.submit.sbatch_words import BY_FLAG, WORDS
from tests.support import sbatch_meaning
from tests.testbeds.slurm import ClusterShape, bed

ANSWERS = Path(__file__).with_name("sbatch-22.05.json")
HEAD = b"#!/bin/bash\n"
SHAPE = ClusterShape(
    name="a",
    nodes=4,
    conf="Licenses=matlab:4\nGresTypes=gpu",
    groups=((4, "Feature=fast,ib Gres=gpu:2 RealMemory=64000"),),
    gres="Name=gpu File=/dev/null\nName=gpu File=/dev/zero\n",
    partitions="PartitionName=short Nodes=ALL State=UP",
)
FIELDS = (
    *("JobName", "Account", "TimeLimit", "Partition", "NumNodes", "NumTasks", "CPUs/Task"),
    *("MinMemoryCPU", "MinMemoryNode", "Features", "Dependency", "StartTime", "Deadline"),
    *("ArrayTaskId", "ArrayTaskThrottle", "Requeue", "StdOut", "WorkDir", "Licenses"),
    *("TresPerNode", "TresPerJob", "OverSubscribe"),
)
VALUES: Mapping[str, tuple[str, ...]] = {
    "--account": ("chem",),
    "--array": (
        *("0-4", "[0-4]", "1-3,", ",1-3", "0-9%", "0-9%0", "0-9%3", "0-9%3,12", "[0-4]%2", "5"),
        *("[0-4%2]", "0-15:4", "1,1,2", "4-1", "0x1-3", "01-03", "1-10:0", "1:3", "0-4%x", "-3"),
    ),
    "--begin": (
        *("3:30PM", "'3:30 PM'", "3:30pm", "3PM", "15:30", "15:30:20", "teatime", "tea", "Noon"),
        *("midnight", "fika", "today", "tomorrow", "'noon tomorrow'", "'tomorrow 10:00'", "0220"),
        *("02/20/27", "02/20", "11/20", "022027", "02.20.27", "02/20/2027", "02/20/27-10:30"),
        *("02/20/27T10:30", "'02/20/27 10:30'", "2027-02-20", "2027-02-20T10", "2027-2-20"),
        *("2027-02-20T10:30", "2027-02-20T10:30:15", "now", "now+1hour", "now-1hour", "now+60"),
        *("now+60minutes", "now+2h", "now+1HOUR", "now+1min", "'now + 1hour'", "'now+1 hour'"),
        *("now+1day", "now+1week", "now+", "NOW+1hour", "12AM", "12:00AM", "12:30PM", "13:30PM"),
        *("24:00", "10", "1030", "soon", "13/01/27", "2020-01-01"),
    ),
    "--chdir": ("/tmp",),
    "--clusters": ("nowhere",),
    "--comment": ("x", "'a b'"),
    "--constraint": ("fast", "'fast&ib'", "'fast|ib'"),
    "--cpus-per-task": ("1", "2", "0"),
    "--deadline": ("now+1hour", "3:30PM", "02/20/27", "2027-02-20T10:30", "tomorrow"),
    "--dependency": (
        *("after:1", "after:1+5", "'afterok:1?afterok:2'", "afterok:1:2,afterany:3", "1"),
        *("after:1+5:2+3", "afterok:1+5", "singleton", "AFTEROK:1", "afterok:1_2", "afterok:"),
        *("afterburstbuffer:1", "expand:1", "none", "aftercorr:1", "afternotok:1"),
    ),
    "--exclusive": ("", "user"),
    "--export": ("all", "ALL", "none", "NIL", "A=1"),
    "--extra-node-info": ("1",),
    "--gpus-per-node": ("1", "2"),
    "--gres": ("gpu:1", "gpu:2"),
    "--hint": ("nomultithread",),
    "--job-name": ("x", "'a b'", "'a#b'", "a#b", "'a\\b'", "a\\#b", "my:job", "$HOME", ""),
    "--kill-on-invalid-dep": ("yes", "no"),
    "--licenses": ("matlab", "matlab:2"),
    "--mail-type": ("NONE", "END", "ALL"),
    "--mem": ("4G", "4GB", "4g", "0.5G", "0", "4Gn", "4000K", "1T", "4000MB", "1000"),
    "--mem-per-cpu": ("1G", "2GB", "500", "1000K"),
    "--nice": ("", "5"),
    "--no-kill": ("", "off"),
    "--nodes": ("2", "2-4", "4-2", "2,3", "1k", "0", "2-", "2-2", "1"),
    "--ntasks": ("4", "1k", "0", "-1", "4-8", "4,8", "=4", "04", "+4"),
    "--ntasks-per-node": ("4",),
    "--open-mode": ("append", "truncate"),
    "--output": ("o", "/dev/null"),
    "--partition": ("main", "short", "main,short"),
    "--priority": ("100",),
    "--signal": ("USR1@60", "B:USR1"),
    "--time": (
        *("5", "0", "infinite", "UNLIMITED", "1-2", "1-2:3", "1:2:3", "90s", "2h", "1.5", "-1"),
        *("1:90", "0:30", "1-", "5:", "1:2:3:4", "1:30", "0:240:0", "00:60:00", "1-00:00:00"),
    ),
    "--wait-all-nodes": ("0", "1"),
    "--wrap": ("true",),
}
"""What an option is tried with, in quotes as in a script; others with ``1``."""
NO_VALUE = frozenset(word.flags[-1] for word in WORDS if word.value == "none")
ASIDE = frozenset(("--help", "--usage", "--version", "--uid", "--gid", "--wait"))
"""Not put to it: it prints and ends, changes the user, or waits."""
BODIES: tuple[bytes, ...] = (
    *(
        HEAD + text + b"\ntrue\n"
        for text in (
            *(b"#SBATCH\xc2\xa0-n 4", b"#SBATCH\xe3\x80\x80-n 4", b"#SBATCH \xc2\xa0-n 4"),
            *(b"#SBATCH -n\xc2\xa04", b"#SBATCH -n 4\xc2\xa0", b"#SBATCHx -n 4", b"#SBATCH"),
            *(b"#SBATCH--ntasks=4", b"#SBATCH:", b"#SBATCH_X", b" #SBATCH -n 4", b"# SBATCH -n 4"),
            *(b"##SBATCH -n 4", b"#sbatch -n 4", b"#SBATCH\t-n 4", b"#SBATCH\x0b-n 4"),
            *(b"#SBATCH\x0c-n 4", b"#SBATCH -n 4\x0c#SBATCH -n 5", b"#SBATCH -n 4 -n 5"),
            *(b"#SBATCH -J a\xe2\x80\xa8#SBATCH -n 4", b"\xc2\xa0\n#SBATCH -n 4"),
            *(b"\x0b\n#SBATCH -n 4", b"  \t\n#SBATCH -n 4", b": '\n#SBATCH -n 4\n'"),
            *(b"set -e\n#SBATCH -n 4 -t 5", b"#PBS -l nodes=2", b"#BSUB -n 4", b"#SLURM -n 4"),
            *(b"#SBATCH hetjob", b"#SBATCH packjob", b"#SBATCH -n 2 : -n 3", b"#SBATCH -J :"),
            *(b"#SBATCH -J x hetjob", b"#SBATCH -n 4\rtrue", b"#SBATCH -n 4 \\", b"#SBATCH -n=4"),
            *(b"#SBATCH -n 4 ; -J x", b"#SBATCH --ntasks =4", b"#SBATCH --ntasks= 4"),
            *(b"#SBATCH -ntasks=4", b"#SBATCH \xe2\x80\x93n 4", b'#SBATCH -J "a'),
            *(b"#SBATCH --\n#SBATCH -n 4", b"#SBATCH -J Big simulation -n 4", b"#SBATCH -J ''"),
            *(
                b"#SBATCH -J a\\ b",
                b"#SBATCH -J a\\",
                b"#SBATCH -J '' -n 3",
                b"#SBATCH --comment='' -n 3",
            ),
            *(b"#SBATCH --no-requeue\n#SBATCH --requeue", b"#SBATCH -Hn4", b"#SBATCH -t5 -n4"),
            *(
                b"#SBATCH --tasks=4",
                b"#SBATCH --tasks-per=4",
                b"#SBATCH --nta=4",
                b"#SBATCH --gpu=2",
            ),
            *(b"#SBATCH --time 5 # c", b"#SBATCH --exclusive user", b"#SBATCH --job-name = x"),
            *(b"#SBATCH -N 2 --tasks-per-node=4", b"#SBATCH -N 2 -n 6 --mem=4G", b"#SBATCH -J"),
            *(b"#SBATCH " + text.encode() for text in sbatch_meaning.SEEN),
            *(b"#SBATCH --hold=1", b"#SBATCH --no-such=1", b"#SBATCH -y 1", b"# f\xfcr dich"),
            *(b"#SBATCH -J f\xc3\xbcr", b"#SBATCH --export=ALL,A='x,y'", b"#SBATCH -o \"a b\"c'd'"),
        )
    ),
    b"\xef\xbb\xbf#!/bin/bash\ntrue\n",
    b"#!/bin/bash\r\n#SBATCH -n 4\r\ntrue\r\n",
    b"# hi\n#SBATCH -n 4\ntrue\n",
    b"\n#!/bin/bash\ntrue\n",
    b"#!/bin/bash\ntr\0ue\n",
    b"#!/bin/bash\n#SBATCH -n 4",
)
VARIABLES: Mapping[str, tuple[str, ...]] = {
    "SBATCH_TIMELIMIT": ("1", "soon"),
    "SBATCH_JOB_NAME": ("e",),
    "SBATCH_OUTPUT": ("o",),
    "SBATCH_REQUEUE": ("", "no", "yes", "0", "1"),
    "SBATCH_ARRAY_INX": ("0-3",),
    "SBATCH_PARTITION": ("short",),
    "SBATCH_CONSTRAINT": ("fast",),
    "SBATCH_EXPORT": ("NONE",),
    "SBATCH_MEM_PER_CPU": ("500",),
    "SBATCH_MEM_PER_NODE": ("1000",),
    "SBATCH_GRES": ("gpu:1",),
    "SBATCH_FOO": ("1",),
    "SBATCH_NTASKS": ("7",),
    "SLURM_NTASKS": ("7",),
    "SBATCH_CLUSTERS": ("nowhere",),
    "SLURM_CLUSTERS": ("nowhere",),
}
"""What a variable is tried with; others with ``1``."""
PATTERNS = (
    *("run_%x_%N_%s_%b_%%_%J_%n_%t_%u_%A.out", "%05j_%4x_%3N_%12j", "%3n_%3t", "x%%j", "x%%%j"),
    *("%4s_%4u", "%0j", "%010j", "sub/%j", "%q_%Z", "bs\\%j", "%a"),
)
ARRAY_PATTERN = "%A_%a_%4a_%s"


class Case(NamedTuple):
    """A script and how it is submitted."""

    name: str
    script: bytes
    env: Mapping[str, str] = {}


def cases(answers: Mapping[str, Any]) -> Iterator[Case]:
    """Every option, variable and form of lines that is tried."""
    for option in answers["options"]:
        if option in ASIDE:
            continue
        for value in ("",) if option in NO_VALUE else VALUES.get(option, ("1",)):
            texts = [f"{option}={value}"] if value or option == "--job-name" else [option]
            if value == VALUES.get(option, ("1",))[0]:
                texts.append(f"{option} {value}")
            for text in texts:
                yield Case(text, HEAD + f"#SBATCH {text}\ntrue\n".encode())
    for body in BODIES:
        yield Case(repr(body), body)
    for name in answers["variables"]:
        for value in VARIABLES.get(name, ("1",)):
            if name not in {"SBATCH_WAIT", "SBATCH_DEBUG"}:
                script = HEAD + b"#SBATCH -t 5 -J s -o s\ntrue\n"
                yield Case(f"{name}={value}", script, {name: value})


def asked(case: Case, conf: str, folder: Path) -> dict[str, Any]:
    """What sbatch makes of a script: the fields of the job, or its refusal."""
    (folder / "job.sh").write_bytes(case.script)
    env = {"PATH": os.environ["PATH"], "SLURM_CONF": conf, "TZ": "UTC", **case.env}

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            words,
            cwd=folder,
            env=env,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )

    now = round(time.time(), 1)
    done = run("sbatch", "-H", "--parsable", "job.sh")
    number = done.stdout.partition(";")[0].strip()
    if done.returncode or not number.isdigit():
        lines = done.stderr.replace(str(folder), "").splitlines() or [done.stdout]
        is_test = not done.returncode
        return {"refused": "it is only a test" if is_test else lines[0], "tested": is_test}
    shown = run("scontrol", "-o", "show", "job", number).stdout.partition("\n")[0]
    run("scancel", number)
    found = dict(re.findall(r"(?:^| )([A-Za-z:/]+)=(.*?)(?= [A-Za-z:/]+=|$)", shown))
    fields = {name: found[name] for name in FIELDS if found.get(name) not in {None, "(null)"}}
    fields = {k: v.replace(str(folder), "/here") for k, v in fields.items()}
    fields["StdOut"] = re.sub(rf"(?<![0-9]){number}(?![0-9])", "JOB", fields["StdOut"])
    return {"asked": now, "job": fields}


def files_of(pattern: str, conf: str, folder: Path, *more: str) -> list[str]:
    """Number of a job that runs, and names of its output files."""
    where = Path(tempfile.mkdtemp(dir=folder))
    (where / "sub").mkdir()
    env = {"PATH": os.environ["PATH"], "SLURM_CONF": conf}
    words = ("sbatch", "-W", "--parsable", "-J", "na me", "-o", pattern, *more, "--wrap", "true")
    done = subprocess.run(words, cwd=where, env=env, capture_output=True, text=True, check=True)
    names = [str(path.relative_to(where)) for path in where.rglob("*") if path.is_file()]
    return [done.stdout.strip(), *sorted(names)]


def options_of(env: Mapping[str, str]) -> list[str]:
    """The long options that it knows, of all that its manual mentions."""
    manual = gzip.decompress(Path("/usr/share/man/man1/sbatch.1.gz").read_bytes()).decode()
    named = sorted(set(re.findall(r"--[a-z][a-z-]+[a-z]", manual.replace("\\-", "-"))))
    told = [
        subprocess.run(
            ["sbatch", word, "--zz"],
            cwd="/tmp",
            env=env,
            capture_output=True,
            text=True,
            check=False,
        )
        for word in (*named, *(flag for flag in BY_FLAG if flag.startswith("--")))
    ]
    known = {done.args[1] for done in told if not _is_unknown(done)}
    shorter = {word for word in known for other in known - {word} if other.startswith(word)}
    return sorted(known - (shorter - BY_FLAG.keys()))


def _is_unknown(done: subprocess.CompletedProcess[str]) -> bool:
    first = done.stderr.partition("\n")[0]
    return f"'{done.args[1]}'" in first and re.search("unrecog|ambig", first) is not None


def recorded() -> dict[str, Any]:
    """The answers that are kept."""
    answers: dict[str, Any] = json.loads(ANSWERS.read_text(encoding="utf-8"))
    return answers


def main() -> None:
    """Ask all anew."""
    with bed(SHAPE) as running, tempfile.TemporaryDirectory() as name:
        folder, conf = Path(name), str(running["a"].conf)
        env = {"PATH": os.environ["PATH"], "SLURM_CONF": conf}
        program = Path("/usr/bin/sbatch").read_bytes()
        variables = {found.decode() for found in re.findall(rb"\bSBATCH_[A-Z0-9_]+", program)}
        answers: dict[str, Any] = {
            "options": options_of(env),
            "variables": sorted(variables | VARIABLES.keys()),
        }
        plain = asked(Case("", HEAD + b"true\n"), conf, folder)["job"]
        answers["cases"] = {case.name: asked(case, conf, folder) for case in cases(answers)}
        answers["files"] = {each: files_of(each, conf, folder) for each in PATTERNS}
        answers["array"] = files_of(ARRAY_PATTERN, conf, folder, "-a", "3-4")
    for answer in answers["cases"].values():
        if "job" in answer:
            answer["job"] = {k: v for k, v in answer["job"].items() if plain.get(k) != v}
    ANSWERS.write_text(written(answers), encoding="utf-8")


def written(answers: Mapping[str, Any]) -> str:
    """The answers as JSON, a line for each case."""
    rest = json.dumps({key: value for key, value in answers.items() if key != "cases"})
    rows = (f"{json.dumps(key)}: {json.dumps(case)}" for key, case in answers["cases"].items())
    return rest[:-1] + ',\n"cases": {\n' + ",\n".join(rows) + "\n}}\n"


if __name__ == "__main__":
    main()
