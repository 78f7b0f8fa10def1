"""Orders that an executor is behind with: a slow one is not sent all of them again."""

from __future__ import annotations

from coalloc.core.base.messages import Dismiss, Hello, Numbered, Welcome
from coalloc.core.executor.effects import MessageReceived, SendStatement
from coalloc.core.executor.machine import ExecutorCore, ExecutorState
from coalloc.daemon.outbox import CREDIT, Delivery


def order(number: int) -> Dismiss:
    return Dismiss(job=str(number), attempt=1, foreign=str(number))


class Line:
    """An outbox whose orders lie on the line, until its executor takes them in."""

    def __init__(self, orders: int) -> None:
        self.sent: list[Numbered] = []
        self.delivery = Delivery(self._tell, lambda _: None, epoch=1)
        self.executor = ExecutorCore(ExecutorState(cluster="a"))
        welcome = Welcome(store="s", epoch=1, base_seq=1, lease_s=60.0)
        self.executor.handle(MessageReceived(message=welcome), 0.0)
        for seq in range(1, orders + 1):
            self.delivery.add("a", seq, order(seq))

    def _tell(self, _: str, numbered: Numbered) -> bool:
        self.sent.append(numbered)
        return True

    def taken(self) -> list[int]:
        """Numbers on the line, which is empty then."""
        numbers, self.sent = [each.seq for each in self.sent], []
        return numbers

    def heard(self) -> list[Hello]:
        """Hellos of the executor while it takes in what is on the line."""
        sent, self.sent = self.sent, []
        events = [MessageReceived(message=each) for each in sent]
        made = [effect for event in events for effect in self.executor.handle(event, 9.0)]
        said = [effect.statement for effect in made if isinstance(effect, SendStatement)]
        return [each for each in said if isinstance(each, Hello)]


def test_one_that_is_slow_is_sent_one_order_again() -> None:
    line = Line(CREDIT + 9)
    assert line.taken() == list(range(1, CREDIT + 1))
    line.delivery.replay("a", None)
    assert line.taken() == [CREDIT]
    line.delivery.done("a", 2)
    assert line.taken() == [CREDIT + 1, CREDIT + 2]


def test_one_that_lacks_orders_asks_for_them() -> None:
    line = Line(5)
    line.taken()
    line.delivery.replay("a", None)
    (hello,) = line.heard()
    line.delivery.replay("a", hello.last_seq + 1)
    assert line.heard() == []
    assert line.executor.state.last_seq == 5


def test_after_the_last_was_carried_out_the_next_one_is_sent() -> None:
    line = Line(2)
    line.delivery.done("a", 2)
    line.taken()
    line.delivery.replay("a", None)
    line.delivery.add("a", 3, order(3))
    assert line.taken() == [3]
