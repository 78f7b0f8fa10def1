"""Whether jobs that start now find nodes and links at given levels of power, decided exactly.

A job's run time depends on its level only: the power that none of its nodes is below. Given a level
for each job, all that is left is a number of processes per job and cluster. A *table* holds a set
of such counts, (t_1, ..., t_J) of one cluster or of several together, as the bits of one whole
number; the digits of a bit's index are the counts. A cluster's table is cut out by its nodes and
its link, tables of clusters are summed, and the jobs fit if the sum holds (tau_1, ..., tau_J).

Notes
-----
*Nodes.* All jobs start at one instant, and the processes of a job are alike. So by Hall's theorem a
cluster has nodes for (t_1, ..., t_J) if and only if for each set of jobs the sum of their counts is
at most the slots that any of them may use. A cluster's limits depend on the levels only through
the ranks of the levels among its powers: tables are kept by ranks.

*Links.* Sums of BW_{j,k} are compared as whole numbers, by the loads' common denominator. Where
a threshold lets links saturate, a job has a second level: the SC that none of the links it loads is
above. The values are those that a link can reach.

*Complexity.* A sum of two tables takes at most S operations on numbers of S bits, where S is the
product of all (tau_j + 1); equal parts of a table are worked on once.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from fractions import Fraction
from math import floor, inf, lcm, prod

from coalloc.policies.allocation.placing import Allocation
from coalloc.policies.allocation.scene import Scene, load

KEPT_BYTES = 128 * 2**20
"""Tables are forgotten when they take more than this."""

Ranks = tuple[int, ...]
"""Of one cluster: per job the rank of its level of power, then per job the limit of the link."""
Costs = Sequence[Mapping[int, int]]
"""Of each job, what each allowed count costs."""


def can_count(scene: Scene, jobs: Sequence[int]) -> bool:
    """Whether counts per cluster tell all: no shared memory, no run too long for a reservation."""
    needs_memory = any(scene.candidates[j].memory_mb > 0 for j in jobs)
    for j in jobs:
        job = scene.candidates[j]
        weakest = min((scene.classes[c].power for c in job.room), default=1.0)
        longest = job.seconds(weakest, scene.threshold)
        for c in job.room:
            one = scene.classes[c]
            if needs_memory and one.slots > 1 and one.memory_mb < inf:
                return False
            if one.closes_at and not scene.admits(job, c, longest):
                return False
    return True


def states(scene: Scene, jobs: Sequence[int]) -> int:
    """Bits of a table of these jobs."""
    return prod(scene.candidates[j].procs + 1 for j in jobs)


class Counts:
    """Tables for some candidates of a scene for which `can_count` holds; all of these must start.

    With `below`, jobs have levels of SC below 1 as well: equation (7) as printed. `slowdowns` are
    the levels of SC, rising; `unloaded` is that of a job that loads no link.
    """

    def __init__(self, scene: Scene, jobs: Sequence[int], *, below: bool = False) -> None:
        self.scene, self.jobs = scene, tuple(jobs)
        self.procs = [scene.candidates[j].procs for j in jobs]
        self.strides = [prod(p + 1 for p in self.procs[n + 1 :]) for n in range(len(jobs))]
        self.all = prod(p + 1 for p in self.procs) - 1
        self.unloaded = 0.0 if below else 1.0
        rooms = {j: scene.candidates[j].room for j in jobs}
        used = [
            k
            for k, own in enumerate(scene.of_cluster)
            if any(c in rooms[j] for c in own for j in jobs)
        ]
        self.powers = {
            k: sorted({scene.classes[c].power for c in scene.of_cluster[k]}) for k in used
        }
        # of many shares `allocation` finds the one that gives the first job most of the first
        self.clusters = sorted(used, key=lambda k: -self.powers[k][-1])
        self._read_links(below)
        self._limits: dict[tuple[int, int], int] = {}
        self._kept: dict[tuple[int, int, tuple[Ranks, ...]], int] = {}
        self._bytes = 0

    def fits(self, levels: Sequence[float], slows: Sequence[int] = ()) -> bool:
        """Whether all jobs find nodes and links at their levels.

        A level is the power that none of a job's nodes may be below. `slows` are places in
        `slowdowns` of the SC that each may not exceed; by default the last.
        """
        ranks = self._ranks(levels, slows)
        if not ranks:
            return False
        if len(ranks) == 1:
            return bool(self._table(0, 1, ranks) >> self.all & 1)
        half = len(ranks) // 2
        first = self._table(0, half, ranks[:half])
        return bool(first & self._mirrored(self._table(half, len(ranks), ranks[half:])))

    def allocation(self, levels: Sequence[float], slows: Sequence[int] = ()) -> Allocation:
        """Nodes for all jobs at levels that fit."""
        ranks, uses = self._ranks(levels, slows), [dict[int, int]() for _ in self.jobs]
        for k, counts in self._shares(0, len(ranks), ranks, self.all):
            matched = self._match(k, levels, counts)
            for mine, own in zip(uses, matched, strict=True):
                mine.update(own)
        return Allocation(jobs=self.jobs, uses=tuple(uses))

    def _ranks(self, levels: Sequence[float], slows: Sequence[int]) -> tuple[Ranks, ...]:
        slows = slows or [-1] * len(self.jobs)
        return tuple(
            (
                *(bisect_left(self.powers[k], level) for level in levels),
                *(self._room_on[k][slow] for slow in slows),
            )
            for k in self.clusters
        )

    def _mirrored(self, table: int) -> int:
        """Difference of each of its counts to tau, whose index is the highest."""
        return int(f"{table:0{self.all + 1}b}"[::-1], 2)

    def _table(self, low: int, high: int, ranks: tuple[Ranks, ...]) -> int:
        """Counts that the clusters from `low` to before `high` hold together."""
        key = (low, high, ranks)
        found = self._kept.get(key)
        if found is None:
            half = len(ranks) // 2
            found = (
                self._sum(
                    self._table(low, low + half, ranks[:half]),
                    self._table(low + half, high, ranks[half:]),
                )
                if half
                else self._cluster(low, ranks[0])
            )
            self._bytes += self.all // 8 + 256
            if self._bytes > KEPT_BYTES:
                self._kept.clear()
                self._bytes = 0
            self._kept[key] = found
        return found

    def _cluster(self, place: int, ranks: Ranks) -> int:
        """Counts that one cluster's nodes and link hold.

        Of the sets of jobs in Hall's condition, those count that are all the jobs whose classes lie
        among the classes of some.
        """
        k = self.clusters[place]
        half = len(self.jobs)
        users = self._users(k, [[*self.powers[k], inf][rank] for rank in ranks[:half]])
        unions = {0}
        for classes in set(users):
            unions |= {one | classes for one in unions}
        table = self._link(ranks[half:])
        for union in sorted(unions):
            jobs = sum(1 << n for n, classes in enumerate(users) if classes & ~union == 0)
            own = enumerate(self.scene.of_cluster[k])
            slots = sum(self.scene.classes[c].capacity for n, c in own if union >> n & 1)
            table &= self._at_most(jobs, slots)
        return table

    def _users(self, k: int, levels: Sequence[float]) -> list[int]:
        """Per job the classes of a cluster that it may use at its level, as bits."""
        classes, own = self.scene.classes, self.scene.of_cluster[k]
        rooms = [self.scene.candidates[j].room for j in self.jobs]
        return [
            sum(1 << n for n, c in enumerate(own) if c in room and classes[c].power >= level)
            for room, level in zip(rooms, levels, strict=True)
        ]

    def _at_most(self, jobs: int, slots: int) -> int:
        """Counts of which those of some jobs sum to no more than the slots."""
        most = sum(p for n, p in enumerate(self.procs) if jobs >> n & 1)
        key = (jobs, min(slots, most))
        if key not in self._limits:
            costs = [
                {t: t * (jobs >> n & 1) for t in range(p + 1)} for n, p in enumerate(self.procs)
            ]
            self._limits[key] = self._within(costs, key[1])
        return self._limits[key]

    def _within(self, costs: Costs, limit: int) -> int:
        """The table of all counts whose costs sum to no more than a limit."""
        known: dict[tuple[int, int], int] = {}

        def rest(n: int, left: int) -> int:
            if n == len(costs):
                return 1
            key = (n, left)
            if key not in known:
                known[key] = sum(
                    rest(n + 1, left - cost) << (t * self.strides[n])
                    for t, cost in costs[n].items()
                    if cost <= left
                )
            return known[key]

        return rest(0, limit)

    def _read_links(self, below: bool) -> None:
        """Equation (5) as whole numbers, the slowdowns (7), and what links may carry at each."""
        of = [self.scene.candidates[j] for j in self.jobs]
        counts = [range(job.procs + 1) if job.splits else (0, job.procs) for job in of]
        loads = [{t: load(job, t) for t in own} for job, own in zip(of, counts, strict=True)]
        scale = lcm(*(value.denominator for own in loads for value in own.values()))
        self._loads = [{t: int(value * scale) for t, value in own.items()} for own in loads]
        most = sum(max(own.values()) for own in self._loads)
        threshold = self.scene.threshold
        reached = self._reached(scale, below) if below or threshold > 1.0 else []
        lower = [ratio for ratio in reached if ratio < 1]
        above = [ratio for ratio in reached if ratio >= 1]
        self.slowdowns = [
            *(float(ratio) for ratio in lower),
            1.0,
            *(min(float(ratio), threshold) for ratio in above),
        ]
        self._room_on: dict[int, list[int]] = {}
        for k in self.clusters:
            capacity, limit = self.scene.capacity[k], self.scene.limit(k)
            if capacity is None or limit is None:
                self._room_on[k] = [most] * len(self.slowdowns)
                continue
            once = limit * scale
            free = [(ratio * capacity - self.scene.loaded[k]) * scale for ratio in reached]
            limits = [
                *(min(max(one, Fraction(0)), once) for one in free[: len(lower)]),
                once,
                *(max(one, once) for one in free[len(lower) :]),
            ]
            self._room_on[k] = [min(floor(one), most) for one in limits]
        self._known_links: dict[int, int] = {}
        still = [{t: 0 for t, own in mine.items()} for mine in self._loads]
        self._idle = [
            self._within([*still[:n], {t: 0 for t, a in mine.items() if not a}, *still[n + 1 :]], 0)
            for n, mine in enumerate(self._loads)
        ]

    def _reached(self, scale: int, below: bool) -> list[Fraction]:
        """The ratios of load to capacity that links can have, rising; above 1 unless `below`."""
        sums = {0}
        for own in self._loads:
            sums = {one + cost for one in sums for cost in set(own.values())}
        out = {Fraction(0)} if below else set[Fraction]()
        for k in self.clusters:
            capacity, limit = self.scene.capacity[k], self.scene.limit(k, self.scene.threshold)
            once = self.scene.limit(k)
            if capacity and limit is not None and once is not None:
                least = Fraction(-1) if below else once
                reached = (Fraction(one, scale) for one in sums if one or below)
                between = (one for one in reached if least < one <= limit)
                out |= {(self.scene.loaded[k] + one) / capacity for one in between}
        return sorted(out)

    def _link(self, limits: Ranks) -> int:
        """Equations (6), (7), (10): a link is within the limit of every job that loads it."""
        for limit in set(limits) - self._known_links.keys():
            self._known_links[limit] = self._within(self._loads, limit)
        table = self._known_links[max(limits)]
        for limit, idle in zip(limits, self._idle, strict=True):
            if limit < max(limits):
                table &= self._known_links[limit] | idle
        return table

    def _sum(self, one: int, other: int) -> int:
        """All sums of counts of two tables that are nowhere above tau."""
        known: dict[tuple[int, int], int] = {}

        def moved(n: int, part: int) -> int:
            """`other` moved by all counts of the jobs from n on that a part of `one` holds."""
            if n == len(self.procs):
                return other
            key = (n, part)
            if key not in known:
                out, stride, t = 0, self.strides[n], 0
                chunk = (1 << stride) - 1
                while part:
                    if part & chunk:
                        few = self._at_most(1 << n, self.procs[n] - t)
                        out |= (moved(n + 1, part & chunk) & few) << (t * stride)
                    part >>= stride
                    t += 1
                known[key] = out
            return known[key]

        return moved(0, one)

    def _shares(
        self, low: int, high: int, ranks: tuple[Ranks, ...], target: int
    ) -> list[tuple[int, list[int]]]:
        """Counts per cluster that sum to those of an index."""
        if high - low == 1:
            return [(self.clusters[low], self._digits(target))]
        half = len(ranks) // 2
        left, right = ranks[:half], ranks[half:]
        first = self._table(low, low + half, left)
        second = self._table(low + half, high, right)
        wanted = self._digits(target)
        while first:
            index = first.bit_length() - 1
            if index <= target and second >> (target - index) & 1:
                mine = self._digits(index)
                if all(a <= b for a, b in zip(mine, wanted, strict=True)):
                    rest = self._shares(low + half, high, right, target - index)
                    return [*self._shares(low, low + half, left, index), *rest]
            first ^= 1 << index
        raise ValueError("the jobs do not fit at these levels")

    def _digits(self, index: int) -> list[int]:
        """The counts of an index."""
        return [index // s % (p + 1) for s, p in zip(self.strides, self.procs, strict=True)]

    def _match(
        self, k: int, levels: Sequence[float], counts: Sequence[int]
    ) -> list[dict[int, int]]:
        """Processes per class of each job in one cluster: unit flows along shortest paths."""
        own, users = self.scene.of_cluster[k], self._users(k, levels)
        free = {c: self.scene.classes[c].capacity for c in own}
        weakest = sorted(range(len(own)), key=lambda n: self.scene.classes[own[n]].power)
        may = [[own[n] for n in weakest if who >> n & 1] for who in users]
        uses: list[dict[int, int]] = [{} for _ in counts]
        for job, count in enumerate(counts):
            for _ in range(count):
                _augment(job, uses, free, may)
        return [{c: t for c, t in mine.items() if t} for mine in uses]


def _augment(
    job: int, uses: list[dict[int, int]], free: dict[int, int], may: Sequence[Sequence[int]]
) -> None:
    """Give a job one more slot, where others may have to change classes."""
    came: dict[int, tuple[int, int | None]] = {}
    queue: list[tuple[int, int | None]] = [(job, None)]
    for n, before in queue:
        for c in may[n]:
            if c in came:
                continue
            came[c] = (n, before)
            if free[c]:
                free[c] -= 1
                _shift(c, came, uses)
                return
            queue += [(other, c) for other, mine in enumerate(uses) if mine.get(c)]
    raise ValueError("no nodes for these counts")


def _shift(
    last: int, came: Mapping[int, tuple[int, int | None]], uses: list[dict[int, int]]
) -> None:
    """Move each process of a path one class on."""
    c: int | None = last
    while c is not None:
        n, before = came[c]
        uses[n][c] = uses[n].get(c, 0) + 1
        if before is not None:
            uses[n][before] -= 1
        c = before
