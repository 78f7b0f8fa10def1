"""Inputs that reach new code: a target under atheris, in a process of its own.

``python -m tests.fuzz.guided NAME SEED [option of libFuzzer…]``. The code under test is
instrumented as it is imported, so nothing of it may be imported before.
"""

from __future__ import annotations

import base64
import importlib.util
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

LONGEST_BYTES = 1 << 14
TIMEOUT_S = 20
MEMORY_MB = 2048
NO_ATHERIS = "atheris is not installed; for runs guided by coverage: pip install '.[fuzz]'"


def is_available() -> bool:
    """Whether atheris is installed."""
    return importlib.util.find_spec("atheris") is not None


def explore(name: str, inputs: int, seed: int) -> str:
    """Run a target in a process of its own.

    Returns
    -------
    str
        The last line of its statistics.

    Raises
    ------
    AssertionError
        With the trace, the input that led to it, and the command that hands it in again.
    """
    with tempfile.TemporaryDirectory(prefix="co-fuzz-") as folder:
        command = [
            *(sys.executable, "-m", "tests.fuzz.guided", name, str(seed)),
            *(f"-runs={inputs}", f"-seed={seed % 2**32 or 1}", f"-max_len={LONGEST_BYTES}"),
            *(f"-timeout={TIMEOUT_S}", f"-rss_limit_mb={MEMORY_MB}"),
            *(f"-artifact_prefix={folder}/", "-print_final_stats=1", f"{folder}/corpus"),
        ]
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", check=False
        )
        found = [path for path in Path(folder).iterdir() if path.is_file()]
        said = done.stdout + done.stderr
        if done.returncode or found:
            again = ""
            if found:
                shown = base64.b64encode(found[0].read_bytes()).decode()
                again = f"\npython -m tests.fuzz --target {name} --input {shown}"
            trace = said.partition("Uncaught Python exception: ===")[2] or said[-4000:]
            raise AssertionError(f"{name}: {trace[:4000].strip()}{again}")
    lines = [line for line in said.splitlines() if "DONE" in line and "cov:" in line]
    return lines[-1].strip() if lines else "no statistics"


def _changing(name: str, seed: int) -> Callable[[bytes, int, int], bytes]:
    """Half of the changes are libFuzzer's, half know JSON and the words of the grammar."""
    import atheris

    from tests.fuzz.mutation import Mutator
    from tests.fuzz.targets import TARGETS

    target = TARGETS[name]
    mutator = Mutator(target.seeds(), target.words, seed=seed, longest=LONGEST_BYTES)

    def change(content: bytes, longest: int, number: int) -> bytes:
        if number % 2:
            mutated: bytes = atheris.Mutate(content, longest)
            return mutated
        mutator.random.seed(number)
        return mutator.changed(content)[:longest]

    return change


def main() -> None:
    """Explore one target in this process."""
    import atheris

    name, seed, *options = sys.argv[1:]
    with atheris.instrument_imports(include=["coalloc"]):
        from tests.fuzz.targets import TARGETS
    target = TARGETS[name]
    corpus = Path(options[-1])
    corpus.mkdir(exist_ok=True)
    for number, content in enumerate(target.seeds()):
        (corpus / f"seed{number}").write_bytes(content)
    atheris.Setup(
        [sys.argv[0], *options],
        lambda content: target.probe(bytes(content)) and None,
        custom_mutator=_changing(name, int(seed)),
    )
    atheris.Fuzz()


if __name__ == "__main__":
    main()
