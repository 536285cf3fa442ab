"""A step is a transaction: inputs at one point, nothing half done, nothing lost silently."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from scripted import greedy, launch_scripted, tokens_of

from framework.launcher import Engine
from hookspecs import PluginInfo, SamplingParams, hookimpl
from hookspecs.errors import (
    ContractViolation,
    EngineDeadError,
    FrameworkError,
    InternalError,
    InvalidRequestError,
)
from hookspecs.types.request import EngineCoreRequest, FinishReason


def core_of(engine: Engine) -> Any:
    return engine.engine._client._core


class Hearing:
    """Calls `then` in an observer of steps."""

    PLUGIN = PluginInfo(name="hearing", api=">=1.0,<2")

    def __init__(self) -> None:
        self.then: Callable[[], None] = lambda: None
        self.finished: list[Any] = []

    @hookimpl
    def on_step_finished(self, event: Any) -> None:
        self.then()

    @hookimpl
    def on_request_finished(self, event: Any) -> None:
        self.finished.append(event)


def test_inputs_that_come_inside_a_step_wait_for_the_next() -> None:
    hearing = Hearing()
    with launch_scripted(plugins=[hearing]) as engine:
        expected = engine.generate([[1, 2], [3, 4]], greedy(4))
        stream = engine.stream([9, 9, 9], greedy(50))
        next(stream)
        hearing.then = stream.close
        outputs = engine.generate([[1, 2], [3, 4]], greedy(4))
        assert [o.outputs[0].token_ids for o in outputs] == [
            o.outputs[0].token_ids for o in expected
        ]
        hearing.then = lambda: None
        core = core_of(engine)
        hearing.then = core.step
        with pytest.raises(FrameworkError, match="inside of a step"):
            engine.generate([[5]], greedy(1))


def test_an_interrupt_inside_a_step_leaves_no_engine_that_looks_alive() -> None:
    class Interrupting:
        PLUGIN = PluginInfo(name="interrupting", api=">=1.0,<2", provides=("wrap:execute_model",))

        @hookimpl(wrapper=True)
        def execute_model(self, scheduled: Any) -> Any:
            result = yield
            if scheduled.step == 2:
                raise KeyboardInterrupt
            return result

    with launch_scripted(plugins=[Interrupting()]) as engine:
        with pytest.raises(KeyboardInterrupt):
            engine.generate([[1, 2]], greedy(5))
        with pytest.raises(EngineDeadError):
            engine.generate([[1, 2]], greedy(5))


@pytest.mark.parametrize("error", [SystemExit, asyncio.CancelledError, GeneratorExit])
@pytest.mark.parametrize("hook", ["on_request_admitted", "on_step_finished", "on_request_finished"])
def test_whatever_an_observer_raises_stops_no_engine(hook: str, error: type[BaseException]) -> None:
    def fail(event: Any) -> None:
        raise error

    members = {
        "PLUGIN": PluginInfo(name="faulty", api=">=1.0,<2"),
        hook: staticmethod(hookimpl(fail)),
    }
    faulty = type("Faulty", (), members)()
    with launch_scripted() as engine:
        expected = tokens_of(engine.generate([[1, 2], [3]], greedy(5)))
    with launch_scripted(plugins=[faulty], engine={"debug": False}) as engine:
        for _ in range(3):
            assert tokens_of(engine.generate([[1, 2], [3]], greedy(5))) == expected


@pytest.mark.parametrize("method", ["take_stats", "commit", "free", "blocks_in_use"])
def test_a_cache_manager_that_raises_stops_the_engine(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here by code that is no plugin's, so none is blamed."""

    def fail(*arguments: Any, **keywords: Any) -> Any:
        raise OSError("no disk")

    with launch_scripted() as engine:
        kv_cache = core_of(engine).parts.kv_cache
        monkeypatch.setattr(kv_cache, method, fail)
        with pytest.raises(InternalError, match="no disk"):
            engine.generate([[1, 2]], greedy(3))
        with pytest.raises(EngineDeadError):
            engine.generate([[1]], greedy(1))


class Bending:
    """Wraps a phase and changes its result once there are two rows."""

    def __init__(self, phase: str, change: Callable[[Any], None]) -> None:
        self.PLUGIN = PluginInfo(name="bending", api=">=1.0,<2", provides=(f"wrap:{phase}",))
        self._change = change

        def schedule() -> Any:
            result = yield
            if result.num_rows > 1:
                change(result)
            return result

        def sample_tokens(grammar: Any) -> Any:
            result = yield
            if len(result.result().num_sampled) > 1:
                change(result.result())
            return result

        setattr(self, phase, hookimpl(wrapper=True)(locals()[phase]))


def drop_new(scheduled: Any) -> None:
    scheduled.new_requests = scheduled.new_requests[:-1]


def swap_logprobs(result: Any) -> None:
    result.logprob_rows = result.logprob_rows[::-1].copy()


def foreign_logprobs(result: Any) -> None:
    result.logprobs.token_ids = np.roll(result.logprobs.token_ids, len(result.logprobs.counts))


def short_logprobs(result: Any) -> None:
    result.logprobs.ranks = result.logprobs.ranks[:-1]


def strange_failure(result: Any) -> None:
    from hookspecs.types.step import RowFailure

    result.failures = {7: RowFailure("not there")}


def token_beyond(result: Any) -> None:
    result.token_ids = result.token_ids + 10**6


def no_tokens(result: Any) -> None:
    result.num_sampled = result.num_sampled * 0
    result.token_ids = result.token_ids[:0]


@pytest.mark.parametrize(
    ("phase", "change", "message"),
    [
        ("schedule", drop_new, "new_requests"),
        ("sample_tokens", swap_logprobs, "ascending"),
        ("sample_tokens", foreign_logprobs, "begin with"),
        ("sample_tokens", short_logprobs, "columns"),
        ("sample_tokens", strange_failure, "not in the step"),
        ("sample_tokens", token_beyond, "token id outside"),
        ("sample_tokens", no_tokens, "samples"),
    ],
)
def test_a_result_that_could_reach_the_wrong_user_stops_the_engine(
    phase: str, change: Callable[[Any], None], message: str
) -> None:
    with (
        launch_scripted(plugins=[Bending(phase, change)]) as engine,
        pytest.raises(ContractViolation, match=message) as error,
    ):
        engine.generate([[1, 2], [3, 4, 5]], greedy(3, logprobs=2))
    assert error.value.plugin == "bending"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"prompt_token_ids": []}, "at least one"),
        ({"prompt_token_ids": [-1]}, "token ids"),
        ({"prompt_token_ids": [2**40]}, "token ids"),
        ({"prompt_token_ids": [1] * 5000}, "limit"),
        ({"sampling_params": SamplingParams(max_tokens=0)}, "max_tokens"),
        ({"sampling_params": SamplingParams(temperature=float("nan"))}, "temperature"),
        ({"sampling_params": SamplingParams(top_p=float("inf"))}, "top_p"),
        ({"sampling_params": SamplingParams(frequency_penalty=-1e300)}, "frequency_penalty"),
        ({"sampling_params": SamplingParams(min_tokens=2**40)}, "min_tokens"),
        ({"eos_token_id": 2**31}, "eos_token_id"),
        ({"eos_token_id": -5}, "eos_token_id"),
    ],
)
def test_a_front_end_that_checks_nothing_harms_its_own_request_only(
    change: dict[str, Any], message: str
) -> None:
    with launch_scripted() as engine:
        core = core_of(engine)
        wire: dict[str, Any] = {
            "request_id": "bad",
            "handle": 10**6,
            "prompt_token_ids": [1],
            "sampling_params": greedy(3),
            "arrival_time": 0.0,
        }
        core.add_request(EngineCoreRequest(**{**wire, **change}))
        (row,) = core.step()[0].rows()
        assert row.finish_reason is FinishReason.ERROR
        good = EngineCoreRequest(**wire)
        core.add_request(good)
        for duplicate in ({"request_id": "other"}, {"handle": 10**6 + 1}):
            with pytest.raises(InvalidRequestError, match="unique"):
                core.add_request(EngineCoreRequest(**{**wire, **duplicate}))
        while core.has_work:
            outputs = core.step()
        assert outputs[0].rows()[0].finish_reason is FinishReason.LENGTH
    assert message


def test_a_reason_given_with_an_abort_reaches_observers() -> None:
    hearing = Hearing()
    with launch_scripted(plugins=[hearing]) as engine:
        core = core_of(engine)
        engine.engine.add_request("a", [1, 2], greedy(9))
        (handle,) = core.step()[0].handles.tolist()
        core.abort_requests([handle, handle, 99], reason=FinishReason.STOP)
    assert [(e.finish_reason, e.error) for e in hearing.finished] == [(FinishReason.STOP, None)]


def test_tenants_leave_no_trace_but_a_bounded_memory() -> None:
    with launch_scripted() as engine:
        ledger = core_of(engine).parts.table.tenant_ledger
        for number in range(5000):
            engine.generate([[1]], greedy(1), tenant=f"t{number}")
        assert not ledger._index
        assert len(ledger._absent) == 4096
        assert ledger.served("t4999") == 1
        assert ledger.served("t0") == 0
        assert ledger.served("never") == 0
        assert len(ledger._absent) == 4096


def test_a_tenant_pays_once_for_what_is_computed_twice() -> None:
    prompts = [[10 * i + j for j in range(9)] for i in range(1, 9)]
    served = []
    for blocks in (64, 15):
        hearing = Hearing()
        with launch_scripted(
            plugins=[hearing], cache={"num_blocks": blocks, "enable_prefix_caching": False}
        ) as engine:
            engine.generate(prompts, greedy(20), tenant="t")
            served.append(core_of(engine).parts.table.tenant_ledger.served("t"))
    assert sum(event.num_preemptions for event in hearing.finished) > 0
    assert served[0] == served[1] == 8 * (9 + 19)


def test_cached_tokens_are_those_of_the_first_start() -> None:
    prompts = [[10 * i + j for j in range(9)] for i in range(1, 9)]
    with launch_scripted(cache={"num_blocks": 15}) as engine:
        outputs = engine.generate(prompts, greedy(20))
    assert [output.num_cached_tokens for output in outputs] == [0] * 8
