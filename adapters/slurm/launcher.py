"""Launches parts on a Slurm cluster: each on exactly its nodes, held at a barrier until told to go.

One runner process for each part, on the executor's machine (see `slurm.part_job`), does all the
talking to Slurm: no call here waits for slurmctld, but for the first sight of a node's name.
Runners outlive the executor. One that has died is replaced as soon as it is missed. A claim that
waits in Slurm's queue has none; the readings say how it is (`slurm.turns`).
"""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from pathlib import Path

from coalloc.adapters.base import AdapterError, ClaimRefusedError
from coalloc.adapters.batch.launcher import (
    BatchLauncher,
    avoided,
    check_known,
    login_of,
    plain_counts,
    site_of_part,
    user_of,
)
from coalloc.adapters.batch.token import parse_comment
from coalloc.adapters.part_folder import PartFolder
from coalloc.adapters.runner import durable
from coalloc.adapters.runner.batch.files import AT, UNCONFIRMED
from coalloc.adapters.runner.command import BatchError
from coalloc.adapters.runner.grant import CLAIM, kept
from coalloc.adapters.slurm.commands import Slurm
from coalloc.adapters.slurm.part_commands import ALIVE, SlurmSite
from coalloc.adapters.slurm.reading import ENDLESS_S, Holding, SlurmFacts
from coalloc.adapters.slurm.settings import SlurmSettings
from coalloc.adapters.slurm.share import Share
from coalloc.adapters.slurm.turns import Turns
from coalloc.model.formats.nodeset import fold, named_nodes
from coalloc.model.sites.batch_options import NAMES
from coalloc.model.sites.parts import PartKey, PartReport, PartSpec, PartState
from coalloc.model.sites.site_rules import Asking, judged
from coalloc.model.values import replace

CHANGED = frozenset({"partition_closed", "not_permitted", "node_unavailable", "unknown_node"})
"""Refusals after which partitions and reservations are to be asked for anew."""
LEAD_S, MOST_LEAD_S = 0.5, 8.0
"""Nodes that are told by files hear so long before of a start, seconds; twice as long after one
that they did not confirm in time."""
KEPT_CLAIMS = 5000
"""Claims of ended parts in memory and, at least, on disk: the newest."""


class SlurmLauncher(BatchLauncher):
    """Claims nodes of a Slurm cluster and starts processes on them; on its `share` we go first."""

    runner = "slurm.part_job:SlurmPart"
    honours = frozenset(NAMES)

    def __init__(
        self,
        settings: SlurmSettings,
        state_dir: Path,
        share: Share | None = None,
    ) -> None:
        self._settings = settings
        self._slurm = commands_of(settings, state_dir / "rpcs")
        self._share = Share(settings=settings, slurm=self._slurm) if share is None else share
        self._names: frozenset[str] = frozenset()
        self._facts = self._followed = SlurmFacts()
        self._lead_s = LEAD_S
        self._limited: dict[PartKey, float] = {}
        """When a part's limit was changed by order, monotonic seconds."""
        self.refusals = 0
        """Claims that were refused as `CHANGED` says."""
        super().__init__(state_dir)
        self._turns = Turns()
        if settings.start != "salloc":
            self._open_gate(settings)
        self._ledger = Ledger(state_dir / "given_back")

    def learn(self, facts: SlurmFacts) -> None:
        """Be told what a reading says of the cluster; may be called from another thread."""
        self._facts = facts

    def poll(self) -> tuple[PartReport, ...]:
        """Return how every part is; of those that wait, what the last reading says."""
        facts = self._facts
        if facts is not self._followed:
            self._followed = facts
            self._follow_limits(facts)
        for key, report in self._turns.told(self._facts, self._parked, self._parts, self._live):
            if report is None:
                self._wake(key)
            else:
                self._live[key] = report
        return super().poll()

    def limit(self, key: PartKey, limit_s: float) -> None:
        """Change a part's limit in Slurm, by as much as its own; where that is refused, neither."""
        folder = self._parts.get(key)
        number = "" if folder is None else kept(str(folder.path), CLAIM).get("job", "")
        if not number:
            raise AdapterError("its claim is being made; try again")
        old_s, shown_s = self._limit_of(key) or (limit_s, limit_s)
        wanted_s = 60.0 * -int(-(limit_s + max(0.0, shown_s - old_s)) // 60.0)
        try:
            words = (f"JobId={number}", f"TimeLimit={int(wanted_s // 60.0)}")
            self._slurm.run("scontrol", "update", *words)
        except BatchError as error:
            raise AdapterError(str(error)) from error
        self._limited[key] = time.monotonic()
        self._limit(key, {"limit_s": limit_s, "shown_s": wanted_s})

    def _limit_of(self, key: PartKey) -> tuple[float, float] | None:
        """A part's limit, and what Slurm shows of it, if nobody has changed it; None: none."""
        if key not in self._limits:
            path = str(self._parts[key].path)
            claim, own_s = kept(path, CLAIM), kept(path, "spec.json").get("time_limit_s")
            if "asked_s" not in claim:
                return None
            is_limited = own_s is not None and claim["asked_s"] is not None
            own = {"limit_s": own_s, "shown_s": claim["asked_s"]} if is_limited else {}
            self._limits[key] = own
        known = self._limits[key]
        return (known["limit_s"], known.get("shown_s", known["limit_s"])) if known else None

    def _follow_limits(self, facts: SlurmFacts) -> None:
        """Let parts run as long as people have said in Slurm since they were asked for."""
        for entry in facts.queue or ():
            token = parse_comment(entry.comment)
            if token is None or entry.odd or entry.state not in ALIVE:
                continue
            key = PartKey(job=token.job, attempt=token.attempt, part=token.part)
            folder = self._parts.get(key)
            if folder is None or folder.claim != token.claim:
                continue
            shown_s = ENDLESS_S if entry.time_limit is None else entry.time_limit
            known = self._limit_of(key)
            is_older = facts.asked <= self._limited.get(key, float("-inf"))
            if known is not None and shown_s != known[1] and not is_older:
                self._limit(key, {"limit_s": shown_s, "shown_s": shown_s, "told_s": shown_s})

    def go(self, key: PartKey, at: float = 0.0) -> None:
        """Let a part go; where its nodes are told by files, at once, for them to wait."""
        if self._settings.is_by_files and self._keep(key, AT, {"at": at}):
            at = 0.0
        super().go(key, at)

    def _look_at(self, key: PartKey, folder: PartFolder) -> None:
        super()._look_at(key, folder)
        end, live = self._ended.get(key), self._live.get(key)
        self.refusals += end is not None and end.reason in CHANGED
        if end is not None and end.reason == UNCONFIRMED:
            self._lead_s = min(2.0 * self._lead_s, MOST_LEAD_S)
        elif live is not None and live.state is PartState.READY and self._settings.is_by_files:
            self._live[key] = replace(live, lead_s=self._lead_s)

    def given_back(self) -> frozenset[str]:
        """The claims of parts that are over, as tokens name them."""
        return self._ledger.claims

    def _remove(self, key: PartKey) -> None:
        """Also keep in mind that its claim is over."""
        folder = self._parts.get(key)
        super()._remove(key)
        if folder is not None and key not in self._parts:
            self._ledger.add(folder.claim)
            self._limited.pop(key, None)

    def _check_nodes(self, part: PartSpec) -> None:
        if self._settings.whole_jobs and part.size > part.procs:
            why = "the clocks of its nodes differ: only jobs of this cluster alone"
            raise ClaimRefusedError("not_permitted", why)
        if part.batch.passed and part.queue is None:
            why = f"{part.batch.passed[0]} cannot be honoured by a claim that is made at once"
            raise ClaimRefusedError("not_permitted", why)
        is_whole = self._settings.slots == "node" and not part.shape.cpus_per_proc
        wanted = plain_counts(self._settings, part, is_whole=is_whole).keys()
        if not wanted <= self._names:
            self._read_names()
        check_known(wanted, self._names)
        kept = self._share.nodes
        if part.queue is None and kept and not wanted <= kept:
            beyond = fold(wanted - kept)
            raise ClaimRefusedError("nodes_taken", f"{beyond} is not kept for us any more")

    def _read_names(self) -> None:
        try:
            self._names = frozenset(self._slurm.run("sinfo", "-h", "-N", "-a", "-o", "%N").split())
        except BatchError as error:
            raise AdapterError(str(error)) from error

    def _avoided(self, part: PartSpec) -> str:
        """The nodes that a claim which may wait must not get, as Slurm has node sets."""
        found = avoided(self._settings, part, self._names)
        if part.queue is not None and self._settings.only is not None:
            found |= self._names - self._settings.only
        if found:  # what the job excludes itself would be said before, and not count
            found |= named_nodes(part.batch.passed, "exclude")
        return fold(sorted(found)) if found else ""

    def _site(self, part: PartSpec) -> SlurmSite:
        site = self._settings
        own = {
            "partition": site.partition,
            "account": site.account,
            "qos": site.qos,
            "reservation": site.reservation or self._of_share(part),
        }
        asked = own | dict(part.batch.given())
        options = [f"--{name}={value}" for name, value in asked.items() if value]
        options += part.batch.passed
        says_memory = part.shape.memory_mb_per_node or part.shape.all_memory
        share = self._facts.memory_of(map(site.plain, part.nodes)) * max(
            1, part.shape.cpus_per_proc
        )
        return {
            **site_of_part(site, part, options, self._root),
            "files": f".coalloc/{secrets.token_hex(8)}" if site.is_by_files else "",
            "gate": 0 if self.gate is None else self.gate.port,
            "conf": self._slurm.conf,
            "avoid": self._avoided(part),
            "exclusive": site.slots == "node",
            "passed": bool(part.batch.passed),
            "max_time_s": self._longest_s(part),
            "memory_mb": part.memory_mb_per_proc or (0 if says_memory else share),
        }

    def holdings(self) -> dict[str, Holding]:
        """Nodes of parts that have some, by claim; may be called from another thread."""
        found = {}
        for key, folder in tuple(self._parts.items()):
            live = self._live.get(key)
            if key in self._parked or live is None:
                continue
            nodes = (live.nodes or folder.nodes).items()
            plain = {self._settings.plain(name): count for name, count in nodes}
            found[folder.claim] = Holding(plain, folder.shape, folder.memory_mb_per_proc)
        return found

    def _of_share(self, part: PartSpec) -> str:
        wanted = {self._settings.plain(name) for name in part.nodes}
        return self._share.name if part.queue is None and self._share.nodes & wanted else ""

    def _longest_s(self, part: PartSpec) -> float | None:
        """The longest time limit that Slurm lets the part have, as far as its rules are known."""
        rules = self._facts.rules
        if rules is None:
            return None
        asking = Asking(
            user=user_of(self._settings, part), batch=part.batch, time_limit_s=part.time_limit
        )
        return judged(rules, asking).limits.time_s


class Ledger:
    """The claims of parts that are over, in a file: one on each line, newest last.

    By them their jobs are known, should Slurm have them again. Nothing depends on it but how soon a
    revived job's nodes are free again, so what cannot be read or written is left out.
    """

    def __init__(self, path: Path, most: int = KEPT_CLAIMS) -> None:
        self._path, self._most = path, most
        self._order: dict[str, None] = {}
        with contextlib.suppress(OSError, ValueError):
            self._order = dict.fromkeys(path.read_text(encoding="ascii").split())
        self._trim()
        self._lines = len(self._order)
        self.claims = frozenset(self._order)

    def add(self, claim: str) -> None:
        self._order[claim] = None
        self._trim()
        self.claims = frozenset(self._order)
        self._lines += 1
        with contextlib.suppress(OSError):
            if self._lines > 2 * self._most:
                durable.write(self._path, "".join(f"{each}\n" for each in self._order).encode())
                self._lines = len(self._order)
            else:
                with open(self._path, "a", encoding="ascii") as file:
                    file.write(f"{claim}\n")

    def _trim(self) -> None:
        while len(self._order) > self._most:
            del self._order[next(iter(self._order))]


def commands_of(settings: SlurmSettings, tally: Path | None = None) -> Slurm:
    """The cluster's commands; without a `conf` of its own, those of the environment's cluster."""
    return Slurm(
        tally="" if tally is None else str(tally),
        conf=settings.conf or ("" if settings.ssh else os.environ.get("SLURM_CONF", "")),
        ssh=login_of(settings),
        bin_dir=settings.bin,
        timeout_s=settings.command_limit_s,
    )
