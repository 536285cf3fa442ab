"""Which hooks take part: built-in, installed and local plugins under each setting."""

from __future__ import annotations

from typing import Any

import pytest

from hookspecs import EngineHooks, PluginInfo, hookimpl
from hookspecs.errors import ConfigError, ProviderNotFoundError

EVERYTHING = """
@hookimpl
def register_samplers(self):
    yield Provider('s', 'm:C')

@hookimpl
def register_cli_commands(self):
    yield Provider('c', 'm:C')

@hookimpl
def register_http_routes(self):
    yield Provider('r', 'm:C')

@hookimpl
def register_frontends(self):
    yield Provider('f', 'm:C')

@hookimpl
def on_cache_reset(self, event): ...

@hookimpl
def adjust_config(self, event): ...

@hookimpl
def adjust_request(self, event): ...

@hookimpl
def adjust_output(self, event): ...

@hookimpl(wrapper=True)
def schedule(self):
    return (yield)
"""
PROVIDERS = {"register_samplers"}
AUTO = {"register_cli_commands", "on_cache_reset", "adjust_config", "schedule"}
LISTED = {"register_http_routes", "register_frontends", "adjust_request", "adjust_output"}
ALL = PROVIDERS | AUTO | LISTED


@pytest.mark.parametrize(
    ("section", "hooks"),
    [
        ({}, PROVIDERS | AUTO),
        ({"enable": ("x",)}, ALL),
        ({"activation": "listed"}, PROVIDERS),
        ({"activation": "listed", "enable": ("x",)}, ALL),
        ({"activation": "none"}, PROVIDERS),
        ({"activation": "none", "enable": ("x",)}, PROVIDERS),
        ({"required": ("x",)}, PROVIDERS | AUTO),
        ({"block": ("x",)}, set()),
        ({"block": ("x",), "enable": ("x",)}, set()),
    ],
)
def test_matrix_of_an_installed_plugin(
    site: Any, build: Any, section: Any, hooks: set[str]
) -> None:
    site.plugin("x", EVERYTHING, info="provides=('wrap:schedule',)")
    (report,) = build(**section).report()
    assert set(report.hooks) == hooks
    assert set(report.withheld) == (set() if "block" in section else ALL - hooks)


@pytest.mark.parametrize("section", [{}, {"activation": "listed"}, {"activation": "none"}])
def test_builtin_plugins_take_part_unless_blocked(site: Any, build: Any, section: Any) -> None:
    site.plugin(
        "x", EVERYTHING, info="provides=('wrap:schedule',)", distribution="engine_framework"
    )
    (report,) = build(**section).report()
    assert set(report.hooks) == ALL and report.source == "builtin"
    (report,) = build(block=("x",), **section).report()
    assert report.state == "disabled"


class Local(EngineHooks):
    PLUGIN = PluginInfo(name="local-one", api=">=1.0")

    @hookimpl
    def adjust_output(self, event: Any) -> None: ...


@pytest.mark.parametrize("section", [{}, {"activation": "listed"}, {"activation": "none"}])
def test_local_objects_count_as_enabled(build: Any, section: Any) -> None:
    (report,) = build(Local(), **section).report()
    assert report.hooks == ("adjust_output",) and report.source == "local"
    assert build(Local(), block=("local-one",)).report()[0].state == "disabled"


def test_the_rescue_switch_leaves_the_builtin_ones(site: Any, build: Any) -> None:
    site.plugin("own", EVERYTHING.split("@hookimpl(wrapper")[0], distribution="engine_framework")
    site.plugin("other", top="raise SystemExit('imported')")
    manager = build(environ={"FRAMEWORK_PLUGINS": "none"})
    states = {report.name: report.state.value for report in manager.report()}
    assert states == {"own": "active", "other": "disabled"}


def test_options_of_plugins_left_out_do_not_stop_the_rescue(
    site: Any, build: Any, caplog: pytest.LogCaptureFixture
) -> None:
    site.plugin("other")
    manager = build(
        environ={"FRAMEWORK_PLUGINS": "none"}, options={"other": {"a": 1}, "its-provider": {"b": 2}}
    )
    assert [report.state for report in manager.report()] == ["disabled"]
    assert "plugins.options.other is not checked" in caplog.text
    assert "plugins.options.its-provider" in caplog.text


def test_the_rescue_switch_has_one_value(build: Any) -> None:
    with pytest.raises(ConfigError, match="FRAMEWORK_PLUGINS is 'off'"):
        build(environ={"FRAMEWORK_PLUGINS": "off"})


def test_a_withheld_provider_is_explained(site: Any, build: Any) -> None:
    site.plugin("x", EVERYTHING, info="provides=('wrap:schedule',)")
    manager = build()
    assert manager.providers("frontend") == []
    with pytest.raises(ProviderNotFoundError, match=r"x-dist.*plugins\.enable"):
        manager.resolve("frontend", "f")
    assert build(enable=("x",)).resolve("frontend", "f").provider.name == "f"


def test_states(site: Any, build: Any) -> None:
    from hookspecs.config import EngineConfig, ExecutorConfig

    site.plugin("observer", "@hookimpl\ndef on_cache_reset(self, event): ...")
    site.plugin("silent", "@hookimpl\ndef adjust_output(self, event): ...")
    site.plugin("chosen", "@hookimpl\ndef register_samplers(self):\n    yield Provider('s', 'm:C')")
    site.plugin("idle", "@hookimpl\ndef register_samplers(self):\n    yield Provider('t', 'm:C')")
    manager = build(config=EngineConfig(executor=ExecutorConfig(sampler="s")))
    states = {report.name: report.state.value for report in manager.report()}
    assert states == {
        "chosen": "active",
        "idle": "unused",
        "observer": "active",
        "silent": "disabled",
    }
    manager.mark_used("sampler", "t")
    assert {report.name: report.state for report in manager.report()}["idle"] == "active"
