"""The experiments by name; the module of one is loaded when it runs."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from pathlib import Path

from coalloc.model.errors import InputError
from coalloc.simulation.reproduce.study import Experiment
from coalloc.simulation.reproduce.words import Template, read_template

PAPERS: Mapping[str, str] = {
    "OAS": "Blanco, Guirado, Lérida, Albornoz, “MIP model scheduling for multi-clusters” "
    "(conference), and “OAS: a MIP model for ordering and allocating parallel jobs on "
    "multi-cluster systems” (extended)",
    "MBPC": "Blanco, Castellà, Lérida, Guirado, “Multiple job allocation in multicluster system”",
    "DEMT": "Dutot, Eyraud-Dubois, Mounié, Trystram, “Bi-criteria algorithm for scheduling jobs on "
    "cluster platforms” (SPAA 2004)",
    "MCA-HEFT": "Stanzani, Sato, Netto, “Scheduling workflows in multi-cluster environments”, "
    "which introduces MCA-HEFT",
}
MODULES: Mapping[str, str] = {
    "oas-fig3": "oas.fig3",
    "oas-fig4": "oas.fig4",
    "mbpc-fig3": "mbpc.dispersion",
    "mbpc-fig4": "mbpc.dispersion",
    "mbpc-fig5": "mbpc.times",
    "mbpc-fig6": "mbpc.map",
    "mbpc-fig7": "mbpc.dispersion",
    "mbpc-fig8": "mbpc.dispersion",
    "mbpc-fig9": "mbpc.times",
    "demt-fig3": "demt.families",
    "demt-fig4": "demt.families",
    "demt-fig5": "demt.families",
    "demt-fig6": "demt.families",
    "demt-fig7": "demt.fig7",
    "demt-online": "demt.online",
    "mca-table1": "mca.tables",
    "mca-fig2": "mca.fig2",
    "mca-table2": "mca.tables",
    "mca-table3": "mca.tables",
}
"""Module of every experiment that ``coalloc reproduce`` knows, in the order of ``all``.

Its table EXPERIMENTS holds the experiment; the template is in the folder ``data`` beside it.
"""


def find(name: str) -> str:
    """Return the name, if there is such an experiment.

    Raises `InputError` if there is none; the message lists the names.
    """
    if name not in MODULES:
        names = ", ".join(MODULES)
        raise InputError("reproduce", f"there is no experiment {name!r}; there are all, {names}")
    return name


@cache
def template(name: str) -> Template:
    """Read the template of an experiment."""
    folder = MODULES[name].partition(".")[0]
    return read_template(Path(__file__).parent / folder / "data" / f"{name}.md")


def load(name: str) -> Experiment:
    """Import an experiment."""
    module = import_module(f"coalloc.simulation.reproduce.{MODULES[name]}")
    table: Mapping[str, Experiment] = module.EXPERIMENTS
    return table[name]
