"""What happens around hook calls: isolation, quarantine, filters, wrappers, counters."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from framework.plugins import Calls, PluginManager
from framework.plugins.counters import Counters
from framework.plugins.discovery import local_ref
from framework.plugins.dispatch import MAX_FAILURES_IN_ROW, SLOW_CALL_S, SLOW_WINDOW
from framework.plugins.manifest import read_manifest
from framework.plugins.validate import new_registrar, register_hooks
from hookspecs import (
    CompletionOutput,
    EngineHooks,
    PluginInfo,
    ProcessRole,
    RequestOutput,
    hookimpl,
)
from hookspecs.config import EngineConfig, EngineSection, ExecutorConfig, ModelConfig, PluginsConfig
from hookspecs.errors import (
    ConfigError,
    ContractViolation,
    InternalError,
    PluginConfigError,
    PluginError,
    RequestFailedError,
    StepError,
)
from hookspecs.events import (
    CacheReset,
    ConfigResolved,
    OutputReady,
    PluginFailed,
    RequestReceived,
    RequestRejected,
)
from hookspecs.types.sampling import SamplingParams

EVENT = CacheReset(engine_index=0)
REQUEST = RequestReceived(request_id="r1", prompt_token_ids=[1], params=SamplingParams())


def output(request_id: str = "r1", text: str = "x") -> OutputReady:
    completion = CompletionOutput(index=0, text=text, token_ids=[1])
    return OutputReady(
        output=RequestOutput(
            request_id=request_id,
            prompt=None,
            prompt_token_ids=[1],
            outputs=[completion],
            finished=False,
        )
    )


def plugin(name: str, *, info: Any = None, **functions: Callable[..., Any]) -> EngineHooks:
    """A plugin whose hooks are plain functions without self."""
    members: dict[str, Any] = {"PLUGIN": PluginInfo(name=name, api=">=1.0", **(info or {}))}
    for hook, function in functions.items():
        members[hook] = staticmethod(hookimpl(function))
    made: EngineHooks = type("Fake", (EngineHooks,), members)()
    return made


def raising(event: Any) -> None:
    raise ValueError("boom")


class Recorder(EngineHooks):
    """Keeps the PluginFailed events."""

    PLUGIN = PluginInfo(name="recorder", api=">=1.0")

    def __init__(self) -> None:
        self.events: list[PluginFailed] = []

    @hookimpl
    def on_plugin_failed(self, event: PluginFailed) -> None:
        self.events.append(event)


def counts(manager: PluginManager, name: str) -> Any:
    return next(report for report in manager.report() if report.name == name)


# Observers


def test_observers_are_told_in_order(build: Any) -> None:
    told: list[tuple[str, Any]] = []
    manager = build(
        plugin("b", on_cache_reset=lambda event: told.append(("b", event))),
        plugin("a", on_cache_reset=lambda event: told.append(("a", event))),
    )
    manager.calls.on_cache_reset(EVENT)
    assert told == [("b", EVENT), ("a", EVENT)]


def test_a_raising_observer_reaches_nobody(build: Any, caplog: pytest.LogCaptureFixture) -> None:
    told: list[Any] = []
    recorder = Recorder()
    manager = build(
        plugin("bad", on_cache_reset=raising),
        plugin("good", on_cache_reset=lambda event: told.append(event)),
        recorder,
    )
    for _ in range(MAX_FAILURES_IN_ROW + 2):
        manager.calls.on_cache_reset(EVENT)
    assert len(told) == MAX_FAILURES_IN_ROW + 2
    report = counts(manager, "bad")
    assert report.calls == {"on_cache_reset": MAX_FAILURES_IN_ROW}
    assert report.errors == {"on_cache_reset": MAX_FAILURES_IN_ROW}
    assert [(event.plugin, event.action) for event in recorder.events] == [
        ("bad", "logged"),
        ("bad", "quarantined"),
    ]
    assert recorder.events[0].error == "ValueError: boom"
    assert recorder.events[0].role is ProcessRole.LAUNCHER
    tracebacks = [record for record in caplog.records if record.exc_info]
    assert len(tracebacks) == 1 and "bad" in tracebacks[0].getMessage()


def test_successes_between_failures_keep_the_observer(build: Any) -> None:
    calls: list[int] = []

    def sometimes(event: Any) -> None:
        calls.append(1)
        if len(calls) % MAX_FAILURES_IN_ROW:
            raise ValueError

    manager = build(plugin("flaky", on_cache_reset=sometimes))
    for _ in range(20):
        manager.calls.on_cache_reset(EVENT)
    assert len(calls) == 20


def test_quarantine_is_per_hook_and_ends_the_cost(build: Any) -> None:
    told: list[Any] = []
    manager = build(
        plugin("bad", on_cache_reset=raising, on_engine_stopping=lambda event: told.append(event))
    )
    assert manager.calls.has_observers("on_cache_reset")
    for _ in range(MAX_FAILURES_IN_ROW):
        manager.calls.on_cache_reset(EVENT)
    assert not manager.calls.has_observers("on_cache_reset")
    assert manager.calls.has_observers("on_engine_stopping")


def test_failures_of_on_plugin_failed_do_not_recurse(build: Any) -> None:
    manager = build(
        plugin("bad", on_cache_reset=raising), plugin("worse", on_plugin_failed=raising)
    )
    for _ in range(5):
        manager.calls.on_cache_reset(EVENT)
    assert counts(manager, "worse").errors["on_plugin_failed"] == 2


def always(error: type[BaseException]) -> Callable[[Any], Any]:
    def function(event: Any) -> None:
        raise error

    return function


def test_the_users_interrupt_passes_through_every_hook(build: Any) -> None:
    interrupted = always(KeyboardInterrupt)
    manager = build(
        plugin("p", on_cache_reset=interrupted, adjust_request=interrupted),
        wrapper("w", interrupted_before),
    )
    calls: list[Callable[[], Any]] = [
        lambda: manager.calls.on_cache_reset(EVENT),
        lambda: manager.calls.adjust_request(REQUEST),
        lambda: manager.calls.bind_step("execute_model", target)("s"),
    ]
    for call in calls:
        with pytest.raises(KeyboardInterrupt):
            call()


OTHERS = [SystemExit, asyncio.CancelledError, GeneratorExit]
"""What is no Exception and comes from a plugin's own code."""


@pytest.mark.parametrize("error", OTHERS)
def test_what_else_is_no_exception_is_an_observers_failure(
    build: Any, error: type[BaseException]
) -> None:
    told: list[Any] = []
    manager = build(
        plugin("bad", on_cache_reset=always(error)),
        plugin("good", on_cache_reset=lambda event: told.append(event)),
    )
    for _ in range(MAX_FAILURES_IN_ROW + 1):
        manager.calls.on_cache_reset(EVENT)
    assert len(told) == MAX_FAILURES_IN_ROW + 1
    assert counts(manager, "bad").errors == {"on_cache_reset": MAX_FAILURES_IN_ROW}


@pytest.mark.parametrize("error", OTHERS)
def test_what_else_is_no_exception_fails_the_request_of_a_filter(
    build: Any, error: type[BaseException]
) -> None:
    recorder = Recorder()
    bad = plugin("bad", adjust_request=always(error), adjust_output=always(error))
    manager = build(bad, recorder)
    calls: list[Callable[[], Any]] = [
        lambda: manager.calls.adjust_request(REQUEST),
        lambda: manager.calls.adjust_output(output()),
    ]
    for call in calls:
        with pytest.raises(RequestFailedError, match=error.__name__) as caught:
            call()
        assert caught.value.plugin == "bad"
    assert [event.action for event in recorder.events] == ["request failed"] * 2


@pytest.mark.parametrize("error", OTHERS)
@pytest.mark.parametrize("when", ["before", "after"])
def test_what_else_is_no_exception_is_a_wrappers_failure(
    build: Any, error: type[BaseException], when: str
) -> None:
    def fails(scheduled: Any) -> Any:
        if when == "before":
            raise error
        yield
        raise error

    manager = build(wrapper("bad", fails))
    with pytest.raises(StepError, match=error.__name__) as caught:
        manager.calls.bind_step("execute_model", target)("s")
    assert caught.value.plugin == "bad"


def test_a_message_that_can_not_be_made_is_left_out(build: Any) -> None:
    class Unprintable(Exception):
        def __str__(self) -> str:
            raise SystemExit

    manager = build(plugin("bad", adjust_request=always(Unprintable)))
    with pytest.raises(RequestFailedError, match="Unprintable"):
        manager.calls.adjust_request(REQUEST)


def test_a_result_that_can_not_be_judged_is_the_filters_failure(build: Any) -> None:
    class Unprintable:
        def __repr__(self) -> str:
            raise SystemExit

    manager = build(plugin("bad", adjust_request=lambda event: Unprintable()))
    with pytest.raises(RequestFailedError, match="SystemExit") as caught:
        manager.calls.adjust_request(REQUEST)
    assert caught.value.plugin == "bad"


def test_in_debug_a_raising_observer_raises(build: Any) -> None:
    config = EngineConfig(engine=EngineSection(debug=True))
    manager = build(plugin("bad", on_cache_reset=raising), config=config)
    with pytest.raises(PluginError, match="boom") as caught:
        manager.calls.on_cache_reset(EVENT)
    assert (caught.value.plugin, caught.value.hook) == ("bad", "on_cache_reset")
    assert isinstance(caught.value.__cause__, ValueError)


def test_what_observers_return_is_ignored(build: Any) -> None:
    manager = build(plugin("p", on_cache_reset=lambda event: 42))
    manager.calls.on_cache_reset(EVENT)
    assert counts(manager, "p").errors == {"on_cache_reset": 0}


def timed(made: EngineHooks, seconds: float) -> tuple[Calls, Counters]:
    """Calls over a clock on which every hook call takes `seconds`."""
    ref = local_ref(made, made.PLUGIN.name)  # type: ignore[attr-defined]
    methods = register_hooks(new_registrar(), made, read_manifest(made, ref), ref)

    def ticks() -> Iterator[float]:
        now = 0.0
        while True:
            yield now
            now += seconds

    counters, source = Counters(), ticks()
    calls = Calls(
        list(methods.values()),
        role=ProcessRole.CORE,
        counters=counters,
        clock=lambda: next(source),
    )
    return calls, counters


def test_a_slow_observer_is_named_once_with_the_number(caplog: pytest.LogCaptureFixture) -> None:
    calls, counters = timed(plugin("slow", on_cache_reset=lambda event: None), 0.25)
    with caplog.at_level(logging.WARNING, "framework.plugins"):
        for _ in range(SLOW_WINDOW - 1):
            calls.on_cache_reset(EVENT)
        assert not caplog.records
        for _ in range(3 * SLOW_WINDOW):
            calls.on_cache_reset(EVENT)
    (record,) = caplog.records
    assert "slow" in record.getMessage() and "250.00 ms" in record.getMessage()
    assert counters.of("slow", "on_cache_reset").seconds == pytest.approx(
        0.25 * (4 * SLOW_WINDOW - 1)
    )
    assert calls.has_observers("on_cache_reset")


def test_a_fast_observer_is_not_named(caplog: pytest.LogCaptureFixture) -> None:
    calls, _ = timed(plugin("fast", on_cache_reset=lambda event: None), SLOW_CALL_S / 2)
    for _ in range(2 * SLOW_WINDOW):
        calls.on_cache_reset(EVENT)
    assert not caplog.records


def test_nobody_listens(build: Any) -> None:
    calls = build().calls
    assert not calls.has_observers("on_step_finished")
    assert not calls.has_request_filters and not calls.has_output_filters
    calls.on_cache_reset(EVENT)
    with pytest.raises(KeyError):
        calls.has_observers("on_moon_risen")


# Filters


def test_a_request_passes_through_filters_in_order(build: Any) -> None:
    import msgspec

    def append(token: int) -> Callable[[Any], Any]:
        return lambda event: msgspec.structs.replace(
            event, prompt_token_ids=[*event.prompt_token_ids, token]
        )

    manager = build(
        plugin("a", adjust_request=append(2)),
        plugin("b", adjust_request=lambda event: None),
        plugin("c", adjust_request=append(3)),
    )
    assert manager.calls.has_request_filters
    assert manager.calls.adjust_request(REQUEST).prompt_token_ids == [1, 2, 3]


def test_a_rejection_ends_the_chain(build: Any) -> None:
    seen: list[Any] = []
    manager = build(
        plugin("a", adjust_request=lambda event: RequestRejected(reason="no")),
        plugin("b", adjust_request=lambda event: seen.append(event)),
    )
    assert manager.calls.adjust_request(REQUEST) == RequestRejected(reason="no")
    assert not seen


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (raising, "ValueError: boom"),
        (lambda event: "text", "returned str 'text'; it must return RequestReceived"),
        (
            lambda event: RequestReceived(
                request_id="r2", prompt_token_ids=[1], params=SamplingParams()
            ),
            "changed the request id from 'r1' to 'r2'",
        ),
    ],
)
def test_a_failing_request_filter_fails_that_request(
    build: Any, function: Callable[..., Any], message: str
) -> None:
    recorder = Recorder()
    manager = build(plugin("bad", adjust_request=function), recorder)
    for _ in range(5):
        with pytest.raises(RequestFailedError, match=message) as caught:
            manager.calls.adjust_request(REQUEST)
        assert (caught.value.request_id, caught.value.plugin) == ("r1", "bad")
    assert [event.action for event in recorder.events] == ["request failed"] * 5
    assert counts(manager, "bad").errors == {"adjust_request": 5}


def test_a_wrong_result_is_a_contract_violation_underneath(build: Any) -> None:
    manager = build(plugin("bad", adjust_output=lambda event: 7))
    with pytest.raises(RequestFailedError) as caught:
        manager.calls.adjust_output(output())
    assert isinstance(caught.value.__cause__, ContractViolation)


def test_outputs_pass_through_filters(build: Any) -> None:
    def shout(event: OutputReady) -> OutputReady:
        return output(text=event.output.outputs[0].text.upper())

    manager = build(plugin("loud", adjust_output=shout))
    adjusted = manager.calls.adjust_output(output(text="hello"))
    assert adjusted.output.outputs[0].text == "HELLO"
    other = build(plugin("swap", adjust_output=lambda event: output("r2")))
    with pytest.raises(RequestFailedError, match="'r1' to 'r2'"):
        other.calls.adjust_output(output())


def test_the_config_passes_through_filters_before_it_is_used(build: Any) -> None:
    def rename(event: ConfigResolved) -> ConfigResolved:
        return ConfigResolved(config=EngineConfig(model=ModelConfig(name="changed")))

    manager = build(plugin("a", adjust_config=rename))
    assert manager.config.model.name == "changed"
    assert counts(manager, "a").reached == ("adjust_config",)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda event: event.config, "must return ConfigResolved or None"),
        (lambda event: ConfigResolved(config=None), "must be an EngineConfig"),  # type: ignore[arg-type]
        (
            lambda event: ConfigResolved(
                config=EngineConfig(executor=ExecutorConfig(tensor_parallel_size=0))
            ),
            r"not valid.*tensor_parallel_size",
        ),
        (
            lambda event: ConfigResolved(
                config=EngineConfig(plugins=PluginsConfig(options={"a": {"x": object()}}))
            ),
            "not valid",
        ),
        (
            lambda event: ConfigResolved(config=EngineConfig(plugins=PluginsConfig(block=("z",)))),
            r"changed plugins\.block",
        ),
    ],
)
def test_a_wrong_config_stops_the_start(
    build: Any, function: Callable[..., Any], message: str
) -> None:
    with pytest.raises(ContractViolation, match=message) as caught:
        build(plugin("a", adjust_config=function))
    assert (caught.value.plugin, caught.value.hook) == ("a", "adjust_config")


def test_a_raising_config_filter_stops_the_start(build: Any) -> None:
    with pytest.raises(PluginError, match="boom") as caught:
        build(plugin("a", adjust_config=raising))
    assert caught.value.plugin == "a"


@pytest.mark.parametrize("error", [PluginConfigError("limit is odd"), ConfigError("no GPU")])
def test_a_config_filter_may_raise_an_error_of_the_contract(build: Any, error: Exception) -> None:
    def refuse(event: ConfigResolved) -> None:
        raise error

    with pytest.raises(type(error)) as caught:
        build(plugin("a", adjust_config=refuse))
    assert caught.value is error


# Step wrappers


def wrapper(name: str, function: Callable[..., Any], phase: str = "execute_model") -> EngineHooks:
    members: dict[str, Any] = {
        "PLUGIN": PluginInfo(name=name, api=">=1.0", provides=(f"wrap:{phase}",)),
        phase: staticmethod(hookimpl(wrapper=True)(function)),
    }
    made: EngineHooks = type("Wraps", (EngineHooks,), members)()
    return made


def target(scheduled: Any) -> Any:
    return [f"target {scheduled}"]


def test_without_wrappers_the_target_itself_is_bound(build: Any) -> None:
    manager = build()
    assert manager.calls.bind_step("execute_model", target) is target
    with pytest.raises(InternalError, match="no step phase"):
        manager.calls.bind_step("think", target)


def test_wrappers_nest_with_the_first_outermost(build: Any) -> None:
    def around(name: str) -> Callable[..., Any]:
        def wrap(scheduled: Any) -> Any:
            result = yield
            return [name, *result]

        return wrap

    manager = build(wrapper("outer", around("outer")), wrapper("inner", around("inner")))
    bound = manager.calls.bind_step("execute_model", target)
    assert bound("s") == ["outer", "inner", "target s"]
    assert counts(manager, "outer").calls == {"execute_model": 1}


def test_a_wrapper_may_handle_what_the_target_raises(build: Any) -> None:
    def handles(scheduled: Any) -> Any:
        try:
            return (yield)
        except ValueError:
            return "handled"

    def fails(scheduled: Any) -> Any:
        raise ValueError

    assert build(wrapper("w", handles)).calls.bind_step("execute_model", fails)("s") == "handled"


def test_what_the_target_raises_comes_out_untouched(build: Any) -> None:
    boom = ValueError("boom")

    def passes(scheduled: Any) -> Any:
        return (yield)

    def fails(scheduled: Any) -> Any:
        raise boom

    manager = build(wrapper("w", passes))
    with pytest.raises(ValueError, match="boom") as caught:
        manager.calls.bind_step("execute_model", fails)("s")
    assert caught.value is boom
    assert counts(manager, "w").errors == {"execute_model": 0}


def interrupted_before(scheduled: Any) -> Any:
    raise KeyboardInterrupt
    yield


def raises_before(scheduled: Any) -> Any:
    raise KeyError("before")
    yield


def raises_after(scheduled: Any) -> Any:
    yield
    raise KeyError("after")


def never_yields(scheduled: Any) -> Any:
    if scheduled is None:
        yield
    return 1


def yields_twice(scheduled: Any) -> Any:
    yield
    yield


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (raises_before, "before"),
        (raises_after, "after"),
        (never_yields, "without a yield"),
        (yields_twice, "second yield"),
    ],
)
def test_a_failing_wrapper_is_named(build: Any, function: Callable[..., Any], message: str) -> None:
    def passes(scheduled: Any) -> Any:
        return (yield)

    manager = build(wrapper("innocent", passes), wrapper("guilty", function))
    with pytest.raises(StepError, match=message) as caught:
        manager.calls.bind_step("execute_model", target)("s")
    assert (caught.value.plugin, caught.value.hook) == ("guilty", "execute_model")
    assert counts(manager, "guilty").errors == {"execute_model": 1}
    assert counts(manager, "innocent").errors == {"execute_model": 0}


def test_a_phase_without_result_can_be_wrapped(build: Any) -> None:
    seen: list[Any] = []

    def spies(scheduled: Any, applied: Any) -> Any:
        seen.append((scheduled, applied))
        return (yield)

    manager = build(wrapper("spy", spies, "update_from_output"))
    bound = manager.calls.bind_step("update_from_output", lambda scheduled, applied: None)
    assert bound("s", "a") is None and seen == [("s", "a")]
