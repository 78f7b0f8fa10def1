"""Map the top-level folders to ``coalloc.<folder>``; all else is in pyproject.toml."""

from setuptools import find_packages, setup

ROOTS = (
    "adapters",
    "cli",
    "client",
    "core",
    "daemon",
    "dashboard",
    "executor",
    "model",
    "policies",
    "runtime",
    "simulation",
    "wire",
)
SUBS = {f"coalloc.{root}": root for root in ROOTS}
SUBS |= {
    f"coalloc.{root}.{package}": f"{root}/{package.replace('.', '/')}"
    for root in ROOTS
    for package in find_packages(root)
}
setup(packages=["coalloc", *SUBS], package_dir={"coalloc": "src/coalloc", **SUBS})
