"""Parts that break their contract: the engine stops, names the plugin, and harms no accounts."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from scripted import greedy, launch_scripted

from framework.core.outputs import OutputBuilder
from hookspecs import PluginInfo, hookimpl
from hookspecs.errors import (
    ContractViolation,
    EngineDeadError,
    InternalError,
    PluginError,
    RequestFailedError,
    StepError,
)
from hookspecs.types.step import SchedulerOutput


class Bending:
    """A plugin that wraps `schedule` and changes what it gives."""

    PLUGIN = PluginInfo(name="bending", api=">=1.0,<2", provides=("wrap:schedule",))

    def __init__(self, change: Callable[[SchedulerOutput], Any]) -> None:
        self.change = change
        self.failed: list[Any] = []

    @hookimpl(wrapper=True)
    def schedule(self) -> Any:
        scheduled = yield
        return self.change(scheduled) if len(scheduled.slots) > 1 else scheduled

    @hookimpl
    def on_engine_failed(self, event: Any) -> None:
        self.failed.append(event)


def twice(scheduled: SchedulerOutput) -> SchedulerOutput:
    scheduled.slots = np.full_like(scheduled.slots, scheduled.slots[0])
    return scheduled


def stranger(scheduled: SchedulerOutput) -> SchedulerOutput:
    scheduled.slots = scheduled.slots + 5
    return scheduled


def negative(scheduled: SchedulerOutput) -> SchedulerOutput:
    scheduled.slots = scheduled.slots - 100
    return scheduled


def too_many(scheduled: SchedulerOutput) -> SchedulerOutput:
    scheduled.num_scheduled_tokens = scheduled.num_scheduled_tokens + 1
    scheduled.total_num_scheduled_tokens += scheduled.num_rows
    return scheduled


def over_budget(scheduled: SchedulerOutput) -> SchedulerOutput:
    scheduled.num_scheduled_tokens = scheduled.num_scheduled_tokens + 1000
    scheduled.total_num_scheduled_tokens += scheduled.num_rows * 1000
    return scheduled


def wrong_total(scheduled: SchedulerOutput) -> SchedulerOutput:
    scheduled.total_num_scheduled_tokens -= 1
    return scheduled


def wrong_computed(scheduled: SchedulerOutput) -> SchedulerOutput:
    scheduled.num_computed_tokens = scheduled.num_computed_tokens + 1
    return scheduled


def wrong_samples(scheduled: SchedulerOutput) -> SchedulerOutput:
    scheduled.samples = ~scheduled.samples
    return scheduled


def ragged(scheduled: SchedulerOutput) -> SchedulerOutput:
    scheduled.samples = scheduled.samples[:-1]
    return scheduled


def nothing(scheduled: SchedulerOutput) -> None:
    return None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (twice, "twice"),
        (stranger, "no request runs"),
        (negative, "no request runs"),
        (too_many, "more than it has"),
        (over_budget, "budget"),
        (wrong_total, "budget"),
        (wrong_computed, "other computed tokens"),
        (wrong_samples, "must sample exactly"),
        (ragged, "lengths"),
        (nothing, "SchedulerOutput"),
    ],
)
def test_a_wrong_schedule_stops_the_engine(
    change: Callable[[SchedulerOutput], Any], message: str
) -> None:
    plugin = Bending(change)
    with launch_scripted(plugins=[plugin]) as engine:
        with pytest.raises((ContractViolation, StepError), match=message) as error:
            engine.generate([[1, 2, 3], [4, 5, 6]], greedy(5))
        assert error.value.plugin
        assert [event.engine_index for event in plugin.failed] == [0]
        with pytest.raises(EngineDeadError):
            engine.generate([[1]], greedy(1))


def in_place_slots(scheduled: SchedulerOutput) -> None:
    scheduled.slots[:] = scheduled.slots[0]


def in_place_order(scheduled: SchedulerOutput) -> None:
    scheduled.num_computed_tokens[:] = scheduled.num_computed_tokens[::-1].copy()


def in_place_counts(scheduled: SchedulerOutput) -> None:
    scheduled.num_scheduled_tokens[0] += 1
    scheduled.num_scheduled_tokens[1] -= 1


def in_place_samples(scheduled: SchedulerOutput) -> None:
    scheduled.samples[-1] = False


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (in_place_slots, "twice"),
        (in_place_order, "other computed tokens"),
        (in_place_counts, "no token, or more than it has"),
        (in_place_samples, "must sample exactly"),
    ],
)
def test_arrays_changed_in_place_while_the_same_requests_run_stop_the_engine(
    change: Callable[[SchedulerOutput], None], message: str
) -> None:
    """What was right in the step before is checked again."""

    def late(scheduled: SchedulerOutput) -> SchedulerOutput:
        if scheduled.num_computed_tokens[0] == 9:
            change(scheduled)
        return scheduled

    with launch_scripted(plugins=[Bending(late)]) as engine:
        with pytest.raises(ContractViolation, match=message) as error:
            engine.generate([[1, 2, 3], [4, 5, 6, 7]], greedy(20))
        assert error.value.plugin == "bending"


def test_a_raising_phase_is_attributed_to_its_plugin() -> None:
    class Raising(Bending):
        @hookimpl(wrapper=True)
        def schedule(self) -> Any:
            yield
            raise ZeroDivisionError("no")

    plugin = Raising(lambda scheduled: scheduled)
    with (
        launch_scripted(plugins=[plugin]) as engine,
        pytest.raises(StepError, match=r"bending.*ZeroDivisionError") as error,
    ):
        engine.generate([[1]], greedy(1))
    assert error.value.plugin == "bending"
    assert error.value.hook == "schedule"


def test_an_observer_that_raises_changes_nothing() -> None:
    class Observer:
        PLUGIN = PluginInfo(name="raising", api=">=1.0,<2")

        @hookimpl
        def on_step_finished(self, event: Any) -> None:
            raise RuntimeError("observer")

    with launch_scripted() as engine:
        expected = engine.generate([[1, 2], [3, 4]], greedy(6))
    with launch_scripted(plugins=[Observer()], engine={"debug": False}) as engine:
        outputs = engine.generate([[1, 2], [3, 4]], greedy(6))
        (report,) = [r for r in engine.plugins() if r.name == "raising"]
    assert [o.outputs[0].token_ids for o in outputs] == [o.outputs[0].token_ids for o in expected]
    assert report.errors["on_step_finished"] == 3


def test_a_filter_that_raises_fails_its_request_only() -> None:
    class Filter:
        PLUGIN = PluginInfo(name="filter", api=">=1.0,<2")

        @hookimpl
        def adjust_request(self, event: Any) -> None:
            if event.prompt_token_ids == [4, 5]:
                raise RuntimeError("not this one")

    with launch_scripted() as engine:
        expected = engine.generate([[1, 2], [3, 4]], greedy(3))
    with launch_scripted(plugins=[Filter()]) as engine:
        first, failed, last = engine.generate([[1, 2], [4, 5], [3, 4]], greedy(3))
        (alone,) = engine.generate([4, 5], greedy(3))
        with pytest.raises(RequestFailedError, match="not this one"):
            engine.stream([4, 5], greedy(3))
        with pytest.raises(RequestFailedError, match="not this one"):
            engine.engine.add_request("r", [4, 5], greedy(3))
    assert [first.outputs[0].token_ids, last.outputs[0].token_ids] == [
        o.outputs[0].token_ids for o in expected
    ]
    for output in (failed, alone):
        assert output.finished and output.outputs[0].finish_reason == "error"
        assert "not this one" in (output.outputs[0].error or "")


def test_observers_hear_of_a_ready_worker() -> None:
    class Observer:
        PLUGIN = PluginInfo(name="observer", api=">=1.0,<2")

        def __init__(self) -> None:
            self.events: list[Any] = []

        @hookimpl
        def on_worker_ready(self, event: Any) -> None:
            self.events.append(event)

    observer = Observer()
    with launch_scripted(plugins=[observer]):
        pass
    (event,) = observer.events
    assert event.rank == 0
    assert "observer" in event.plugins


def test_a_defect_of_the_kernel_is_not_blamed_on_a_plugin(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*arguments: Any) -> None:
        raise ZeroDivisionError("a defect")

    monkeypatch.setattr(OutputBuilder, "build", broken)
    with launch_scripted() as engine:
        with pytest.raises(InternalError, match="a defect") as told:
            engine.generate([[1, 2]], greedy(3))
        assert not isinstance(told.value, PluginError)
