"""Plugins that fail in less usual places: who is named, and who is not harmed."""

from __future__ import annotations

from typing import Any

import pytest

import framework
from framework.plugins.check import check_plugin
from hookspecs import EngineHooks, PluginInfo, SamplingParams, hookimpl
from hookspecs.errors import ContractViolation, PluginError, UnsupportedModelError
from hookspecs.events import EngineFailed, WorkerReady

PARAMS = SamplingParams(max_tokens=3, temperature=0, detokenize=False)
CODE = """
from acme_engine.executor import ThreadExecutor
from acme_engine.kv_cache import PlainKVCacheManager
from acme_engine.worker import EchoWorker
from hookspecs import EngineHooks, PluginInfo, Provider, hookimpl

class NoFuture(ThreadExecutor):
    def execute_model(self, scheduled):
        return None

class RaisingExecutor(ThreadExecutor):
    def execute_model(self, scheduled):
        raise OSError("no thread")

class RaisingFree(PlainKVCacheManager):
    def free(self, slot, *, keep=True):
        raise OSError("no disk")

class PropertyForMethod(PlainKVCacheManager):
    @property
    def blocks_in_use(self):
        return 0

class NoContext(EchoWorker):
    def __init__(self, context):
        EchoWorker.__init__(self, context)
        del self.context

    def load_model(self):
        pass

    def available_kv_bytes(self):
        return 1 << 20

class Bad(EngineHooks):
    PLUGIN = PluginInfo(name="bad", api=">=1.0,<2", provides=("wrap:schedule",) if {wraps} else ())

    @hookimpl
    def register_executors(self):
        yield Provider("no-future", "site_bad:NoFuture")
        yield Provider("raising-executor", "site_bad:RaisingExecutor")

    @hookimpl
    def register_kv_cache_managers(self):
        yield Provider("raising-free", "site_bad:RaisingFree")
        yield Provider("property-for-method", "site_bad:PropertyForMethod")

    {methods}

plugin = Bad()
"""
WRAPPER = """@hookimpl(wrapper=True)
    def schedule(self):
        yield
        return 5
"""
BROKEN = """@hookimpl
    def register_{kind}s(self):
        yield Provider("aaa", "package_that_is_not_there:Thing")
"""
CONTEXT = """@hookimpl
    def register_workers(self):
        yield Provider("no-context", "site_bad:NoContext")
"""


def config(**sections: dict[str, Any]) -> dict[str, dict[str, Any]]:
    made: dict[str, dict[str, Any]] = {
        "model": {"name": "scripted"},
        "executor": {"worker": "scripted"},
        "stats": {"loggers": []},
    }
    for name, section in sections.items():
        made[name] = made.get(name, {}) | section
    return made


class Ear(EngineHooks):
    """Hears why an engine stops, and of ready workers."""

    PLUGIN = PluginInfo(name="ear", api=">=1.0,<2")

    def __init__(self) -> None:
        self.engines: list[EngineFailed] = []

    @hookimpl
    def on_engine_failed(self, event: EngineFailed) -> None:
        self.engines.append(event)

    @hookimpl
    def on_worker_ready(self, event: WorkerReady) -> None:
        pass


@pytest.fixture
def bad(acme: str, site: Any) -> Any:
    """Installs the plugin `bad`, with more methods if told so."""

    def install(methods: str = "") -> None:
        wraps = "wrapper" in methods
        site.plugin("bad", CODE.replace("{wraps}", str(wraps)).replace("{methods}", methods))

    return install


def blamed(settings: dict[str, dict[str, Any]], error: type[PluginError]) -> str | None:
    """The plugin that the error and the event name, if they agree."""
    ear = Ear()
    with (
        framework.launch(settings, plugins=[ear]) as engine,
        pytest.raises(error) as caught,
    ):
        engine.generate([[3, 4]], PARAMS)
    assert [event.plugin for event in ear.engines] == [caught.value.plugin]
    assert str(caught.value).count(f"plugin {caught.value.plugin!r}") == 1
    return caught.value.plugin


def test_a_phase_without_a_future_is_a_violation(bad: Any) -> None:
    bad()
    # An installed plugin that wraps the phase would be as likely a cause.
    settings = config(executor={"name": "no-future"}, plugins={"activation": "none"})
    assert blamed(settings, ContractViolation) == "bad"


def test_an_executor_that_raises_is_named(bad: Any) -> None:
    bad()
    assert blamed(config(executor={"name": "raising-executor"}), PluginError) == "bad"


def test_a_cache_manager_that_raises_is_named(bad: Any) -> None:
    bad()
    assert blamed(config(cache={"manager": "raising-free"}), PluginError) == "bad"


def test_a_wrapper_with_a_wrong_result_is_named(bad: Any) -> None:
    bad(WRAPPER)
    assert blamed(config(), ContractViolation) == "bad"


def test_the_check_tells_properties_from_methods(bad: Any) -> None:
    bad()
    assert any("blocks_in_use" in finding for finding in check_plugin("bad"))


def test_a_source_that_nobody_selected_does_not_stop_the_start(bad: Any) -> None:
    bad(BROKEN.replace("{kind}", "model_source"))
    framework.launch(config()).shutdown()


def test_a_worker_that_nobody_selected_does_not_stop_the_choice(bad: Any, caplog: Any) -> None:
    bad(BROKEN.replace("{kind}", "worker"))
    auto = config(executor={"worker": "auto"})
    with pytest.raises(UnsupportedModelError):  # the chosen worker can not run `scripted`
        framework.launch(auto)
    assert "package_that_is_not_there" not in caplog.text
    with pytest.raises(UnsupportedModelError):
        framework.launch(auto | {"plugins": {"enable": ["bad"]}})
    assert "package_that_is_not_there" in caplog.text


def test_a_worker_that_does_not_keep_its_context_is_named(bad: Any) -> None:
    bad(CONTEXT)
    with pytest.raises(ContractViolation):
        framework.launch(
            config(model={"name": "echo"}, executor={"worker": "no-context"}), plugins=[Ear()]
        )


def test_a_source_that_was_only_asked_is_unused(acme: str) -> None:
    with framework.launch(config()) as engine:
        states = {report.name: str(report.state) for report in engine.plugins()}
    assert states[acme] == "unused"
