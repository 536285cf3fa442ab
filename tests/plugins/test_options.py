"""Options of plugins and providers."""

from __future__ import annotations

import sys
import types
from typing import Annotated, Any

import msgspec
import pytest
from msgspec import Meta

from framework.plugins import PluginManager
from hookspecs import EngineConfig, EngineHooks, PluginInfo, Provider, hookimpl
from hookspecs.config import PluginsConfig, SchedulerConfig
from hookspecs.contracts.policy import SchedulingPolicy
from hookspecs.contracts.stats import Tracer
from hookspecs.errors import ConfigError, PluginConfigError


class Nested(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    depth: int = 1


class PluginOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    path: str = "here"
    nested: Nested = Nested()


class SamplerOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    top: Annotated[int, Meta(ge=1)] = 5


class Needy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    token: str


class Plugin(EngineHooks):
    PLUGIN = PluginInfo(name="thing", api=">=1.0", options=PluginOptions)

    @hookimpl
    def register_scheduling_policies(self) -> Any:
        yield Provider("own", "fake_targets:Policy", options=SamplerOptions)
        yield Provider("shared", "fake_targets:Policy")
        yield Provider("needy", "fake_targets:Policy", options=Needy)


class Plain(EngineHooks):
    PLUGIN = PluginInfo(name="plain", api=">=1.0")

    @hookimpl
    def register_tracers(self) -> Any:
        yield Provider("bare", "fake_targets:Trace")


KIND = "scheduling_policy"


class Policy(SchedulingPolicy):
    """Keeps its context."""


class Trace(Tracer):
    def on_request_finished(self, stats: Any, trace_headers: dict[str, str]) -> None: ...


@pytest.fixture(autouse=True)
def targets(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("fake_targets")
    module.Policy, module.Trace = Policy, Trace  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "fake_targets", module)


def options_of(manager: PluginManager, kind: str, name: str) -> Any:
    return manager.create(kind, name).context.options


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"thign": {}}, r"plugins\.options\.thign.*Did you mean thing"),
        ({"owm": {"top": 3}}, "Did you mean own"),
        ({"own": {"tpo": 3}}, r"plugins\.options\.own has no option 'tpo'.*Did you mean top"),
        ({"own": {"top": "3"}}, r"plugins\.options\.own\.top: Expected `int`"),
        ({"own": {"top": 0}}, r"plugins\.options\.own\.top: Expected `int` >= 1"),
        ({"thing": {"nested": {"depth": "x"}}}, r"plugins\.options\.thing\.nested\.depth"),
        ({"thing": {"nested": {"deep": 1}}}, r"plugins\.options\.thing\.nested.*`deep`"),
        ({"plain": {"a": 1}}, "has no option 'a'; there are: none"),
        ({"bare": {"a": 1}}, "has no option 'a'; there are: none"),
    ],
)
def test_wrong_options_are_refused(build: Any, options: Any, message: str) -> None:
    with pytest.raises(PluginConfigError, match=message) as caught:
        build(Plugin(), Plain(), options=options)
    assert isinstance(caught.value, ConfigError)


def test_the_error_names_the_distribution(site: Any, build: Any) -> None:
    site.plugin(
        "x",
        top="import msgspec\nclass O(msgspec.Struct, frozen=True):\n    size: int = 1\n",
        info="options=O",
    )
    with pytest.raises(PluginConfigError, match=r"x-dist 1\.0") as caught:
        build(options={"x": {"size": "big"}})
    assert (caught.value.plugin, caught.value.distribution) == ("x", "x-dist")


def test_options_reach_the_struct_of_the_provider_or_its_plugin(build: Any) -> None:
    manager = build(
        Plugin(),
        Plain(),
        options={"own": {"top": 3}, "thing": {"path": "there"}, "needy": {"token": "t"}},
    )
    assert options_of(manager, KIND, "own") == SamplerOptions(top=3)
    assert options_of(manager, KIND, "shared") == PluginOptions(path="there")
    assert options_of(manager, KIND, "needy") == Needy(token="t")
    assert options_of(manager, "tracer", "bare") is None


def test_values_under_the_providers_name_come_before_the_plugins(build: Any) -> None:
    manager = build(Plugin(), options={"shared": {"path": "mine"}, "thing": {"path": "there"}})
    assert options_of(manager, KIND, "shared") == PluginOptions(path="mine")


def test_defaults_without_a_table(build: Any) -> None:
    assert options_of(build(Plugin()), KIND, "own") == SamplerOptions()


def test_a_selected_provider_needs_its_required_options_at_start(build: Any) -> None:
    config = EngineConfig(scheduler=SchedulerConfig(policies=("needy",)))
    with pytest.raises(PluginConfigError, match=r"plugins\.options\.needy.*`token`"):
        build(Plugin(), config=config)
    assert build(Plugin())


def test_a_name_that_may_mean_two_structs_is_refused(build: Any) -> None:
    class Other(EngineHooks):
        PLUGIN = PluginInfo(name="other", api=">=1.0")

        @hookimpl
        def register_tracers(self) -> Any:
            yield Provider("own", "fake_targets:Trace", options=Needy)

    assert build(Plugin(), Other())
    with pytest.raises(PluginConfigError, match=r"plugins\.options\.own may mean"):
        build(Plugin(), Other(), options={"own": {"top": 3}})


def test_distribution_and_name_as_key(site: Any, build: Any) -> None:
    body = (
        "@hookimpl\ndef register_scheduling_policies(self):\n"
        "    yield Provider('s', 'fake_targets:Policy', options=O)"
    )
    top = "import msgspec\nclass O(msgspec.Struct, frozen=True):\n    {}: int = 1\n"
    site.plugin("one", body, top=top.format("a"))
    site.plugin("two", body, top=top.format("b"))
    config = EngineConfig(
        scheduler=SchedulerConfig(policies=("two-dist:s",)),
        plugins=PluginsConfig(options={"two-dist:s": {"b": 7}}),
    )
    manager = build(config=config)
    assert options_of(manager, KIND, "two-dist:s").b == 7


def test_options_of_a_broken_plugin_are_not_checked_and_that_is_said(
    site: Any, build: Any, caplog: pytest.LogCaptureFixture
) -> None:
    site.plugin("bad", top="1 / 0")
    build(options={"bad": {"x": 1}})
    assert "plugins.options.bad is not checked" in caplog.text
