"""`check_plugin`: what an author is told."""

from __future__ import annotations

from typing import Any

import pytest

from framework.plugins.check import check_plugin
from hookspecs.errors import PluginLoadError

GOOD = """
@hookimpl
def register_scheduling_policies(self):
    yield Provider("good", "fake_good_impl:Policy")
"""
IMPL = """
from hookspecs.contracts.policy import SchedulingPolicy
class Policy(SchedulingPolicy):
    pass
"""


def test_nothing_to_say(site: Any) -> None:
    site.plugin("good", GOOD)
    site.install("impl", {}, {"fake_good_impl": IMPL})
    assert check_plugin("good") == []


def test_an_unknown_name(site: Any) -> None:
    site.plugin("good")
    with pytest.raises(PluginLoadError, match="Did you mean good"):
        check_plugin("goood")


def test_what_stops_loading_is_the_finding(site: Any) -> None:
    site.plugin("old", api=">=7.0")
    (finding,) = check_plugin("old")
    assert ">=7.0" in finding


def test_a_plugin_without_hooks(site: Any) -> None:
    site.plugin("empty")
    (finding,) = check_plugin("empty")
    assert "implements no hook" in finding


def test_options_structs(site: Any) -> None:
    top = "import msgspec\nclass O(msgspec.Struct):\n    size: int = 1\n"
    site.plugin("x", "@hookimpl\ndef on_cache_reset(self, event): ...", top=top, info="options=O")
    findings = check_plugin("x")
    assert any("not frozen and forbid_unknown_fields" in finding for finding in findings)
    assert any("O.size has no description" in finding for finding in findings)


def test_structs_of_request_options(site: Any) -> None:
    top = "import msgspec\nclass R(msgspec.Struct):\n    size: int = 1\n"
    body = GOOD.replace('Policy")', 'Policy", request_options=R)')
    site.plugin("good", body, top=top)
    site.install("impl", {}, {"fake_good_impl": IMPL})
    findings = check_plugin("good")
    assert any("R is not frozen and forbid_unknown_fields" in finding for finding in findings)
    assert any("R.size has no description" in finding for finding in findings)


def test_capabilities_that_only_the_provider_declares_are_fine(site: Any) -> None:
    body = GOOD.replace('Policy")', "Policy\", capabilities=frozenset({'dynamic_order'}))")
    site.plugin("good", body)
    site.install("impl", {}, {"fake_good_impl": IMPL})
    assert check_plugin("good") == []


def test_providers_are_imported_and_held_against_their_contract(site: Any) -> None:
    site.plugin(
        "bad",
        "@hookimpl\ndef register_scheduling_policies(self):\n"
        "    yield Provider('absent', 'fake_nowhere:C')\n"
        "    yield Provider('foreign', 'fake_bad_impl:Foreign')\n"
        "    yield Provider('more', 'fake_bad_impl:More')\n"
        "@hookimpl\ndef register_tracers(self):\n"
        "    yield Provider('half', 'fake_bad_impl:Half')",
    )
    site.install(
        "impl",
        {},
        {
            "fake_bad_impl": "from hookspecs.contracts.policy import *\n"
            "from hookspecs.contracts.stats import Tracer\n"
            "class Foreign: pass\n"
            "class More(SchedulingPolicy):\n"
            "    capabilities = frozenset({PolicyCapability.DYNAMIC_ORDER})\n"
            "class Half(Tracer): pass\n"
        },
    )
    findings = "\n".join(check_plugin("bad"))
    assert "fake_nowhere" in findings
    assert "Foreign does not derive from SchedulingPolicy" in findings
    assert "['dynamic_order']" in findings
    assert "Half lacks on_request_finished" in findings


def test_an_entry_module_must_not_load_heavy_packages(site: Any) -> None:
    site.plugin(
        "heavy", "@hookimpl\ndef on_cache_reset(self, event): ...", top="import transformers"
    )
    # Stands in for the real package: only the name counts.
    site.install("stand-in", {}, {"transformers": ""})
    assert check_plugin("heavy") == ["importing fake_heavy loads transformers"]


def test_a_local_object(site: Any) -> None:
    from hookspecs import EngineHooks, PluginInfo

    class Local(EngineHooks):
        PLUGIN = PluginInfo(name="local-one", api=">=1.0")

    assert "implements no hook" in check_plugin(Local())[0]
