"""The struct that every list of plugins shows."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from framework.plugins import PluginReport
from framework.plugins.report import call_stats, merged_reports
from framework.plugins.specs import HOOKS
from hookspecs.events import CacheReset
from hookspecs.hooks import EngineHooks
from hookspecs.info import PluginInfo, Provider, Tier
from hookspecs.kinds import PLUGIN_KINDS
from hookspecs.markers import hookimpl


def test_what_a_report_says(site: Any, build: Any) -> None:
    site.plugin(
        "full",
        "@hookimpl\ndef register_samplers(self):\n    yield Provider('s', 'm:C')\n"
        "@hookimpl\ndef on_cache_reset(self, event): ...\n"
        "@hookimpl\ndef on_engine_failed(self, event): ...\n"
        "@hookimpl\ndef adjust_output(self, event): ...",
        info="description='Does a lot'",
        version="2.5",
    )
    manager = build()
    manager.calls.on_cache_reset(CacheReset(engine_index=0))
    manager.calls.on_cache_reset(CacheReset(engine_index=0))
    (report,) = manager.report()
    assert (report.name, report.state, report.source) == ("full", "active", "entry_point")
    assert (report.distribution, report.version, report.api) == ("full-dist", "2.5", ">=1.0,<2")
    assert report.description == "Does a lot"
    assert report.roles == ("launcher", "frontend", "core", "worker")
    assert report.providers == ("sampler:s",)
    assert set(report.hooks) == {"register_samplers", "on_cache_reset", "on_engine_failed"}
    assert set(report.reached) == {"register_samplers", "on_cache_reset"}
    assert report.withheld == ("adjust_output",)
    assert report.calls == {"register_samplers": 0, "on_cache_reset": 2, "on_engine_failed": 0}
    assert set(report.errors.values()) == {0} and report.error is None
    assert report.seconds["on_cache_reset"] > 0


def test_a_registration_is_no_call(build: Any) -> None:
    class Plugin(EngineHooks):
        PLUGIN = PluginInfo(name="side", api=">=1.0")

        @hookimpl
        def register_side_channels(self) -> Any:
            yield Provider("side", "m:C")

    hook = "register_side_channels"
    manager = build(Plugin())
    assert call_stats(manager.report(), "here") == []
    counter = manager.calls.counter("side", hook)
    counter.errors = 1  # as of one that is not called, but closed
    ((report,), (stats,)) = manager.report(), call_stats(manager.report(), "here")
    assert report.reached == (hook,)
    assert (report.calls[hook], report.errors[hook]) == (stats.calls, stats.errors) == (0, 1)
    counter.calls = 5
    (there,) = call_stats(manager.report(), "there")
    (both,) = merged_reports(manager.report(), [there])
    assert (both.calls[hook], both.errors[hook]) == (10, 2)


def test_loaded_plugins_come_in_call_order_and_the_others_by_name(site: Any, build: Any) -> None:
    site.plugin("aa", top="1 / 0")
    site.plugin("mm", info="after=('zz',)")
    site.plugin("zz")
    site.plugin("bb")
    reports = build(block=("bb",)).report()
    assert [(report.name, report.state.value) for report in reports] == [
        ("zz", "unused"),
        ("mm", "unused"),
        ("aa", "broken"),
        ("bb", "disabled"),
    ]
    assert "ZeroDivisionError" in (reports[2].error or "")


def test_a_report_survives_json(site: Any, build: Any) -> None:
    site.plugin("x", "@hookimpl\ndef on_cache_reset(self, event): ...")
    (report,) = build().report()
    assert msgspec.json.decode(msgspec.json.encode(report), type=PluginReport) == report


def test_what_no_version_uses_yet_is_said_once(
    site: Any, build: Any, caplog: pytest.LogCaptureFixture
) -> None:
    unused = "\n".join(
        f"@hookimpl\ndef {kind.hook}(self):\n    yield Provider('x', 'm:C')"
        for kind in PLUGIN_KINDS.values()
        if HOOKS[kind.hook].meta.tier is Tier.PROVISIONAL
    )
    used = "\n@hookimpl\ndef register_samplers(self):\n    yield Provider('y', 'm:C')"
    site.plugin("early", unused + used)
    manager = build(enable=("early",))
    said = [record.getMessage() for record in caplog.records]
    provisional = [hook for hook in HOOKS if HOOKS[hook].meta.tier is Tier.PROVISIONAL]
    assert "register_kv_connectors" in provisional and "register_samplers" not in provisional
    for hook in provisional:
        (line,) = [line for line in said if f"{hook}," in line]
        assert "early" in line and "provisional" in line and "no use of it" in line
    assert len(said) == len(provisional)
    assert [found.provider.name for found in manager.providers("kv_connector")] == ["x"]


def test_unused_hooks_say_so() -> None:
    """What the configuration can not select and the engine never asks for."""
    for spec in HOOKS.values():
        provisional = spec.meta.tier is Tier.PROVISIONAL
        doc = getattr(EngineHooks, spec.name).__doc__
        assert ("Not used by this version" in doc) == provisional
