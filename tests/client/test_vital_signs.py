"""What a front end says of an engine core's health."""

from __future__ import annotations

from typing import Any

import pytest

from framework.client.vital_signs import VitalSigns
from framework.transport.messages import Heartbeat
from hookspecs.config import EngineSection
from hookspecs.types.control import EngineState

LIMITS = EngineSection(heartbeat_timeout_s=5, stall_timeout_s=60)


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def signs(clock: Clock) -> VitalSigns:
    return VitalSigns(3, LIMITS, clock)


def beat(**fields: Any) -> Heartbeat:
    return Heartbeat(**{"engine_index": 3, "state": EngineState.RUNNING, "step": 1, **fields})


def test_it_is_ready_as_long_as_it_is_heard(signs: VitalSigns, clock: Clock) -> None:
    for _ in range(5):
        clock.now += 4
        signs.beat(beat())
        assert signs.health().ready and signs.health().live


def test_silence_takes_readiness_first_and_life_later(signs: VitalSigns, clock: Clock) -> None:
    signs.beat(beat())
    clock.now += 5.5
    health = signs.health()
    assert (health.live, health.ready) == (True, False) and "engine core 3" in health.reason
    clock.now += 60
    assert not signs.health().live
    signs.heard()
    assert signs.health().ready


def test_one_step_that_takes_too_long(signs: VitalSigns) -> None:
    signs.beat(beat(busy_s=59.0))
    assert signs.health().ready
    signs.beat(beat(busy_s=61.0))
    health = signs.health()
    assert (health.live, health.ready) == (False, False) and "one step" in health.reason


def test_a_command_takes_as_long_as_it_takes(signs: VitalSigns) -> None:
    """Loading weights for an hour is no reason to kill the process."""
    signs.beat(beat(busy_s=3600.0, command="update_weights"))
    health = signs.health()
    assert (health.live, health.ready) == (True, False) and "update_weights" in health.reason


@pytest.mark.parametrize("state", [state for state in EngineState if state != "running"])
def test_a_state_that_does_not_serve_is_not_ready(signs: VitalSigns, state: EngineState) -> None:
    signs.beat(beat(state=state))
    health = signs.health()
    assert (health.live, health.ready) == (True, False) and state in health.reason


def test_death_has_its_reason(signs: VitalSigns) -> None:
    signs.death = "killed by SIGKILL"
    health = signs.health()
    assert (health.live, health.ready) == (False, False) and "SIGKILL" in health.reason
    assert signs.state is EngineState.DEAD
