"""Messages between daemon and executors: late, lost, doubled, out of order, cut off."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import TypeVar

from coalloc.core.base.messages import Numbered, Ping, Report, Statement, Welcome

T = TypeVar("T")
Down = Numbered | Welcome | Ping
"""From the daemon to an executor."""


@dataclass(slots=True)
class Link:
    """Both directions between the daemon and one executor."""

    down: list[Down] = field(default_factory=list)
    up: list[Statement] = field(default_factory=list)
    echoes: list[Down] = field(default_factory=list)
    """Messages that arrived, and will arrive once more, much later."""
    said: list[Report] = field(default_factory=list)
    """Some reports that have arrived, and will do so once more."""
    late: list[Down] = field(default_factory=list)
    """What a daemon that died had sent, and is still somewhere."""
    cut_until: float = 0.0
    """Nothing passes before, s."""


class Network:
    """Every executor's link.

    Parameters
    ----------
    dice : random.Random
        Shared with the world, so that one seed decides everything.
    """

    def __init__(self, clusters: tuple[str, ...], dice: random.Random) -> None:
        self.links = {name: Link() for name in clusters}
        self._dice = dice
        self._names = clusters
        self.faults = 0.0

    def cut(self, cluster: str, until: float) -> None:
        """Nothing passes for a while; what is sent meanwhile waits, or is lost with the line."""
        link = self.links[cluster]
        link.cut_until = until
        if self._dice.random() < 0.5:
            link.down.clear()
            link.up.clear()

    def reconnect(self, cluster: str) -> None:
        """Another peer: what was under way from and to the former is nobody's."""
        self.links[cluster] = Link(cut_until=self.links[cluster].cut_until)

    def heal(self) -> None:
        """Every line is there again, and nothing old is under way."""
        for link in self.links.values():
            link.cut_until = 0.0
            link.echoes.clear()
            link.said.clear()
            link.late.clear()

    def daemon_died(self) -> None:
        """Some of what it sent arrives only after its successor has spoken."""
        for link in self.links.values():
            late = [message for message in link.down if self._dice.random() < 0.5]
            link.late += late
            link.down = [message for message in link.down if message not in late]

    def send_down(self, cluster: str, message: Down) -> None:
        self.links[cluster].down.append(message)

    def send_up(self, cluster: str, statement: Statement) -> None:
        self.links[cluster].up.append(statement)

    def take_down(self, now: float) -> tuple[str, Down] | None:
        """A message that reaches its executor now; None if none does."""
        name = self._dice.choice(self._names)
        link = self.links[name]
        if link.cut_until > now:
            return None
        if self.faults and link.echoes and self._dice.random() < 2.0 * self.faults:
            return name, link.echoes.pop(self._dice.randrange(len(link.echoes)))
        if not link.down:
            return None
        message = self._take(link.down)
        if message is None:
            return None
        if isinstance(message, Welcome):
            link.echoes += link.late
            link.late = []
        if isinstance(message, Numbered) and self._dice.random() < self.faults:
            link.echoes.append(message)
        return name, message

    def take_up(self, now: float) -> Statement | None:
        """A statement that reaches the daemon now; None if none does."""
        link = self.links[self._dice.choice(self._names)]
        if link.cut_until > now:
            return None
        if self.faults and link.said and self._dice.random() < 0.5 * self.faults:
            return self._dice.choice(link.said)
        statement = self._take(link.up) if link.up else None
        if isinstance(statement, Report) and self._dice.random() < self.faults:
            link.said = [*link.said[-9:], statement]
        return statement

    def _take(self, box: list[T]) -> T | None:
        dice = self._dice
        at = 0
        if self.faults:
            if dice.random() < self.faults:
                at = dice.randrange(len(box))
            if dice.random() < 0.5 * self.faults:
                del box[at]
                return None
            if dice.random() < 0.5 * self.faults:
                return box[at]
        return box.pop(at)
