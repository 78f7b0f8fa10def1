"""Parts that cannot start on this machine: refused before anything runs, with the reason."""

from __future__ import annotations

import os
from typing import Any

import pytest

from coalloc.adapters.base import ClaimRefusedError
from coalloc.model.sites.batch_options import BatchOptions
from coalloc.model.sites.parts import PERMANENT, PartReport, PartState
from tests.support.launch_bed import LaunchTestbed


def refused(bed: LaunchTestbed, *argv: str, **fields: Any) -> PartReport:
    report = bed.claim(bed.spec(*argv, **fields))
    assert report.state is PartState.REFUSED
    assert report.codes == ()
    assert report.started is None
    assert report.exit_code is None
    return report


def test_missing_command(bed: LaunchTestbed) -> None:
    report = refused(bed, "no-such-command-of-ours")
    assert (report.reason, report.detail) == (
        "not_found",
        "no-such-command-of-ours: no such command",
    )
    assert refused(bed, "/no/such/file", job="2").reason == "not_found"
    assert refused(bed, "./absent", job="3").reason == "not_found"


def test_command_that_is_not_executable(bed: LaunchTestbed) -> None:
    (bed.cwd / "plain").write_text("text")
    report = refused(bed, "./plain")
    assert (report.reason, report.detail) == ("not_executable", "./plain: is not executable")
    assert refused(bed, "/tmp", job="2").detail == "/tmp: is a folder"


@pytest.mark.parametrize(
    ("first_line", "detail"),
    [
        ("#!/no/such/shell -e", "job.sh: its interpreter /no/such/shell cannot be executed"),
        (  # written on another system
            "#!/bin/sh\r",
            "job.sh: its interpreter /bin/sh cannot be executed "
            "(the line ends in a carriage return)",
        ),
        ("#! \t/etc/passwd", "job.sh: its interpreter /etc/passwd cannot be executed"),
    ],
)
def test_script_with_a_bad_interpreter(bed: LaunchTestbed, first_line: str, detail: str) -> None:
    report = refused(bed, "job.sh", script=f"{first_line}\necho no\n")
    assert (report.reason, report.detail) == ("bad_script", detail)


def test_bad_folder_or_output(bed: LaunchTestbed) -> None:
    report = refused(bed, "true", cwd="/no/such/folder")
    assert (report.reason, report.detail) == (
        "cwd_missing",
        "/no/such/folder: No such file or directory",
    )
    report = refused(bed, "true", job="2", stdout="absent/%j.out")
    assert (report.reason, report.detail) == (
        "output_unwritable",
        "absent/2.out: No such file or directory",
    )
    assert refused(bed, "true", job="3", stdout="/tmp").reason == "output_unwritable"
    os.mkfifo(bed.cwd / "pipe")  # nobody reads it: opening it must not hang the part
    assert refused(bed, "true", job="4", stdout="pipe").reason == "output_unwritable"


def test_unknown_user(bed: LaunchTestbed) -> None:
    if os.geteuid() != 0:
        report = refused(bed, "true", uid=os.geteuid() + 1)
        assert "only root" in report.detail
    else:
        report = refused(bed, "true", uid=3_999_999_999)
        assert report.detail == "there is no user with uid 3999999999"
    assert report.reason == "user_unknown"


def test_arguments_that_only_the_exec_finds_too_long(bed: LaunchTestbed) -> None:
    report = bed.run(bed.spec("true", "x" * 200_000))  # over the limit for one argument
    assert report.state is PartState.FINISHED
    assert report.reason == "not_executable"
    assert "Argument list too long" in report.detail


def test_option_of_batch_systems_that_a_local_cluster_does_not_have(bed: LaunchTestbed) -> None:
    spec = bed.spec("true", batch=BatchOptions(account="chem", qos="low"))
    with pytest.raises(ClaimRefusedError, match="--qos=low cannot be honoured there") as refusal:
        bed.launcher.claim(spec)
    assert refusal.value.reason == "not_permitted"
    bed.claim(bed.spec("true", job="2", batch=BatchOptions(account="chem")))  # stands for nothing


BAD = {
    "zero": "a\0b",
    "half a pair": "a\ud800b",  # no text of UTF-8
    "a long name": "x" * 5000,
    "a long path": "/x" * 5000,
    "more than the kernel takes": "x" * (1 << 22),
}


@pytest.mark.parametrize("text", BAD.values(), ids=BAD)
def test_what_can_never_work_ends_its_job(bed: LaunchTestbed, text: str) -> None:
    """Wherever it stands: it ran, or the refusal is one after which nothing is tried again."""
    places: list[dict[str, Any]] = [
        {"argv": (text,)},
        {"argv": ("true", text)},
        {"cwd": text},
        {"cwd": f"/{text}"},
        {"stdout": text},
        {"stderr": text},
        {"env": {text: "x"}},
        {"env": {"X": text}},
        {"env": {"PATH": text}},
        {"script": f"#!/bin/sh\n# {text}\n"},
        {"script": f"#!{text}\n"},
        {"name": text},
    ]
    for number, place in enumerate(places):
        spec = bed.spec(*place.pop("argv", ("true",)), job=str(number), **place)
        found: PartReport | ClaimRefusedError
        try:
            found = bed.claim(spec)
        except ClaimRefusedError as refusal:
            found = refusal
        if isinstance(found, ClaimRefusedError) or found.is_ended:
            assert found.reason in PERMANENT, (number, found)
            continue
        bed.launcher.go(spec.key)
        assert bed.ended(spec.key).state is PartState.FINISHED
