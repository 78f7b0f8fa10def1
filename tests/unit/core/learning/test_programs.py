"""The program of a command line, behind its launchers and interpreters."""

import pytest

from coalloc.core.learning.programs import program_of


@pytest.mark.parametrize(
    ("line", "program"),
    [
        ("./model.sh -n 3", "model.sh"),
        ("/opt/bin/solver", "solver"),
        ("python prep.py", "prep.py"),
        ("python3.11 -u -W ignore src/train.py --epochs 3", "train.py"),
        ("python -m package.module x", "package.module"),
        ("python -c print(1)", "python"),
        ("python", "python"),
        ("bash -x run.sh", "run.sh"),
        ("sh -c work", "sh"),
        ("env", "env"),
        ("env -u X A=1 B=2 ./go", "go"),
        ("mpirun -n 4 --map-by node ./cfd in.dat", "cfd"),
        ("mpiexec -np 8 python -u train.py", "train.py"),
        ("srun -n 4 --mpi=pmix ./cfd", "cfd"),
        ("torchrun --nproc_per_node 4 --nnodes=2 train.py", "train.py"),
        ("apptainer exec -B /a:/b image.sif python prep.py", "prep.py"),
        ("singularity run /images/fold.sif", "fold.sif"),
        ("timeout -k 5 60 ./go", "go"),
        ("nice -n 5 time -f %e taskset 0x3 ./go", "go"),
        ("java -cp a.jar:b.jar -jar /opt/x.jar", "x.jar"),
        ("java -cp a.jar Main", "Main"),
        ("Rscript --vanilla fit.R", "fit.R"),
        ("conda run -n env1 python fit.py", "fit.py"),
        ("uv run fit.py", "fit.py"),
        ("perl -e 1", "perl"),
        ("-- x", "--"),
        ("/", "/"),
    ],
)
def test_the_program_is_what_the_launchers_start(line: str, program: str) -> None:
    assert program_of(line.split()) == program


def test_no_command_has_no_program() -> None:
    assert program_of(()) == ""
