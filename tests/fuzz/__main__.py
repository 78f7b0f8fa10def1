"""``python -m tests.fuzz``: one target, all of them, or a real daemon."""

from __future__ import annotations

import argparse
import base64
import secrets
import shutil
import sys
import tempfile
import time
from pathlib import Path

from tests.fuzz import guided

EPILOG = """\
examples:
  python -m tests.fuzz --all --inputs 100000
  python -m tests.fuzz --target dot --inputs 1000000 --seed 7
  python -m tests.fuzz --live --inputs 1000000
"""


def main() -> int:
    """Returns 0 where nothing was found."""
    args = _parser().parse_args()
    seed = secrets.randbelow(1 << 31) if args.seed is None else args.seed
    if args.live:
        return _live(args.inputs, seed)
    from tests.fuzz.targets import TARGETS

    if args.list:
        print("\n".join(TARGETS))
        return 0
    names = list(TARGETS) if args.all else args.target or []
    unknown = [name for name in names if name not in TARGETS]
    if unknown or not names:
        print(f"error: name a target: {', '.join(TARGETS)}", file=sys.stderr)
        return 2
    if args.input is not None:
        taken = TARGETS[names[0]].probe(base64.b64decode(args.input))
        print("taken" if taken else "refused")
        return 0
    return _targets(names, args.inputs, seed, is_blind=args.blind)


def _targets(names: list[str], inputs: int, seed: int, *, is_blind: bool) -> int:
    from tests.fuzz import blind

    if not is_blind and not guided.is_available():
        print(guided.NO_ATHERIS, file=sys.stderr)
        is_blind = True
    failed = 0
    for name in names:
        began = time.monotonic()
        try:
            if is_blind:
                counts = blind.run(name, inputs, seed)
                said = f"{counts[True]} taken, {counts[False]} refused"
            else:
                said = guided.explore(name, inputs, seed)
        except AssertionError as error:
            failed += 1
            said = f"FOUND\n{error}"
        print(f"{name}: seed {seed}, {time.monotonic() - began:.1f} s: {said}", flush=True)
    return 1 if failed else 0


def _live(inputs: int, seed: int) -> int:
    from tests.fuzz.live import attacked

    root = Path(tempfile.mkdtemp(prefix="co-"))
    try:
        outcome = attacked(root, inputs, seed, tell=sys.stderr.isatty())
    finally:
        shutil.rmtree(root, ignore_errors=True)
    print(f"seed {seed}")
    print("\n".join(outcome.lines()))
    faults = outcome.faults_found()
    print("\n".join(f"NOT KEPT: {fault}" for fault in faults) or "all promises kept")
    return 1 if faults else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz",
        description="Hostile bytes before everything that reads any.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--target", action="append", metavar="NAME", help="may be repeated")
    parser.add_argument("--all", action="store_true", help="every target")
    parser.add_argument("--list", action="store_true", help="name the targets")
    parser.add_argument("--live", action="store_true", help="attack the sockets of a real daemon")
    parser.add_argument("--inputs", type=int, default=10_000, metavar="N", help="for each target")
    parser.add_argument("--seed", type=int, metavar="S", help="default: another each time")
    parser.add_argument("--blind", action="store_true", help="do not look at what code is reached")
    parser.add_argument("--input", metavar="BASE64", help="hand in this one input to the target")
    return parser


if __name__ == "__main__":
    sys.exit(main())
