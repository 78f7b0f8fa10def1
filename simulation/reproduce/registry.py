"""The experiments by name; the module of one is loaded when it runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module

from coalloc.model.errors import InputError
from coalloc.simulation.reproduce.experiment import Experiment

OAS = (
    "Blanco, Guirado, Lérida, Albornoz, “MIP model scheduling for multi-clusters” (conference), "
    "and “OAS: a MIP model for ordering and allocating parallel jobs on multi-cluster systems” "
    "(extended)"
)
DEMT = (
    "Dutot, Eyraud-Dubois, Mounié, Trystram, “Bi-criteria algorithm for scheduling jobs on cluster "
    "platforms” (SPAA 2004)"
)
MCA = (
    "Stanzani, Sato, Netto, “Scheduling workflows in multi-cluster environments”, which introduces "
    "MCA-HEFT"
)
MBPC = "Blanco, Castellà, Lérida, Guirado, “Multiple job allocation in multicluster system”"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One row of the registry.

    Attributes
    ----------
    paper : str
        The reference.
    figure : str
        Where in it, as a reader would look for it.
    doc : str
        One line.
    module : str
        Its table EXPERIMENTS holds the experiment.
    """

    name: str
    paper: str
    figure: str
    doc: str
    module: str


def _row(name: str, paper: str, figure: str, module: str, doc: str) -> Entry:
    module = f"coalloc.simulation.reproduce.{module}"
    return Entry(name=name, paper=paper, figure=figure, doc=doc, module=module)


ENTRIES: Mapping[str, Entry] = {
    entry.name: entry
    for entry in (
        _row("oas-fig3", OAS, "Fig. 3", "oas.fig3", "what the size of the time slot costs"),
        _row("oas-fig4", OAS, "Fig. 4", "oas.fig4", "six workloads, OAS against six plain orders"),
        *(
            _row(f"mbpc-fig{number}", MBPC, f"Fig. {number}", f"mbpc.{module}", doc)
            for number, module, doc in (
                (3, "dispersion", "case 1: processing slowdown against standing alone"),
                (4, "dispersion", "case 1: communication slowdown against standing alone"),
                (5, "times", "case 1: run times split in two"),
                (6, "map", "case 1: who got which cluster"),
                (7, "dispersion", "case 2: processing slowdown against standing alone"),
                (8, "dispersion", "case 2: communication slowdown against standing alone"),
                (9, "times", "case 2: run times split in two"),
            )
        ),
        _row(
            "oas-stochastic",
            MBPC,
            "Sect. 5",
            "oas.stochastic",
            "two real logs: what scenarios of run times gain and cost",
        ),
        *(
            _row(f"demt-fig{number}", DEMT, f"Fig. {number}", f"demt.{module}", doc)
            for number, module, doc in (
                (3, "families", "weakly parallel jobs: both criteria by their bounds"),
                (4, "families", "highly parallel jobs: both criteria by their bounds"),
                (5, "families", "mixed jobs: both criteria by their bounds"),
                (6, "families", "Cirne and Berman's jobs: both criteria by their bounds"),
                (7, "fig7", "the time that the algorithm takes"),
            )
        ),
        _row(
            "demt-online",
            DEMT,
            "Sect. 2.2",
            "demt.online",
            "moldable jobs that arrive over time: two on-line forms against EASY",
        ),
        _row("mca-table1", MCA, "Table 1", "mca.tables", "the workflows, as published and drawn"),
        _row("mca-fig2", MCA, "Fig. 2", "mca.fig2", "makespans against M-HEFT, HCPA and the bound"),
        _row(
            "mca-table2", MCA, "Table 2", "mca.tables", "processes, and tasks on several clusters"
        ),
        _row("mca-table3", MCA, "Table 3", "mca.tables", "time that tasks spend communicating"),
    )
}
"""Every experiment that ``coalloc reproduce`` knows, in the order of ``all``."""


def find(name: str) -> Entry:
    """Return the entry of this name.

    Raises
    ------
    InputError
        If there is none; the message lists the names.
    """
    entry = ENTRIES.get(name)
    if entry is None:
        names = ", ".join(ENTRIES)
        raise InputError("reproduce", f"there is no experiment {name!r}; there are all, {names}")
    return entry


def load(entry: Entry) -> Experiment:
    """Import an experiment."""
    table: Mapping[str, Experiment] = import_module(entry.module).EXPERIMENTS
    return table[entry.name]
