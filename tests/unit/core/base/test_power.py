"""Powers in steps: rounded down, and steady while they waver."""

from __future__ import annotations

from itertools import pairwise

import pytest

from coalloc.core.base.power import PowerState, floored, updated


@pytest.mark.parametrize(
    ("power", "step", "value"),
    [
        pytest.param(0.83, 0.05, 0.80, id="down"),
        pytest.param(0.85, 0.05, 0.85, id="a step itself, in spite of rounding"),
        pytest.param(0.3, 0.1, 0.3, id="0.3 / 0.1 is 2.9999"),
        pytest.param(0.01, 0.05, 0.00625, id="never zero, never stronger than it is"),
        pytest.param(1.0, 0.05, 1.0, id="one"),
        pytest.param(0.837, 0.0, 0.837, id="no steps"),
    ],
)
def test_powers_are_rounded_down_to_a_step(power: float, step: float, value: float) -> None:
    assert floored(power, step) == pytest.approx(value)


def test_a_power_that_wavers_around_a_step_does_not_change_class() -> None:
    state: PowerState | None = None
    published = []
    for number in range(200):
        raw = 0.80 + (0.01 if number % 2 else -0.01)
        state = updated(state, raw, step=0.05, hysteresis=0.5, smoothing=0.3)
        published.append(state.published)
    changes = sum(a != b for a, b in pairwise(published))
    assert changes <= 1, "it settles once"


def test_a_power_that_really_changes_is_followed() -> None:
    state: PowerState | None = None
    for _ in range(30):
        state = updated(state, 1.0, step=0.05, hysteresis=0.5, smoothing=0.3)
    for _ in range(30):
        state = updated(state, 0.5, step=0.05, hysteresis=0.5, smoothing=0.3)
    assert state is not None
    assert state.published == pytest.approx(0.5)
    for _ in range(60):
        state = updated(state, 1.0, step=0.05, hysteresis=0.5, smoothing=0.3)
    assert state.published == pytest.approx(1.0)
