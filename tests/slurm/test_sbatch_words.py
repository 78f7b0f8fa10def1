"""The answers of sbatch that are kept are the real one's; real scripts' options, put to both."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support import sbatch_cases
from tests.support.sbatch_cases import Case
from tests.testbeds.slurm import bed
from tests.unit.cli.submit.test_command import FakeClient, client
from tests.unit.cli.submit.test_sbatch_words import fault, plain_environment, result

__all__ = ["client", "plain_environment"]

OF_A_SITE = re.compile(
    r"(-p|-q|-A|-C|-x|-w|-M|-L|--(partition|qos|account|constraint|exclude|nodelist|clusters"
    r"|licenses|reservation|gres|gpus[a-z-]*|mail-[a-z]+|begin|deadline|dependency))(\W|$)"
)
"""Options whose values a test's cluster does not know, or that speak of other jobs."""
TIMES = {"StartTime", "Deadline"}


@pytest.fixture(scope="module")
def conf() -> Iterator[str]:
    with bed(sbatch_cases.SHAPE) as running:
        yield str(running["a"].conf)


def test_the_answers_that_are_kept(conf: str, tmp_path: Path) -> None:
    answers = sbatch_cases.recorded()
    plain = sbatch_cases.asked(Case("", sbatch_cases.HEAD + b"true\n"), conf, tmp_path)["job"]
    differ = {}
    for case in sbatch_cases.cases(answers):
        kept, now = answers["cases"][case.name], sbatch_cases.asked(case, conf, tmp_path)
        if now.get("tested"):
            continue
        job = {k: v for k, v in now.get("job", {}).items() if plain.get(k) != v and k not in TIMES}
        kept_job = {k: v for k, v in kept.get("job", {}).items() if k not in TIMES}
        if (job, now.get("refused", "")[:20]) != (kept_job, kept.get("refused", "")[:20]):
            differ[case.name] = job, kept_job
    assert differ == {}


def test_options_of_real_scripts(
    conf: str,
    tmp_path: Path,
    client: FakeClient,
    capsys: pytest.CaptureFixture[str],
    shared_file: Callable[[str], Path],
) -> None:
    wrong = {}
    plain = sbatch_cases.asked(Case("", sbatch_cases.HEAD + b"true\n"), conf, tmp_path)["job"]
    for entry in json.loads(shared_file("data/public/sbatch-options.json").read_text()):
        lines = [line for line in entry["options"] if not OF_A_SITE.match(line)]
        text = "".join(f"#SBATCH {line}\n" for line in lines)
        case = Case(entry["id"], sbatch_cases.HEAD + text.encode() + b"true\n")
        client.sent.clear()
        with pytest.MonkeyPatch.context() as patch:
            code, body = result(case, client, patch, 1795644000.0)
        err = capsys.readouterr().err
        if code != 2:
            real = sbatch_cases.asked(case, conf, tmp_path)
            if "job" in real:
                real["job"] = {k: v for k, v in real["job"].items() if plain.get(k) != v}
            if found := fault(case.name, real, code, body, err):
                wrong[case.name] = found, lines
    for k, v in wrong.items():
        print(k, "=>", v)
    assert wrong == {}


DRAWN = {
    "-N": ("1", "2", "3", "2-3", "1-1"),
    "-n": ("1", "2", "3", "4", "6"),
    "--ntasks-per-node=": ("1", "2", "3"),
    "-c": ("1", "2"),
    "--mem=": ("0", "1G"),
    "--mem-per-cpu=": ("500",),
    "--gres=": ("gpu:1", "gpu:2"),
    "--gpus-per-node=": ("1", "2"),
    "--gpus=": ("1", "2", "4"),
    "--gpus-per-task=": ("1", "2"),
    "--cpus-per-gpu=": ("1", "2"),
    "--ntasks-per-gpu=": ("1", "2"),
    "--exclusive": ("", "=user"),
}


def test_sizes_that_are_drawn(
    conf: str, tmp_path: Path, client: FakeClient, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is not refused is the same to sbatch, in any combination of options."""
    rng, wrong, told = random.Random(35), {}, Counter[str]()
    plain = sbatch_cases.asked(Case("", sbatch_cases.HEAD + b"true\n"), conf, tmp_path)["job"]
    for _ in range(400):
        names = rng.sample(sorted(DRAWN), rng.randint(2, 5))
        text = " ".join(name + rng.choice(DRAWN[name]) for name in names)
        case = Case(text, sbatch_cases.HEAD + f"#SBATCH {text}\ntrue\n".encode())
        client.sent.clear()
        with pytest.MonkeyPatch.context() as patch:
            code, body = result(case, client, patch, 1795644000.0)
        err = capsys.readouterr().err
        real = sbatch_cases.asked(case, conf, tmp_path)
        if "job" in real:
            real["job"] = {k: v for k, v in real["job"].items() if plain.get(k) != v}
        told["both" if code == 2 and "job" not in real else "ours" if code == 2 else "taken"] += 1
        if "without either --gpus or -n" not in real.get("refused", "") and (
            found := fault(text, real, code, body, err)
        ):
            wrong[text] = found
    with capsys.disabled():
        print(f"\nrefused by {dict(told)}")
    for k, v in wrong.items():
        print(k, "=>", v)
    assert wrong == {}
