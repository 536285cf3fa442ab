"""Wrappers alone, driven as the kernel does, with a clock that says what it is told."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from concurrent.futures import Future
from typing import Any

import pytest
from hookspecs.config import EngineConfig
from hookspecs.contracts.base import PluginContext
from hookspecs.types.step import GrammarOutput, ModelRunnerOutput

from phase_timer.durations import BOUNDS_S, Durations
from phase_timer.plugin import PhaseTimerPlugin
from phase_timer.table import table


def timer(times: Iterable[float]) -> PhaseTimerPlugin:
    return PhaseTimerPlugin(iter(times).__next__)


def end(wrapper: Generator[None, Any, Any], result: Any) -> Any:
    next(wrapper)
    with pytest.raises(StopIteration) as stopped:
        wrapper.send(result)
    return stopped.value.value


def fail(wrapper: Generator[None, Any, Any], error: BaseException) -> None:
    next(wrapper)
    with pytest.raises(type(error)) as raised:
        wrapper.throw(error)
    assert raised.value is error


def test_a_phase_that_returns_a_value_ends_with_its_return() -> None:
    subject = timer([1.0, 1.5, 2.0, 2.25])
    result = object()
    assert end(subject.schedule(), result) is result
    assert end(subject.schedule(), result) is result
    found = subject.phases["schedule"]
    assert (found.count, found.failed, found.total_s, found.max_s) == (2, 0, 0.75, 0.5)


def test_a_phase_that_returns_a_future_ends_with_the_future() -> None:
    subject = timer([1.0, 4.0])
    future: Future[ModelRunnerOutput] = Future()
    grammar: GrammarOutput | None = None
    assert end(subject.sample_tokens(grammar), future) is future
    found = subject.phases["sample_tokens"]
    assert found.count == 0, "the wrapper did not wait for the future"
    future.set_exception(ValueError("no tokens"))
    assert (found.count, found.failed, found.total_s) == (1, 1, 3.0)


def test_a_cancelled_future_counts_as_failed() -> None:
    subject = timer([1.0, 2.0])
    future: Future[ModelRunnerOutput] = Future()
    end(subject.sample_tokens(None), future)
    future.cancel()
    assert subject.phases["sample_tokens"].failed == 1


def test_what_is_no_future_is_passed_on_for_the_kernel_to_refuse() -> None:
    subject = timer([1.0, 2.0])
    assert end(subject.sample_tokens(None), "no future") == "no future"
    assert subject.phases["sample_tokens"].failed == 1


@pytest.mark.parametrize("phase", ["schedule", "sample_tokens"])
def test_an_exception_of_the_phase_passes_through(phase: str) -> None:
    subject = timer([1.0, 2.0])
    arguments = () if phase == "schedule" else (None,)
    fail(getattr(subject, phase)(*arguments), RuntimeError("no step"))
    assert (subject.phases[phase].count, subject.phases[phase].failed) == (1, 1)


def test_each_duration_is_in_one_range() -> None:
    found = Durations()
    for seconds in (0.0, *BOUNDS_S, 1e9):
        found.add(seconds)
    assert found.histogram == [2, 1, 1, 1, 1, 1]
    assert sum(found.histogram) == found.count == 7


def test_the_table_has_a_row_for_each_phase_that_was_called() -> None:
    busy = Durations()
    busy.add(0.002)
    busy.add(0.004, failed=True)
    text = table({"schedule": busy, "execute_model": Durations()})
    head, row = (line.split() for line in text.splitlines())
    assert head[:5] == ["calls", "failed", "total", "mean", "max"]
    assert row == ["schedule", "2", "1", "6.000", "3.000", "4.000", "0", "0", "2", "0", "0", "0"]
    assert len(head) == len(row) - 1


def test_each_engine_has_a_timer_of_its_own() -> None:
    subject = timer([])
    context = PluginContext(config=EngineConfig())
    one, two = subject.configured(context), subject.configured(context)
    assert len({id(each.phases["schedule"]) for each in (subject, one, two)}) == 3
