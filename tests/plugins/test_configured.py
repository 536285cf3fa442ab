"""`EngineHooks.configured`: how the hooks of a plugin get its options."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import Annotated, Any, Self

import msgspec
import pytest
from msgspec import Meta

import framework
from framework.plugins import PluginManager
from hookspecs import (
    EngineConfig,
    EngineHooks,
    PluginInfo,
    ProcessRole,
    Provider,
    SamplingParams,
    hookimpl,
)
from hookspecs.config import PluginsConfig
from hookspecs.contracts.base import PluginContext
from hookspecs.errors import ContractViolation, PluginConfigError, PluginError
from hookspecs.events import CacheReset, ConfigResolved, EngineStopping, StepFinished


class CountOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    by: Annotated[int, Meta(ge=1, description="What to count by.")] = 1


class CountPlugin(EngineHooks):
    """Counts steps; `made` has the object of each configuration."""

    PLUGIN = PluginInfo(name="count", api=">=1.0,<2", options=CountOptions)

    def __init__(self, by: int = 0) -> None:
        self.by = by
        self.count = 0
        self.made: list[CountPlugin] = []

    def configured(self, context: PluginContext) -> CountPlugin:
        made = CountPlugin(context.options.by)
        self.made.append(made)
        return made

    @hookimpl
    def on_step_finished(self, event: StepFinished) -> None:
        self.count += self.by


def config(**options: Any) -> EngineConfig:
    return EngineConfig(plugins=PluginsConfig(options={"count": options} if options else {}))


def launch(plugin: object, **options: Any) -> framework.Engine:
    settings = {
        "model": {"name": "scripted"},
        "executor": {"worker": "scripted"},
        "stats": {"loggers": []},
        "plugins": {"options": {"count": options}},
    }
    return framework.launch(settings, plugins=[plugin])


def generate(engine: framework.Engine, tokens: int) -> None:
    params = SamplingParams(max_tokens=tokens, temperature=0, detokenize=False)
    list(engine.generate([[1, 2, 3]], params))


def test_two_engines_of_one_process_have_options_and_state_of_their_own() -> None:
    plugin = CountPlugin()
    with launch(plugin, by=1) as one, launch(plugin, by=10) as ten:
        generate(one, 3)
        generate(ten, 2)
        generate(one, 1)
    assert plugin.count == 0, "hooks of the object that was registered are called"
    assert [made.count for made in plugin.made if made.count] == [4, 20]


def test_without_options_there_are_the_defaults() -> None:
    plugin = CountPlugin()
    PluginManager.build(config(), objects=[plugin])
    assert plugin.made[-1].by == 1


def test_wrong_options_are_a_configuration_error() -> None:
    with pytest.raises(PluginConfigError, match=r"plugins\.options\.count\.by: .*>= 1"):
        PluginManager.build(config(by=0), objects=[CountPlugin()])


class Shift(EngineHooks):
    """Changes an option of its own, and hears of it."""

    PLUGIN = PluginInfo(name="count", api=">=1.0,<2", options=CountOptions)
    heard: tuple[int, ...] = ()

    def configured(self, context: PluginContext) -> Self:
        self.heard += (context.options.by,)
        assert (context.plugin, context.name) == ("count", "count")
        assert context.config.plugins.options["count"]["by"] == context.options.by
        return self

    @hookimpl
    def adjust_config(self, event: ConfigResolved) -> ConfigResolved:
        assert self.heard == (1,)
        return ConfigResolved(config=config(by=5))


def test_the_options_are_those_of_the_final_configuration() -> None:
    plugin = Shift()
    PluginManager.build(config(by=1), objects=[plugin])
    assert plugin.heard == (1, 5)


class Raises(CountPlugin):
    error: Exception = ValueError("no count")

    def configured(self, context: PluginContext) -> Self:
        raise self.error


def test_an_exception_stops_the_start_and_names_the_plugin() -> None:
    with pytest.raises(PluginError, match=r"'count'.*configured: ValueError: no count") as raised:
        PluginManager.build(config(), objects=[Raises()])
    assert raised.value.plugin == "count"
    plugin = Raises()
    plugin.error = PluginConfigError("by does not fit")
    with pytest.raises(PluginConfigError, match=r"^by does not fit$"):
        PluginManager.build(config(), objects=[plugin])


class Other(CountPlugin):
    def configured(self, context: PluginContext) -> CountPlugin:  # type: ignore[override]
        return CountPlugin()


def test_an_object_of_another_class_is_refused() -> None:
    with pytest.raises(ContractViolation, match="object of the class Other"):
        PluginManager.build(config(), objects=[Other()])


class Idle(EngineHooks):
    PLUGIN = PluginInfo(name="count", api=">=1.0,<2", options=CountOptions)

    def configured(self, context: PluginContext) -> Self:
        raise AssertionError("there is no hook that would be called")


def test_without_hooks_nobody_is_asked() -> None:
    PluginManager.build(config(), objects=[Idle()])


class Needy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    path: Annotated[str, Meta(description="Where to.")]


class OffersOnly(EngineHooks):
    """Installed, not selected: an operator gives it no options."""

    PLUGIN = PluginInfo(name="count", api=">=1.0,<2", options=Needy)

    def configured(self, context: PluginContext) -> Self:
        raise AssertionError("there is no hook that would be called")

    @hookimpl
    def register_stat_loggers(self) -> Iterable[Provider[Any]]:
        yield Provider("count", "nowhere:C")


def test_who_only_offers_providers_is_not_asked() -> None:
    (report,) = [
        report
        for report in PluginManager.build(config(), objects=[OffersOnly()]).report()
        if report.name == "count"
    ]
    assert report.state == "unused"


class Wraps:
    """As wrappers are written: it derives from nothing."""

    PLUGIN = PluginInfo(
        name="count", api=">=1.0,<2", options=CountOptions, provides=("wrap:schedule",)
    )

    def __init__(self, by: int = 0) -> None:
        self.by = by
        self.count = 0
        self.made: list[Wraps] = []

    def configured(self, context: PluginContext) -> Wraps:
        self.made.append(Wraps(context.options.by))
        return self.made[-1]

    @hookimpl(wrapper=True)
    def schedule(self) -> Generator[None, Any, Any]:
        self.count += self.by
        return (yield)


def test_a_wrapper_has_it_too() -> None:
    plugin = Wraps()
    with launch(plugin, by=4) as engine:
        generate(engine, 3)
    assert (plugin.count, plugin.made[-1].by) == (0, 4)
    assert plugin.made[-1].count >= 12


class Unusual(EngineHooks):
    """Its hooks are no methods of its own: of an object it has, and of a function in it."""

    PLUGIN = PluginInfo(name="count", api=">=1.0,<2")

    def __init__(self) -> None:
        self.inner = Inner()
        self.heard: list[str] = []
        self.made: list[Unusual] = []
        self.on_step_finished = self.inner.on_step_finished  # type: ignore[method-assign]

        def hear(event: CacheReset) -> None:
            self.heard.append("function")

        self.of_a_function = hookimpl(hear, specname="on_cache_reset")

    def configured(self, context: PluginContext) -> Unusual:
        self.made.append(Unusual())
        return self.made[-1]

    @hookimpl(specname="on_engine_stopping")
    def renamed(self, event: EngineStopping) -> None:
        self.heard.append("renamed")


class Inner:
    """Has the hook."""

    count = 0

    @hookimpl
    def on_step_finished(self, event: StepFinished) -> None:
        self.count += 1


def test_hooks_of_every_kind_are_those_of_the_object_made() -> None:
    plugin = Unusual()
    with launch(plugin) as engine:
        generate(engine, 3)
        engine.engine.reset_prefix_cache()
    made = plugin.made[-1]
    assert (plugin.inner.count, plugin.heard) == (0, [])
    assert (made.inner.count, made.heard) == (3, ["function", "renamed"])


class Loses(Unusual):
    def configured(self, context: PluginContext) -> Loses:
        made = Loses()
        del made.of_a_function
        return made


def test_an_object_without_a_hook_is_refused() -> None:
    with pytest.raises(ContractViolation, match="hook of_a_function can not be read") as raised:
        PluginManager.build(config(), objects=[Loses()])
    assert (raised.value.plugin, raised.value.hook) == ("count", "on_cache_reset")


def test_a_child_process_configures_its_own() -> None:
    boot = PluginManager.build(config(by=7), objects=[PLUGIN]).boot(ProcessRole.CORE)
    PLUGIN.made.clear()
    PluginManager.from_boot(type(boot).decode(boot.encode()))
    (made,) = PLUGIN.made
    assert made.by == 7


PLUGIN = CountPlugin()
