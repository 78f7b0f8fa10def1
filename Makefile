# Thin targets; each does its own set-up in .venv and may be called again and again.
# `rm -rf .venv` starts over.  PYTHON=/path/to/python chooses the interpreter.

# The packages: what src/coalloc links to. setup.py names them, and a test compares the two.
ROOTS := $(notdir $(wildcard src/coalloc/[a-z]*))
ROOTS := $(filter-out py.typed %.py,$(ROOTS))
BIN   := .venv/bin
PIP   := $(BIN)/python -m pip --disable-pip-version-check --quiet install

SUITABLE := import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))
ifeq ($(origin PYTHON),undefined)
PYTHON := $(firstword $(foreach p,python3 python3.14 python3.13 python3.12 python3.11 python,\
            $(shell $(p) -c '$(SUITABLE)' 2>/dev/null && echo $(p))))
endif

.DEFAULT_GOAL := help
# Of the tests some wait for daemons.
WORKERS := $(shell echo $$(($$(nproc) + 1)))
FAST := not slow and not nightly and not slurm and not gridengine and not oar and not simgrid and not snakemake and not browser
SLURM := slurmctld slurmd slurm-client munge slurm-wlm-basic-plugins slurm-wlm-jwt-plugin slurmrestd openmpi-bin libopenmpi-dev slurmdbd slurm-wlm-mysql-plugin mariadb-server-core mariadb-client-core
GRIDENGINE := gridengine-master gridengine-exec gridengine-client
OAR := oar-server oar-node oar-user oar-server-pgsql oar-user-pgsql libjson-perl postgresql openssh-server
SIMGRID := g++ libsimgrid-dev
BROWSER := chromium chromium-driver fonts-dejavu-core

.PHONY: help run test test-slurm test-slurm-ssh test-gridengine test-oar test-simgrid test-snakemake test-browser slurm-demo lint types fmt bench bench-online bench-instances nightly docs site stage deb rpm dist \
  kernels coverage mutation clean links slurm ssh gridengine oar simgrid snakemake prometheus rpmbuild browser

help:
	@echo "make run | test | test-slurm | test-slurm-ssh | test-gridengine | test-oar | test-simgrid | test-snakemake | test-browser | slurm-demo | coverage | mutation | lint | types | fmt | bench | bench-online | bench-instances | nightly | docs | site | deb | rpm | dist | clean"

run: .venv/.installed-run
	$(BIN)/coalloc demo

# The same in every run, the order within sets too.
test coverage: export PYTHONHASHSEED := 0
test: kernels
	$(BIN)/pytest -n $(WORKERS) --dist worksteal --durations=10 -m "$(FAST)"

# Compiled by two processes once, so that no test waits for another's compilation.
kernels: .venv/.installed
	$(BIN)/python -m tests.kernels

# The same tests, then how much of what must not err they have covered.
coverage: kernels
	$(BIN)/pytest -n $(WORKERS) --dist worksteal -m "$(FAST)" --cov --cov-report=
	$(BIN)/python -m tests.support.coverage_report

# Defects planted in the checker and the cost model, and how many the tests find. It takes an hour;
# make mutation MUTANTS='*mutmut_*3' tries a tenth of them, those whose number ends in 3.
mutation: .venv/.installed
	@test -x $(BIN)/mutmut || $(PIP) --editable '.[mutation]'
	rm -rf mutants
	$(BIN)/mutmut run --max-children 1 $(MUTANTS)
	$(BIN)/mutmut results --all true | $(BIN)/python -m tests.support.mutation_score

test-slurm: .venv/.installed slurm ssh
	$(BIN)/pytest -n 3 --dist loadfile -m "slurm and not nightly" -rs tests/slurm tests/contract

# Those of one user's site again, who has nothing but a login on each cluster.
test-slurm-ssh: .venv/.installed slurm ssh
	COALLOC_SLURM_BY_SSH=1 $(BIN)/pytest -n 3 --dist loadfile -m "slurm and not nightly" -rs $$(grep -l account= tests/slurm/test_*.py)

slurm-demo: .venv/.installed slurm
	$(BIN)/python -m tests.slurm.demo

# Debian's packages, where they may be installed; elsewhere the suites say what is missing.
slurm:
	@{ command -v slurmctld >/dev/null 2>&1 || test -x /usr/sbin/slurmctld; } && \
	  test -x /usr/sbin/slurmdbd && test -x /usr/sbin/mariadbd && \
	  echo '#include <mpi.h>' | mpicc -x c -fsyntax-only - >/dev/null 2>&1 || \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then \
	    apt-get install -y --no-install-recommends $(SLURM); \
	  else \
	    echo "Slurm is not installed; as root: apt-get install $(SLURM)" >&2; \
	  fi

test-gridengine: .venv/.installed gridengine
	$(BIN)/pytest -m "gridengine and not nightly" -rs tests/gridengine tests/contract

gridengine:
	@test -x /usr/lib/gridengine/sge_qmaster && test -x /usr/lib/gridengine/sge_execd || \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then \
	    DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $(GRIDENGINE); \
	  else \
	    echo "Grid Engine is not installed; as root: apt-get install $(GRIDENGINE)" >&2; \
	  fi

test-oar: .venv/.installed oar
	$(BIN)/pytest -m "oar and not nightly" -rs tests/oar tests/contract

# Debian's OAR, with a database and an sshd; none of their services is wanted.
oar:
	@test -x /usr/lib/oar/Almighty && test -x /usr/lib/oar/oarsub && test -x /usr/sbin/sshd && \
	  ls /usr/lib/postgresql/*/bin/postgres >/dev/null 2>&1 || \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then \
	    DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 apt-get install -y --no-install-recommends $(OAR) || \
	      echo "OAR could not be installed: its tests skip" >&2; \
	  else \
	    echo "OAR is not installed; as root: apt-get install $(OAR)" >&2; \
	  fi

test-simgrid: .venv/.installed simgrid
	$(BIN)/pytest -m "simgrid and not nightly" -rs tests/simgrid

# Debian's package, where it may be installed and is the version; elsewhere the suite says so.
simgrid:
	@test -e /usr/include/simgrid/version.h && command -v g++ >/dev/null 2>&1 || \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then \
	    apt-get install -y --no-install-recommends $(SIMGRID) || \
	      echo "SimGrid could not be installed" >&2; \
	  else \
	    echo "SimGrid is not installed; as root: apt-get install $(SIMGRID)" >&2; \
	  fi

# Debian's Prometheus, for the tests of alert rules and dashboard; its service is not wanted.
prometheus:
	@command -v promtool >/dev/null 2>&1 && command -v prometheus >/dev/null 2>&1 || \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then \
	    DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 apt-get install -y --no-install-recommends prometheus || \
	      echo "Prometheus could not be installed" >&2; \
	  else \
	    echo "Prometheus is not installed; as root: apt-get install prometheus" >&2; \
	  fi

# Login nodes of the tests: an sshd of their own; the service is not started. rsync copies data.
ssh:
	@if [ -x /usr/sbin/sshd ] && command -v ssh >/dev/null 2>&1 && command -v rsync >/dev/null 2>&1; then exit 0; fi; \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then \
	    DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 apt-get install -y --no-install-recommends openssh-server openssh-client rsync || \
	      echo "openssh-server and rsync could not be installed: tests of ssh skip" >&2; \
	  else \
	    echo "openssh-server or rsync is not installed; as root: apt-get install openssh-server rsync" >&2; \
	  fi

# Debian's rpm, for the package of systems like RHEL.
rpmbuild:
	@command -v rpmbuild >/dev/null 2>&1 && command -v cpio >/dev/null 2>&1 || \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then \
	    apt-get install -y --no-install-recommends rpm cpio || echo "rpm could not be installed" >&2; \
	  else \
	    echo "rpmbuild is not installed; as root: apt-get install rpm cpio" >&2; \
	  fi

test-snakemake: .venv/.installed snakemake
	$(BIN)/pytest -m "snakemake and not nightly" -rs tests/snakemake

# Snakemake and the plugin, in an environment of their own; where they cannot be had, the suite
# says so.
snakemake: .venv/.created
	@test -f .venv/snakemake/.installed -a .venv/snakemake/.installed -nt integrations/snakemake/pyproject.toml || \
	  { '$(PYTHON)' -m venv --clear .venv/snakemake && \
	    .venv/snakemake/bin/python -m pip --disable-pip-version-check --quiet install \
	      'snakemake>=9,<10' --editable . --editable integrations/snakemake && \
	    touch .venv/snakemake/.installed; } || \
	  echo "Snakemake could not be installed" >&2

test-browser: .venv/.installed browser
	$(BIN)/pytest -m "browser and not nightly" -rs tests/browser

# Debian's Chromium, and axe-core as one package brings it along; elsewhere the suite says what is
# missing.
browser: .venv/.created
	@test -x /usr/bin/chromium && test -x /usr/bin/chromedriver || \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then \
	    apt-get install -y --no-install-recommends $(BROWSER) || \
	      echo "Chromium could not be installed" >&2; \
	  else \
	    echo "Chromium is not installed; as root: apt-get install $(BROWSER)" >&2; \
	  fi
	@test -e .venv/axe/axe_playwright_python/axe.min.js || \
	  $(PIP) --no-deps --target .venv/axe axe-playwright-python==0.1.8 || \
	  echo "axe-core could not be installed" >&2

lint: .venv/.installed
	$(BIN)/ruff check
	$(BIN)/ruff format --check

types: .venv/.installed links
	$(BIN)/mypy
	$(BIN)/mypy tests benchmarks setup.py
	$(BIN)/mypy integrations/snakemake/src

fmt: .venv/.installed
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

bench: .venv/.installed
	$(BIN)/python -m benchmarks

# How long users wait under each policy, on pieces of real logs. It takes hours and goes on where it
# was interrupted; make bench-online ONLINE='--half report --logs KTH-SP2' replays a part.
bench-online: .venv/.installed
	$(BIN)/coalloc reproduce online $(ONLINE)

# Our plans of the instance library beside the best known; better ones are kept.
bench-instances: .venv/.installed
	$(BIN)/python -m benchmarks instances --processes 2 --keep

# What it draws is new in every run; make nightly SEED=n repeats the run that showed n.
nightly: SEED := $(strip $(shell od -An -N3 -tu4 /dev/urandom))
nightly: .venv/.installed
	$(BIN)/pytest --hypothesis-profile=fresh --hypothesis-seed=$(SEED) -m "nightly or hypothesis"
	$(MAKE) test-slurm-ssh
	$(BIN)/python -m tests.simulation --seeds 1000 --steps 2000 --first $(SEED)
	$(BIN)/python -m tests.simulation --seeds 1000 --steps 2000 --first $(SEED) --no-restorations
	$(BIN)/python -m tests.properties.plan_promises --rounds 40 --first $(SEED)
	$(BIN)/python -m tests.fuzz --all --inputs 20000 --seed $(SEED)
	$(BIN)/python -m tests.fuzz --live --inputs 1000000 --seed $(SEED)
	$(BIN)/python -m benchmarks --full

docs: .venv/.installed
	$(BIN)/python docs/build.py
	$(BIN)/python docs/manual.py
	$(BIN)/python docs/pictures.py

# The documentation as a site in build/site; what is wrong in it, a dead link among it, is an error.
site: docs
	@test -x $(BIN)/mkdocs || $(PIP) --editable '.[docs]'
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# dist/coalloc_VERSION_ARCH.deb and dist/coalloc-VERSION-1.ARCH.rpm (docs/install.md)
deb: stage
	packaging/deb/build

rpm: stage rpmbuild
	packaging/rpm/build

stage: .venv/.installed-package
	@echo "stage: man pages and completion"
	$(BIN)/python docs/manual.py
	packaging/stage $(BIN)/python

# All that a release is, of what is committed, each tried in an empty place.
dist: .venv/.installed-package
	@test -z "$$(git status --porcelain)" || { echo "error: not all is committed: git status" >&2; exit 1; }
	rm -rf dist
	$(BIN)/python -m build --outdir dist
	$(MAKE) deb rpm
	packaging/try '$(PYTHON)'
	@ls -l dist

clean:
	rm -rf build dist mutants src/*.egg-info *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .numba
	find . -path ./.venv -prune -o -name __pycache__ -type d -exec rm -rf {} +

# Without the links mypy finds nothing to check and passes.
links:
	@test -n "$(ROOTS)" || { echo "error: src/coalloc links to no package" >&2; exit 1; }
	@for root in $(ROOTS); do \
	  test "$$(readlink src/coalloc/$$root)" = ../../$$root && test -f src/coalloc/$$root/__init__.py || \
	    { echo "error: src/coalloc/$$root is not a link to ../../$$root" >&2; exit 1; }; \
	done

.venv/.created:
	@'$(PYTHON)' -c '$(SUITABLE)' 2>/dev/null || { echo "error:\
	 no Python >= 3.11 with venv and ensurepip found$(if $(PYTHON), ($(PYTHON)));\
	 name one: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	'$(PYTHON)' -m venv --clear .venv
	@touch $@

.venv/.installed-run: .venv/.created pyproject.toml setup.py
	$(PIP) --editable '.[server]'
	@touch $@

.venv/.installed-package: .venv/.created pyproject.toml setup.py
	$(PIP) --editable '.[package]'
	@touch .venv/.installed-run $@

.venv/.installed: .venv/.created pyproject.toml setup.py
	$(PIP) --editable '.[dev]'
	@touch .venv/.installed-run .venv/.installed-package $@
