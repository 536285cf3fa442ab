"""Plugins that misbehave in ways that `except Exception` alone does not contain."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from framework.core.engine import EngineCore
from hookspecs import EngineHooks, PluginInfo, Provider, hookimpl
from hookspecs.contracts.executor import Executor
from hookspecs.errors import PluginError, PluginLoadError, ProviderError
from hookspecs.types.control import EngineState

OBSERVERS = [
    *("on_engine_started", "on_worker_ready", "on_request_admitted", "on_request_finished"),
    *("on_step_finished", "on_cache_reset", "on_plugin_failed", "on_engine_stopping"),
]


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


def plugin(name: Any = "hostile", **hooks: Callable[..., Any]) -> Any:
    members = {hook: hookimpl(function) for hook, function in hooks.items()}
    info = PluginInfo(name=name, api=">=1.0,<2")
    return type("Hostile", (EngineHooks,), {"PLUGIN": info, **members})()


def raising(error: BaseException) -> Callable[..., Any]:
    def hook(self: object, event: Any) -> None:
        raise error

    return hook


def recursing(self: object, event: Any) -> None:
    recursing(self, event)


@pytest.mark.parametrize("observer", OBSERVERS)
@pytest.mark.parametrize("hook", [raising(Unspeakable()), recursing], ids=["message", "stack"])
def test_observers_reach_nobody(launch: Any, answer: Any, observer: str, hook: Any) -> None:
    engine = launch(plugin(**{observer: hook}))
    assert answer(engine) == answer(engine)
    engine.shutdown()


@pytest.mark.parametrize("hook", ["adjust_request", "adjust_output"])
def test_filters_end_their_request(launch: Any, hook: str) -> None:
    engine = launch(plugin(**{hook: raising(Unspeakable())}))
    (output,) = engine.generate([[1, 2]])
    assert output.outputs[0].finish_reason == "error"
    assert "Unspeakable" in (output.outputs[0].error or "")
    assert engine.engine.num_requests == 0


@pytest.mark.parametrize("error", [Unspeakable(), SystemExit(3)], ids=["message", "exit"])
def test_registration(launch: Any, error: BaseException) -> None:
    def register(self: object) -> Any:
        raise error

    with pytest.raises(PluginLoadError, match=type(error).__name__):
        launch(plugin(register_workers=register))


@pytest.mark.parametrize("error", [Unspeakable(), SystemExit(3)], ids=["message", "exit"])
def test_what_a_provider_constructs(
    launch: Any, error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    def make(context: object) -> Any:
        raise error

    module = ModuleType("hostile_parts")
    module.make = make  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "hostile_parts", module)

    def register(self: object) -> Any:
        yield Provider("hostile", "hostile_parts:make")

    with pytest.raises(ProviderError, match=type(error).__name__):
        launch(plugin(register_schedulers=register), scheduler={"name": "hostile"})


@pytest.mark.parametrize("name", [5, None, b"x", "", "A", "a b", "../x", "a\n", "p\u0301"])
def test_names(launch: Any, name: Any) -> None:
    with pytest.raises(PluginError):
        launch(plugin(name))


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3), GeneratorExit()])
def test_shutdown_ends_the_executor_whatever_an_observer_raises(
    launch: Any, error: BaseException
) -> None:
    """Ctrl-C comes out; all else is a failure of the observer."""
    engine = launch(plugin(on_engine_stopping=raising(error)))
    core: EngineCore = engine.engine._client._core
    executor: Executor = core.parts.executor
    interrupted = isinstance(error, KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt) if interrupted else contextlib.nullcontext():
        engine.shutdown()
    assert core.state is EngineState.STOPPED
    with pytest.raises(Exception, match="shut down"):
        executor.check_health()
    engine.shutdown()


def test_a_cache_that_does_not_fit_is_told(launch: Any) -> None:
    with pytest.raises(ProviderError, match="worker-scripted"):
        launch(cache={"num_blocks": 2**55})
