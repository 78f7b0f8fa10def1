"""The policies by name.

Listing them imports neither numba nor numpy: the module of a policy is loaded when it is called.
Those of other packages are found by their metadata alone; their modules are loaded when a policy is
looked up: in the command that was called, or in the solver's process, never in the daemon's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from coalloc.model.errors import InputError
from coalloc.model.jobs import DivisibleJob
from coalloc.model.plan import Plan
from coalloc.model.snapshot import Snapshot
from coalloc.model.values import replace
from coalloc.policies.auto.options import AutoOptions
from coalloc.policies.base import Budget, OnIncumbent, Policy, SolveFunction
from coalloc.policies.counted.needs import needs_counting
from coalloc.policies.moldable.bicriteria.options import BicriteriaOptions
from coalloc.policies.oas.options import OasOptions
from coalloc.policies.options import CommonOptions, Options
from coalloc.policies.orders.options import SjbfOptions, StrictOptions, easy_options
from coalloc.policies.published import options as published
from coalloc.policies.relative_time import at_time, from_now
from coalloc.policies.workflow.search.options import WorkflowPolicyOptions

GROUP = "coalloc.policies"
"""Entry points by which other packages declare theirs."""
_COMPLETING, _COUNTED, _PLAIN = "divisible.complete", "counted.policy", "counted.planning"
_SIMPLE, _MBPC, _OAS = "orders.simple", "allocation.mbpc", "oas.policy"
_DEMT, _M_HEFT, _CPA = "published.demt", "published.m_heft", "published.cpa"


def _completed(engine_of: Callable[[], SolveFunction], counted: str = "") -> SolveFunction:
    """A policy from an engine that sees the snapshot at time 0 (`relative_time`).

    What the engine plans, divisible jobs fill. A queue that needs counted resources is planned
    under the name `counted` in another way (`coalloc.policies.counted`), if there is one.
    """

    def solve(
        problem: Snapshot,
        options: Mapping[str, Any],
        budget: Budget,
        on_incumbent: OnIncumbent | None = None,
    ) -> Plan:
        engine = engine_of()
        if counted and needs_counting(problem):
            engine = partial(_module(_COUNTED).solve, counted)
        if budget.live and "workflow_links" in options:  # what is started loads real links
            options = {**options, "workflow_links": "booked"}
        now, problem = problem.time, from_now(problem)
        budget = replace(budget, origin=budget.origin + now)

        def tell(plan: Plan) -> None:
            if on_incumbent is not None:
                on_incumbent(at_time(plan, now))

        if any(isinstance(job, DivisibleJob) for job in problem.queue):
            budget = replace(budget, node_entries=None)  # its pieces fill what is left of nodes
            completing = _module(_COMPLETING).Completing(problem, tell)
            plan: Plan = completing.last(engine(problem, options, budget, completing.tell))
        else:
            plan = engine(problem, options, budget, None if on_incumbent is None else tell)
        return at_time(plan, now)

    return solve


def _module(name: str) -> Any:
    return import_module(f"coalloc.policies.{name}")


def _row(name: str, module: str, options: type[Options], doc: str = "") -> Policy:
    """A policy whose module is loaded on the first call; its table SOLVERS holds the function.

    Without `doc`, what the policy does is the docstring of its options, but for the full stop.
    """
    solve = _completed(lambda: _module(module).SOLVERS[name], "" if module == _PLAIN else name)
    said = (options.__doc__ or "").rstrip(".")
    said = said if said[:2].isupper() else said[:1].lower() + said[1:]
    return Policy(name=name, solve=solve, doc=doc or said, options=options)


def _easy(name: str, doc: str) -> Policy:
    return _row(name, _SIMPLE, easy_options(name), doc)


FOR_SITES: tuple[Policy, ...] = (
    _row("auto", "auto.policy", AutoOptions, "best of the engines for what is queued"),
    _row("fcfs", _SIMPLE, StrictOptions, "arrival order, no job overtakes"),
    _row("sjf", _SIMPLE, StrictOptions, "fewest processes first, no job overtakes"),
    _row("bjf", _SIMPLE, StrictOptions, "most processes first, no job overtakes"),
    _row("spt", _SIMPLE, StrictOptions, "shortest base time first, no job overtakes"),
    _row("lpt", _SIMPLE, StrictOptions, "longest base time first, no job overtakes"),
    _row("fpfs", _SIMPLE, CommonOptions, "arrival order, whatever fits starts"),
    _easy("easy", "backfilling that keeps the first job's reservation"),
    _easy("easy-spf", "EASY, the shortest estimate first; a day's wait goes before"),
    _easy("easy-saf", "EASY, the smallest area first; a day's wait goes before"),
    _easy("easy-f1", "EASY by the learnt formula F1, log10(r) n + 870 log10(s); the same"),
    _easy("easy-f2", "EASY by the learnt formula F2, sqrt(r) n + 25600 log10(s); the same"),
    _easy("easy-f3", "EASY by the learnt formula F3, r n + 6860000 log10(s); the same"),
    _easy("easy-f4", "EASY by the learnt formula F4, r sqrt(n) + 530000 log10(s); the same"),
    _easy("easy-wfp3", "EASY, the largest (wait / r)^3 n first; the same"),
    _easy("easy-unicef", "EASY, the largest wait / (log2(n) r) first; the same"),
    _row("conservative", _SIMPLE, CommonOptions, "backfilling that keeps every job's reservation"),
    _row("oas", _OAS, OasOptions, "order and allocation searched together, with bound and gap"),
    _row("oas-balanced", _OAS, CommonOptions, "one pass: heavy processing on powerful nodes"),
    _row("bicriteria", "moldable.bicriteria.policy", BicriteriaOptions),
    _row("workflow", "workflow.search.engine", WorkflowPolicyOptions),
    _row("plain", _PLAIN, Options, "EASY with estimates, without a compiler"),
)

PUBLISHED: tuple[Policy, ...] = (
    _row("easy-sjbf", _SIMPLE, SjbfOptions),
    _row("oas-slots", "published.oas_slots", published.SlotsOptions),
    _row("mbpc", _MBPC, published.MbpcOptions),
    _row("mbpc-published", _MBPC, published.PublishedOptions),
    _row("pas", _MBPC, published.MbpcOptions, "package allocation: what fits now, placed by mbpc"),
    _row("cbs", "published.blind", published.CbsOptions, "large chunks of jobs in one cluster"),
    _row("jpn", "published.blind", published.JpnOptions),
    _row("demt", _DEMT, published.DemtOptions),
    _row("bicriteria-batch", "published.batch", published.BicriteriaBatchOptions),
    _row("gang", _DEMT, CommonOptions, "one job at a time on all it can use, by weight / time"),
    _row("sequential", _DEMT, CommonOptions, "every job on its fewest processes, longest first"),
    _row("list-shelf", _DEMT, CommonOptions, "two-shelf allotments, large shelf first"),
    _row("list-lptf", _DEMT, CommonOptions, "two-shelf allotments, largest weight x time first"),
    _row("list-saf", _DEMT, CommonOptions, "two-shelf allotments, smallest area first"),
    _row("list-smith", _DEMT, CommonOptions, "two-shelf allotments, largest weight / time first"),
    _row("mca-heft", "published.mca_heft", published.McaHeftOptions),
    _row("m-heft", _M_HEFT, published.MappedOptions),
    _row("m-heft-imp", _M_HEFT, published.MHeftImpOptions),
    _row("m-heft-eff", _M_HEFT, published.MHeftEffOptions),
    _row("m-heft-max", _M_HEFT, published.MHeftMaxOptions),
    _row("hcpa", _CPA, published.CpaOptions, "workflows by critical path and area, then a list"),
    _row("mcpa", _CPA, published.CpaOptions, "the same, with no level wider than the platform"),
    _row(
        "two-shelf",
        "moldable.two_shelf",
        CommonOptions,
        "moldable jobs on two shelves, within 3/2 of the least makespan",
    ),
)
"""Those that are there to compare with; a site has no reason to run them."""

POLICIES: Mapping[str, Policy] = {policy.name: policy for policy in (*FOR_SITES, *PUBLISHED)}
"""Every policy of coalloc's own that the daemon, ``solve`` and ``simulate`` know."""


def found() -> Mapping[str, EntryPoint]:
    """The entry points by name; of one that is declared twice, the first."""
    out: dict[str, EntryPoint] = {}
    for entry in entry_points(group=GROUP):
        out.setdefault(entry.name, entry)
    return out


def foreign_names() -> tuple[str, ...]:
    """Policies that other packages declare; none of their code is loaded."""
    return tuple(name for name in found() if name not in POLICIES)


def lookup(name: str) -> Policy:
    """Return the policy of this name, of coalloc's own or of another package.

    Raises `InputError` that lists the names if there is none, or if its package cannot be loaded.
    """
    policy = POLICIES.get(name)
    if policy is not None:
        return policy
    entry = found().get(name)
    if entry is None:
        names = ", ".join((*POLICIES, *foreign_names()))
        raise InputError("policy", f"there is no policy {name!r}; there are {names}")
    made = load(entry)
    return replace(made, solve=_completed(lambda: made.solve))


def load(entry: EntryPoint) -> Policy:
    """Import the policy that an entry point names.

    Raises `InputError`, whatever goes wrong in the package, in one line.
    """
    where = f"policy {entry.name} of {package_of(entry)}"
    try:
        policy = entry.load()
    except Exception as error:
        raise InputError(where, f"cannot be loaded: {type(error).__name__}: {error}") from error
    if not isinstance(policy, Policy):
        what = f"{entry.value} is {type(policy).__name__}, not a coalloc.policies.base.Policy"
        raise InputError(where, what)
    if policy.name != entry.name:
        raise InputError(where, f"calls itself {policy.name!r}")
    return replace(policy, package=package_of(entry))


def package_of(entry: EntryPoint) -> str:
    """The distribution that declares an entry point, with its version."""
    return f"{entry.dist.name} {entry.dist.version}" if entry.dist else "an unknown package"
