"""An explanation in people's words."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import inf

from coalloc.model.formats.nodeset import fold
from coalloc.model.jobs import DivisibleJob, Job, RigidJob
from coalloc.model.platform import NodeState
from coalloc.model.shape import ONE_SLOT
from coalloc.model.snapshot import Snapshot
from coalloc.policies.explain.changes import WhyChange
from coalloc.policies.explain.explanation import (
    Constraint,
    Counterfactual,
    Explanation,
    Short,
    Slots,
)

LISTED = 6
"""Names in a sentence; more are counted."""

Instant = Callable[[float], str]


def _amount(name: str, count: int) -> str:
    if name == "memory_mb":
        return f"{count / 1024:.3g} GiB"
    return f"{count} slot{'' if count == 1 else 's'}" if name == "slots" else f"{count} {name}"


SCOPES = {"per_proc": "per process", "per_node": "on each node", "per_job": "in all"}
WHOLE = {"all_memory": "all memory of its nodes", "exclusive": "nodes of its own"}


SAID: Mapping[str, tuple[str, str]] = {
    "release": ("it is held", "if it were released"),
    "dependency": ("it waits for {jobs} to end", "if it did not wait for {jobs}"),
    "tasks": ("it waits for its {tasks} to end", "if its {tasks} ended now"),
    "earliest": ("it may not start before {when}", "if it might start at once"),
    "order": ("{jobs} {go} first", "if {jobs} had not gone first"),
    "running": ("{jobs} still {run}", "if {jobs} ended now"),
    "link": ("", "without the limit on the {links} of {names}"),
    "reachable": ("{clusters} cannot be reached", "if {clusters} could be reached"),
    "nodes": ("", "if {nodes} were up and free"),
    "reservation": ("{reservations} keeps nodes for others", "without {reservations}"),
    "features": ("it asks for {names}", "without asking for {names}"),
    "memory": (
        "it asks for {before:g} MiB per process",
        "with {after:g} instead of {before:g} MiB per process",
    ),
    "cpus": ("", "with {after:g} instead of {before:g} CPUs per process doing the same work,"),
    "shape": ("it asks for {part}", "{less} {part}"),
    "clusters": ("it may use only {allowed}", "on {more} instead of only {allowed}"),
    "bandwidth": ("", "with {after:g} instead of {before:g} Gbit/s per process"),
    "split": ("it may not be split over clusters", "if it could be split over clusters"),
    "slots": ("", "with {after:g} more slots of power {power:g} on {names}"),
}
"""Of each change the constraint that it relaxes, and what would be."""


def _part(change: WhyChange) -> str:
    """Part of a shape, in words."""
    key, *name = change.names
    if key in WHOLE:
        return WHOLE[key]
    return f"{change.before:g} {name[0] if name else 'MiB'} {SCOPES.get(key, 'on each node')}"


def span(seconds: float) -> str:
    """A length of time: 40 s, 12 min, 1 h 20 min, 2 d 3 h."""
    if seconds < 59.5:
        return f"{seconds:.2g} s" if seconds < 9.95 else f"{seconds:.0f} s"
    minutes = round(seconds / 60.0)
    if minutes < 60:
        return f"{minutes} min"
    hours, left = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {left} min" if left else f"{hours} h"
    days, rest = divmod(hours, 24)
    return f"{days} d {rest} h" if rest else f"{days} d"


def listed(names: Sequence[str], one: str = "") -> str:
    """Names as in a sentence: job 7; jobs 7, 8 and 9; 40 jobs (7, 8, 9, 10, 11, 12, ...)."""
    word = one if len(names) == 1 or not one else f"{one}s"
    if len(names) > LISTED:
        return f"{len(names)} {word or 'names'} ({', '.join(names[:LISTED])}, ...)"
    text = " and ".join(filter(None, (", ".join(names[:-1]), names[-1]))) if names else "none"
    return f"{word} {text}".strip()


def lines(
    explanation: Explanation, snapshot: Snapshot, instant: Instant | None = None
) -> list[str]:
    """Sentences for a terminal, the most important first.

    `instant`: shows a time of the snapshot's axis; by default relative to the snapshot's time.
    """
    return _Words(explanation, snapshot, instant).all()


class _Words:
    def __init__(
        self, explanation: Explanation, snapshot: Snapshot, instant: Instant | None
    ) -> None:
        self.made, self.snapshot = explanation, snapshot
        self.job: Job = next(job for job in snapshot.queue if job.id == explanation.job)
        self.running = {job.id for job in snapshot.running}
        self._instant = instant

    def at(self, time: float) -> str:
        if time <= self.made.time:
            return "now"
        if self._instant is not None:
            return f"at {self._instant(time)}"
        return f"in {span(time - self.made.time)}"

    def until(self, time: float) -> str:
        if self._instant is not None:
            return f"until {self._instant(time)}"
        return f"for {span(time - self.made.time)}"

    def all(self) -> list[str]:
        made = self.made
        out = [self._headline()]
        if made.reason == "starts_now":
            return out
        if isinstance(self.job, DivisibleJob):
            how = "its chunks take what the other jobs leave idle, and delay none of them"
            return out if made.start is None else [*out, how]
        if made.slots is not None and not self._gated():
            out.append(self._slots(made.slots))
        if made.several:
            words = "; ".join(self._bound(c) for c in made.constraints)
            out.append(f"several things keep it, and none alone: {words}")
        else:
            out += [self._single(c) for c in made.constraints if not self._is_said(c)]
        if made.counterfactual is not None:
            out.append(self._would(made.counterfactual))
        elif made.complete:
            out.append("no single change that was tried helps")
        if not made.complete:
            out.append(f"not all was tried in time ({made.tried} changes were)")
        return out

    def _is_said(self, constraint: Constraint) -> bool:
        """Another line says the same: that on slots, or that on the jobs it depends on."""
        names = set(constraint.change.names)
        return constraint.kind == "slots" or (
            constraint.kind == "running"
            and any(
                c.kind == "dependency" and names <= set(c.change.names)
                for c in self.made.constraints
            )
        )

    def _gated(self) -> bool:
        return any(c.kind in ("hold", "dependency", "tasks") for c in self.made.constraints)

    def _headline(self) -> str:
        made = self.made
        if made.start is None or made.end is None:
            if made.reason == "held":
                return "is held, so it is not planned"
            words = {"infeasible": "can never run", "insufficient": "cannot run now"}
            text = words.get(made.reason, f"has no start ({made.reason.replace('_', ' ')})")
            return f"{text}: {made.detail}" if made.detail else text
        when = self.at(made.start)
        return f"starts {when}, ends {self.at(made.end)} as {made.policy} plans"

    def _slots(self, slots: Slots) -> str:
        where = " on one cluster" if slots.single else ""
        noun = "slot" if self.job.shape == ONE_SLOT else "place"
        what = f"{slots.needed} {noun}{'s' if slots.needed > 1 else ''} of power >= {slots.power:g}"
        for feature in self.job.features:
            what += f" with {feature}"
        if self.job.memory_mb_per_proc:
            what += f" with {self.job.memory_mb_per_proc} MiB each"
        if slots.free_now >= slots.needed and slots.short_at is None:
            return f"the {what} it asks for are free now: it is not for lack of them"
        text = f"waits for {what}{where}: "
        home = f" on {slots.clusters[0]}" if slots.single else ""
        are = "is" if slots.free_now == 1 else "are"
        text += f"{slots.free_now} {are} free now{home}"
        if slots.free_now < slots.needed and self.made.start is not None:
            text += f", {slots.free_then} then"
            if slots.enders:
                verb = "ends" if len(slots.enders) == 1 else "end"
                text += f" when {listed(slots.enders, 'job')} {verb}"
        elif slots.short_at is not None:
            text += f", but only {self.until(slots.short_at)}, when {self._comers(slots)}"
        if slots.weaker_now > 0 and slots.free_now < slots.needed:
            text += f"; {slots.weaker_now} weaker ones are free now"
        return text if slots.short is None else f"{text}; {self._short(slots.short)}"

    def _short(self, short: Short) -> str:
        """The short resource: what the nodes have that lack only it, and how much of it."""
        nodes = f"{short.but_for_it} of {short.nodes} nodes"
        if short.fit:
            nodes = f"{short.fit} of {short.nodes} nodes would do, {short.but_for_it} more"
        needed = f"; {short.wanted} {'is' if short.wanted == 1 else 'are'} needed"
        if self.job.shape.exclusive and short.name == "slots":
            return f"{short.fit} of {short.nodes} nodes are empty{needed}"
        beside = listed([_amount(*each) for each in short.beside.items()])
        have = f"have {beside} free, with at most" if short.beside else "have at most"
        free = _amount(short.name, short.free).partition(" ")[0]
        return f"{nodes} {have} {free} of {_amount(short.name, short.needed)}{needed}"

    def _comers(self, slots: Slots) -> str:
        """Jobs and reservations that begin on what is free now, in words."""
        kept = [name for name in slots.short_by if name.startswith("reservation ")]
        jobs = [name for name in slots.short_by if name not in kept]
        words = ([listed(jobs, "job")] if jobs else []) + kept
        verb = "begins" if len(slots.short_by) == 1 else "begin"
        return f"{' and '.join(words)} {verb}"

    def _single(self, constraint: Constraint) -> str:
        assert constraint.start is not None
        assert constraint.end is not None
        what = self.made.counterfactual
        if what is not None and what.changes == (constraint.change,):
            return self._bound(constraint)  # the last line says what it would gain
        return f"{self._bound(constraint)}: {self._gain(constraint.start, constraint.end)}"

    def _bound(self, constraint: Constraint) -> str:
        match constraint.kind:
            case "link":
                return self._link(constraint)
            case "nodes":
                return self._closed(constraint.change.names)
            case kind:
                text = SAID.get(constraint.change.kind, ("", ""))[0] or f"too few {kind}"
                return self._filled(text, constraint.change)

    def _filled(self, text: str, change: WhyChange) -> str:
        """A text of `SAID` about a change."""
        names, allowed, is_one = change.names, self.job.clusters or (), len(change.names) == 1
        return text.format(
            names=listed(names),
            jobs=listed(names, "job"),
            tasks=listed(names, "task"),
            clusters=listed(names, "cluster"),
            reservations=listed(names, "reservation"),
            nodes=fold(names) if change.kind == "nodes" else "",
            links="link" if is_one else "links",
            go="goes" if is_one else "go",
            run="runs" if is_one else "run",
            when=self._when(change.before),
            part=_part(change) if change.kind == "shape" else "",
            less=f"with {change.after:g} instead of" if change.after else "without",
            allowed=listed(allowed),
            more=listed((*allowed, *names)),
            before=change.before,
            after=change.after,
            power=change.power,
        )

    def _closed(self, names: Sequence[str]) -> str:
        wanted, states = set(names), set()
        for _, node in self.snapshot.nodes():
            if node.name in wanted:
                state = "not free yet" if node.state is NodeState.UP else str(node.state)
                states.add("drained" if node.state is NodeState.DRAINING else state)
        verb = "is" if len(names) == 1 else "are"
        return f"{fold(names)} {verb} {' or '.join(sorted(states))}"

    def _when(self, time: float | None) -> str:
        if time is None:
            return "later"
        return self._instant(time) if self._instant is not None else self.at(time)

    def _link(self, constraint: Constraint) -> str:
        use = constraint.link
        if use is None or len(constraint.change.names) > 1:
            names = constraint.change.names
            whose = "link" if len(names) == 1 else "links"
            return f"the {whose} of {listed(names)} cannot carry it"
        left = f"{max(use.free, 0.0):.3g} of {use.capacity:.3g} Gbit/s left"
        text = f"the link of {use.cluster} has {left}"
        if use.full_until is not None and use.full_until > use.at:
            text += f" {self.until(use.full_until)}"
        return f"{text}, and it needs {use.needed:.3g} there {self.at(use.at)}"

    def _gain(self, start: float, end: float) -> str:
        made = self.made
        text = f"else it would start {self.at(start)}"
        if made.end is not None and end < made.end:
            text += f" and end {span(made.end - end)} sooner"
        return text

    def _would(self, what: Counterfactual) -> str:
        made = self.made
        words = " and ".join(self._if(change) for change in what.changes)
        text = f"{words} it would start {self.at(what.start)}"
        if made.end is not None:
            gained = made.end - what.end
            sooner = "sooner" if gained >= 0 else "later"
            if abs(gained) > 1e-3:
                text += f" and end {span(abs(gained))} {sooner}"
        elif what.end < inf:
            text += f" and end {self.at(what.end)}"
        return text

    def _if(self, change: WhyChange) -> str:
        if change.kind == "procs":
            return self._procs(change)
        return self._filled(SAID[change.kind][1], change)

    def _procs(self, change: WhyChange) -> str:
        after = int(change.after or 0)
        noun = "process" if after == 1 else "processes"
        if isinstance(self.job, RigidJob):
            return f"with {after} {noun} doing the same work,"
        return f"with at most {after} {noun}"
