"""What a plugin says about itself, and how a wrong word is answered."""

from __future__ import annotations

from typing import Any

import pytest

from hookspecs import PluginInfo, ProcessRole
from hookspecs.errors import ApiVersionError, PluginLoadError


def local(info: object) -> object:
    class Local:
        PLUGIN = info

    return Local()


@pytest.mark.parametrize("api", [">=2.0,<3", "<1.0", "==0.9"])
def test_another_contract_version_is_refused(build: Any, api: str) -> None:
    with pytest.raises(ApiVersionError, match=r"contract version .*this is 1\.\d"):
        build(local(PluginInfo(name="old", api=api)))


def test_an_installed_plugin_of_another_version_is_broken(site: Any, build: Any) -> None:
    site.plugin("old", api=">=2.0")
    (report,) = build().report()
    assert report.state == "broken" and ">=2.0" in (report.error or "")


@pytest.mark.parametrize("api", [">=1.0,<2", "~=1.0", ">=1", "==1.*"])
def test_ranges_that_hold_this_version_are_accepted(build: Any, api: str) -> None:
    (report,) = build(local(PluginInfo(name="fine", api=api))).report()
    assert report.api == api


@pytest.mark.parametrize(
    ("info", "message"),
    [
        (None, "PLUGIN is None"),
        (PluginInfo(name="Upper", api=">=1.0"), "lower case"),
        (PluginInfo(name="under_score", api=">=1.0"), "lower case"),
        (PluginInfo(name="a", api=""), "PEP 440"),
        (PluginInfo(name="a", api="one"), "PEP 440"),
        (PluginInfo(name="a", api=">=1.0", roles=frozenset()), "roles"),
        (PluginInfo(name="a", api=">=1.0", roles=frozenset({"nurse"})), "nurse"),  # type: ignore[arg-type]
        (PluginInfo(name="a", api=">=1.0", before="b"), "tuple of strings"),  # type: ignore[arg-type]
        (PluginInfo(name="a", api=">=1.0", provides=("wrap:shedule",)), "Did you mean schedule"),
        (PluginInfo(name="a", api=">=1.0", options=dict), "msgspec.Struct"),  # type: ignore[arg-type]
    ],
)
def test_wrong_manifests(build: Any, info: object, message: str) -> None:
    with pytest.raises(PluginLoadError, match=message):
        build(local(info))


def test_a_class_is_no_plugin_object(site: Any, build: Any) -> None:
    site.install(
        "d",
        {"a": "fake_cls:Plugin"},
        {
            "fake_cls": "from hookspecs import PluginInfo\n"
            "class Plugin:\n    PLUGIN = PluginInfo(name='a', api='>=1.0')\n"
        },
    )
    with pytest.raises(PluginLoadError, match="export an instance"):
        build(required=("a",))


def test_a_module_can_be_a_plugin(site: Any, build: Any) -> None:
    site.install(
        "d",
        {"a": "fake_module"},
        {
            "fake_module": "from hookspecs import PluginInfo, hookimpl\n"
            "PLUGIN = PluginInfo(name='a', api='>=1.0')\n"
            "@hookimpl\ndef on_cache_reset(event):\n    pass\n"
        },
    )
    (report,) = build(required=("a",)).report()
    assert report.hooks == ("on_cache_reset",)


def test_entry_point_and_manifest_agree_on_the_name(site: Any, build: Any) -> None:
    site.plugin("inner", distribution="d")
    module = (site.root / "d" / "fake_d.py").read_text()
    site.install("e", {"outer": "fake_e:plugin"}, {"fake_e": module})
    with pytest.raises(PluginLoadError, match=r"'outer' but PLUGIN\.name is 'inner'"):
        build(required=("outer",))


def test_roles_are_reported_in_a_fixed_order(build: Any) -> None:
    roles = frozenset({ProcessRole.WORKER, ProcessRole.CORE})
    (report,) = build(local(PluginInfo(name="a", api=">=1.0", roles=roles))).report()
    assert report.roles == (ProcessRole.CORE, ProcessRole.WORKER)
