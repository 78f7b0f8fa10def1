"""Run seeds: `python -m tests.simulation --seeds 1000 --steps 2000`."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor

from tests.simulation.mutants import MUTANTS, planted
from tests.simulation.world import SETTLED_S, World


def run(
    seed: int,
    steps: int,
    mutant: str = "",
    *,
    restores: bool = True,
    within_s: float = SETTLED_S,
) -> tuple[int, str]:
    """One seed: its steps, and which promise it broke; empty if none."""
    with planted(mutant):
        world = World(seed, restores=restores)
        try:
            for _ in range(steps):
                world.step()
            world.settle(within_s)
        except Exception as error:
            return world.steps, f"{type(error).__name__}: {error}"
    return world.steps, ""


def _job(arguments: tuple[int, int, str, bool]) -> tuple[int, int, str]:
    seed, steps, mutant, restores = arguments
    return seed, *run(seed, steps, mutant, restores=restores)


def run_all(
    seeds: range, steps: int, processes: int, mutant: str = "", *, restores: bool = True
) -> Iterator[tuple[int, int, str]]:
    """Seed, steps and broken promise, as they come."""
    jobs = [(seed, steps, mutant, restores) for seed in seeds]
    if processes == 1:
        yield from map(_job, jobs)
        return
    with ProcessPoolExecutor(processes) as pool:
        yield from pool.map(_job, jobs, chunksize=4)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=100, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--steps", type=int, default=2000, help="with faults, in each")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--seed", type=int, help="this one alone")
    parser.add_argument("--trace", action="store_true", help="print each step of --seed")
    parser.add_argument(
        "--no-restorations", action="store_true", help="no world puts back a copy of the store"
    )
    parser.add_argument("--mutant", default="", choices=["", *MUTANTS], help="with this defect")
    args = parser.parse_args(argv)
    restores = not args.no_restorations
    if args.seed is not None:
        return _replay(args.seed, args.steps, args.mutant, trace=args.trace, restores=restores)
    began, steps, broken = time.monotonic(), 0, 0
    seeds = range(args.first, args.first + args.seeds)
    cases = run_all(seeds, args.steps, args.processes, args.mutant, restores=restores)
    for seed, done, why in cases:
        steps += done
        if why:
            broken += 1
            print(f"seed {seed} after {done} steps: {why}", flush=True)
    seconds = time.monotonic() - began
    print(f"{args.seeds} seeds, {steps} steps in {seconds:.1f} s, {broken} seeds broke a promise")
    return 1 if broken else 0


def _replay(seed: int, steps: int, mutant: str, *, trace: bool, restores: bool) -> int:
    with planted(mutant):
        world = World(seed, tell=print if trace else None, restores=restores)
        for _ in range(steps):
            world.step()
        world.settle()
    print(f"seed {seed}: every promise held")
    return 0


if __name__ == "__main__":
    sys.exit(main())
