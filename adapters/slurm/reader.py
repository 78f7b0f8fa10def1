"""Reads a Slurm cluster: nodes, queue, reservations and load, with one command for each.

Two commands make a cycle, however long the queue is: ``squeue`` and ``scontrol show node``.
Partitions and reservations are asked for when queue or nodes point to a change of them, and once
in a while, as are slurmctld's clock (``scontrol show config``) and how busy it is (``sdiag``). All
run with a clean environment, in UTC, and under one time limit; over a login, all that is known to
be due in one round trip. Whatever fails, the cluster is unknown, not empty. What a reading shows to
be due in Slurm (`slurm.upkeep`) is left to the caller.
"""

from __future__ import annotations

import contextlib
import re
import secrets
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import TypeVar

from coalloc.adapters.base import Act, AdapterError
from coalloc.adapters.batch.node_load import Load, LoadWatch, effective_power
from coalloc.adapters.runner.command import BatchError, CommandRefusedError, UnreachableError
from coalloc.adapters.slurm.calibration import read_calibration
from coalloc.adapters.slurm.commands import Slurm
from coalloc.adapters.slurm.health import (
    awake,
    clock_notice,
    clock_offset,
    closed_nodes,
    odd_records,
    on_our_clock,
    powered_down,
    revived_jobs,
    shut,
)
from coalloc.adapters.slurm.holdings import with_holdings
from coalloc.adapters.slurm.load import Seldom, Tally, hint_of, is_busy
from coalloc.adapters.slurm.native.handover import handed_jobs, to_hold
from coalloc.adapters.slurm.parsers.queue import parse_queue, queue_format
from coalloc.adapters.slurm.parsers.records import WAITS, NodeRecord, ParseError, QueueEntry
from coalloc.adapters.slurm.parsers.rules import (
    Manager,
    enforced,
    parse_licenses,
    parse_manager,
    parse_partitions,
)
from coalloc.adapters.slurm.parsers.text import (
    gives_whole_memory,
    keeps_places,
    parse_boot,
    parse_clock,
    parse_jobs,
    parse_node_list,
    parse_reservations,
    select_words,
)
from coalloc.adapters.slurm.reading import (
    Answers,
    Holding,
    SlurmFacts,
    chosen_nodes,
    expected_nodes,
    is_handed,
    kept_nodes,
    local_waiting,
    local_waits,
    relative_power,
    running_jobs,
    slots_of,
    states_of,
    suspended_parts,
    unknown_jobs,
)
from coalloc.adapters.slurm.rules import site_rules
from coalloc.adapters.slurm.settings import SlurmSettings
from coalloc.adapters.slurm.share import Share
from coalloc.adapters.slurm.turns import marked_claims
from coalloc.adapters.slurm.upkeep import Due, acts
from coalloc.adapters.ssh.master import SshMaster
from coalloc.adapters.ssh.shell import CommandOutput
from coalloc.model.platform import NodeState
from coalloc.model.sites.reading import ClusterReading, NodeReading
from coalloc.model.values import replace

UTC = {"TZ": "UTC"}
SHOW = ("scontrol", "-a", "-o", "show")
NODES = "scontrol", "-d", *SHOW[1:], "node"
RARE = (*SHOW, "reservation"), (*SHOW, "partition")
CONFIG, LICENSES = ("scontrol", "show", "config"), (*SHOW, "licenses")
ACCOUNTS = "scontrol", "-o", "show", "assoc_mgr", "flags=assoc,qos"
PING_LIMIT_S = 0.8
CLOCK_EVERY_S = 600.0
"""Between two looks at slurmctld's clock, seconds."""
ACCOUNTS_EVERY_S = 30.0
"""Between two looks at associations and QOS, seconds: they may be many."""
SELDOM_CYCLES, SELDOM_EVERY_S = 8, 60.0
"""Between two looks at partitions and reservations of which nothing points to a change: so many
readings, or seconds."""
LOAD_EVERY_S = 300.0
"""Between two looks at how busy slurmctld is, seconds."""
EASED = 3.0
"""Readings are so many times as far apart while nothing is to be seen, or slurmctld is busy."""
FAR, FAR_EASED = 3.0, 4.0
"""The same of a login node, which is not ours: so much farther apart, and then as well."""

Found = TypeVar("Found")


class SlurmReader:
    """Reads one Slurm cluster, and plans our share of it with every reading.

    Of our parts it asks each time which handed jobs they have (`claimed`), the claims of the
    others (`claims`; absent: every token is ours) and of those that are over (`given_back`), what
    they have by claim (`held`), and how often a claim was refused so that a partition or a
    reservation may have changed (`refusals`). `learn` is told the facts of each reading;
    `state_dir` may hold a calibration.
    """

    def __init__(
        self,
        settings: SlurmSettings,
        slurm: Slurm,
        *,
        state_dir: Path | None = None,
        claimed: Callable[[], Collection[str]] = frozenset,
        claims: Callable[[], Collection[str]] | None = None,
        given_back: Callable[[], Collection[str]] = frozenset,
        held: Callable[[], Mapping[str, Holding]] = dict,
        share: Share | None = None,
        learn: Callable[[SlurmFacts], None] = lambda facts: None,
        refusals: Callable[[], int] = lambda: 0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._settings, self._slurm = settings, slurm
        self._claimed, self._claims, self._clock = claimed, claims, clock
        self._given_back, self._learn, self._refusals = given_back, learn, refusals
        self._held = held
        self._share = Share(settings=settings, slurm=slurm) if share is None else share
        self._whole_memory, self._enforced = False, frozenset[str]()
        self._counted = frozenset[str]()
        self._layouts: tuple[object, dict[str, Mapping[str, str]]] = None, {}
        self._keeps_places = True
        self._boot_s = 0.0
        self._manager: Manager | None = None
        self._licenses: dict[str, tuple[int, int]] | None = None
        self._manager_asked, self._is_full = float("-inf"), False
        self._clock_off_s, self._clock_asked = 0.0, float("-inf")
        self._calibration = None if state_dir is None else state_dir / "calibration.json"
        self._loads = LoadWatch(settings.load, settings.load_max_age_s)
        self._due = Due()
        self._asked = 0.0
        self._seldom, self._cycles = Seldom(), 0
        self._tally = Tally(None if state_dir is None else state_dir / "rpcs")
        self._is_busy, self._load_asked = False, float("-inf")
        self._site = ""
        self._began = 0.0
        self._ahead: Mapping[tuple[str, ...], CommandOutput] = {}

    def read(self) -> ClusterReading:
        try:
            given_back = self._given_back()
            self._began = self._clock()
            answers = self._ask()
            self._compare_clocks()
            self._ask_manager()
            self._ask_load()
            answers = on_our_clock(answers, self._clock_off_s)
        except UnreachableError as error:
            raise AdapterError(f"{error}{self._controller()}") from error
        except BatchError as error:
            raise AdapterError(str(error)) from error
        except ParseError as error:
            raise AdapterError(f"Slurm's answer is not understood: {error}") from error
        self._due = Due(
            handed=tuple(
                job for job in to_hold(self._settings, answers.queue) if job not in answers.claimed
            ),
            revived=tuple(revived_jobs(answers.queue, given_back)),
        )
        notices = odd_records(answers)
        by_core = bool(self._counted & {"CORE", "SOCKET"})
        nodes = (
            node if by_core else replace(node, cpus_per_core=1)
            for node in answers.nodes
            if node.name
        )
        answers = replace(answers, nodes=tuple(nodes))
        self._share.plan(answers, chosen_nodes(self._settings, answers.nodes))
        return self._reading(answers, notices)

    def pause(self, is_idle: bool) -> float:
        """The pause before the next reading, as a multiple of the usual one."""
        rests = is_idle and not self._settings.hands_over
        if self._settings.ssh:
            return FAR * (FAR_EASED if rests or self._is_busy else 1.0)
        return EASED if rests or self._is_busy else 1.0

    def due(self) -> tuple[Act, ...]:
        return acts(self._due, self._slurm, self._share)

    def _controller(self) -> str:
        """State of slurmctld, in words to add to what went wrong.

        The other commands try for ten seconds and more to reach one that is down.
        """
        try:
            said = self._slurm.ask("scontrol", "ping", timeout_s=PING_LIMIT_S).out.lower()
        except BatchError:
            return "; slurmctld does not answer"
        if " down" in said:
            return "; slurmctld is down"
        return "; slurmctld is up" if " up" in said else ""

    def _ask(self) -> Answers:
        # Before the queue is read: a job that is handed to a part in between is then listed as
        # waiting, which the daemon, who asked for that, does not take for news.
        claimed = self._claimed()
        self._asked = time.monotonic()
        mark = f"\x1f{secrets.token_hex(4)}\x1f"
        squeue = "squeue", "--local", "-h", "-r", "-a", "-o", queue_format(mark)
        self._ahead = self._ask_ahead(squeue) if self._settings.ssh else {}
        queue = parse_queue(self._run(*squeue), mark)
        nodes = parse_node_list(self._run(*NODES))
        # After it: a job that is in the queue has its claim on disk.
        claims = None if self._claims is None else self._claims()
        seldom, hint = self._seldom, (self._refusals(), hint_of(nodes, queue))
        is_due = hint != seldom.hint or self._is_seldom_due()
        self._cycles += 1
        if is_due:
            self._cycles = 0
            self._seldom = seldom = Seldom(
                asked=self._clock(),
                hint=hint,
                reservations=parse_reservations(self._run(*RARE[0])),
                partitions=parse_partitions(self._run(*RARE[1])),
            )
        return Answers(
            now=self._clock(),
            nodes=nodes,
            queue=queue,
            reservations=seldom.reservations,
            partitions=seldom.partitions,
            claimed=claimed,
            claims=claims,
            held=self._held(),
            layouts=self._ask_layouts(queue),
        )

    def _ask_ahead(self, squeue: tuple[str, ...]) -> Mapping[tuple[str, ...], CommandOutput]:
        """Ask in one round trip for all that this reading is known to need."""
        due = [squeue, NODES, *(RARE if self._is_seldom_due() else ())]
        needed = len(due)
        if self._is_due(self._clock_asked, CLOCK_EVERY_S):
            due += [CONFIG, LICENSES]
        if self._is_due(self._manager_asked, self._manager_every_s()):
            due += [LICENSES] if self._licenses and LICENSES not in due else []
            due += [ACCOUNTS] if self._enforced else []
        if self._is_due(self._load_asked, LOAD_EVERY_S):
            due.append(("sdiag",))
        limit_s = self._settings.command_limit_s * len(due)
        return self._slurm.ask_all(due, needed=needed, env=UTC, timeout_s=limit_s)

    def _is_due(self, asked: float, every_s: float) -> bool:
        return not 0.0 <= self._clock() - asked < every_s

    def _is_seldom_due(self) -> bool:
        is_old = self._is_due(self._seldom.asked, SELDOM_EVERY_S)
        return is_old or self._cycles + 1 >= SELDOM_CYCLES or bool(self._settings.max_share)

    def _ask_layouts(self, queue: Iterable[QueueEntry]) -> Mapping[str, Mapping[str, str]]:
        """Read how handed jobs are to lie on nodes, when one has come, and once in a while."""
        waiting = [e for e in queue if e.state in WAITS and is_handed(self._settings, e)]
        asked = frozenset((e.id, e.submitted, e.cpus, e.node_count) for e in waiting)
        if (asked, self._seldom.asked) != self._layouts[0] and asked:
            found = parse_jobs(self._run(*SHOW, "job"))
            self._layouts = (asked, self._seldom.asked), found
        return self._layouts[1]

    def _run(self, name: str, *arguments: str) -> str:
        if said := self._ahead.get((name, *arguments)):
            return self._slurm.told(name, said)
        return self._slurm.run(name, *arguments, env=UTC, timeout_s=self._settings.command_limit_s)

    def _compare_clocks(self) -> None:
        """See once in a while how far slurmctld's clock is from ours."""
        if not self._is_due(self._clock_asked, CLOCK_EVERY_S):
            return
        asked = self._began if self._ahead else self._clock()
        config = self._run(*CONFIG)
        there = parse_clock(config)
        self._whole_memory, self._enforced = gives_whole_memory(config), enforced(config)
        self._counted = select_words(config)
        self._boot_s, self._keeps_places = parse_boot(config), keeps_places(config)
        self._licenses = self._if_open(parse_licenses, *LICENSES)
        self._clock_off_s = clock_offset(there, asked, self._clock())
        if self._settings.ssh:
            key = SshMaster(self._settings.ssh, self._settings.ssh_config).state().host_key
            name = re.search(r"^ClusterName\s*= *(\S+)", config, re.MULTILINE)
            self._site = f"{key} {name[1]}" if key and name else ""
        self._clock_asked = asked

    def _if_open(self, read: Callable[[str], Found], *words: str) -> Found | None:
        """Read what a command says; None where it is refused, or not understood."""
        try:
            return read(self._run(*words))
        except (CommandRefusedError, ParseError):
            return None

    def _ask_manager(self) -> None:
        """Read licences, associations and QOS once in a while, where there are any to be read."""
        if not self._is_due(self._manager_asked, self._manager_every_s()):
            return
        self._manager_asked = self._clock()
        if self._licenses:
            self._licenses = self._if_open(parse_licenses, *LICENSES)
        if self._enforced:
            self._manager = self._if_open(parse_manager, *ACCOUNTS)

    def _manager_every_s(self) -> float:
        """Claims that cannot wait do so for the next reading that has room."""
        return 0.0 if self._settings.start == "salloc" and self._is_full else ACCOUNTS_EVERY_S

    def _ask_load(self) -> None:
        """See once in a while how busy slurmctld is, where it may be asked."""
        if self._is_due(self._load_asked, LOAD_EVERY_S):
            self._load_asked = self._clock()
            with contextlib.suppress(BatchError):  # not installed: nothing else depends on it
                self._is_busy = is_busy(self._run("sdiag"))

    def _reading(self, answers: Answers, notices: tuple[str, ...]) -> ClusterReading:
        settings = self._settings
        chosen = chosen_nodes(settings, answers.nodes)
        named = chosen if self._whole_memory and settings.slots == "cpus" else []
        kept = kept_nodes(settings, answers, chosen, self._share.name)
        rules = site_rules(
            settings,
            answers.partitions,
            chosen,
            self._manager,
            self._enforced,
            tuple(each.id for each in kept),
            self._licenses,
        )
        self._is_full = any(not room.left for room in rules.rooms) or any(
            not free for _, free in (rules.licenses or {}).values()
        )
        memory = {node.name: (node.memory_mb or 0) // node.cpus for node in named}
        self._learn(
            SlurmFacts(rules=rules, memory_by_cpu=memory, asked=self._asked, queue=answers.queue)
        )
        closed, why = closed_nodes(settings, answers.partitions, chosen)
        queues = settings.start != "salloc" or self._share.is_granted
        entries = [
            shut(awake(entry) if queues else entry, closed.get(entry.name, "")) for entry in chosen
        ]
        states, unknown = states_of(entries)
        loads = self._loads.loads(entries, answers.now)
        measured = {} if self._calibration is None else read_calibration(self._calibration)
        nodes = tuple(
            self._node(entry, states[entry.name], loads.get(entry.name, Load()), measured)
            for entry in entries
        )
        running = running_jobs(settings, answers, entries)
        return ClusterReading(
            cluster=settings.cluster,
            nodes=nodes,
            running=(
                *with_holdings(settings, answers, nodes, running),
                *powered_down(settings, answers, chosen if queues else (), self._boot_s),
            ),
            waiting=len(local_waiting(settings, answers)),
            waited=local_waits(answers),
            claims=marked_claims(settings.cluster, answers),
            queues=queues,
            keeps_places=self._keeps_places,
            reservations=(
                *kept,
                *expected_nodes(settings, answers, entries),
                *self._share.beyond(answers, chosen),
            ),
            handed=handed_jobs(settings, answers),
            unknown=unknown | unknown_jobs(answers.queue),
            notices=(
                *notices,
                *clock_notice(self._clock_off_s),
                *why,
                *self._due.notices,
                *suspended_parts(answers),
            ),
            way=self._share.way,
            share=self._share.use,
            rules=rules,
            site=self._site,
            rpcs_per_min=self._tally.per_minute(time.monotonic()),
        )

    def _node(
        self, entry: NodeRecord, state: NodeState, load: Load, measured: dict[str, float]
    ) -> NodeReading:
        settings = self._settings
        is_whole = settings.slots == "node"
        return NodeReading(
            name=settings.published(entry.name),
            power=effective_power(relative_power(settings, entry, measured), load),
            slots=slots_of(settings, entry),
            cpus=entry.cpus if is_whole else None,
            cpus_per_core=entry.cpus_per_core,
            slot_cpus=entry.cpus // slots_of(settings, entry),
            features=entry.features,
            memory_mb=entry.memory_mb if is_whole or "MEMORY" in self._counted else None,
            state=state,
            load=load.share,
            address="" if entry.address == entry.name else entry.address,
            load_age_s=load.age_s,
            reason=entry.reason if state is not NodeState.UP else "",
            partitions=entry.partitions,
            resources=entry.gres,
        )
