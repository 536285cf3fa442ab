"""Hook implementations that pluggy would let slip."""

from __future__ import annotations

from typing import Any

import pytest

from hookspecs.errors import PluginLoadError

BROKEN = {
    "unknown": (
        "@hookimpl\ndef on_step_finishd(self, event): ...",
        "Did you mean on_step_finished",
    ),
    "async": ("@hookimpl\nasync def on_cache_reset(self, event): ...", "async"),
    "async_generator": ("@hookimpl\nasync def on_cache_reset(self, event):\n    yield", "async"),
    "generator": ("@hookimpl\ndef on_cache_reset(self, event):\n    yield", "generator"),
    "default": ("@hookimpl\ndef on_cache_reset(self, event=None): ...", "has a default"),
    "wrong_name": ("@hookimpl\ndef on_cache_reset(self, evnt): ...", r"must be \(event\)"),
    "too_few": ("@hookimpl\ndef on_cache_reset(self): ...", r"must be \(event\)"),
    "too_many": ("@hookimpl\ndef on_cache_reset(self, event, more): ...", r"must be \(event\)"),
    "star": ("@hookimpl\ndef on_cache_reset(self, *event): ...", r"are \(\*event\)"),
    "keyword_only": ("@hookimpl\ndef on_cache_reset(self, *, event): ...", r"must be \(event\)"),
    "provider_argument": ("@hookimpl\ndef register_samplers(self, event): ...", r"must be \(\)"),
    "step_not_wrapper": ("@hookimpl\ndef schedule(self): ...", "may only wrap"),
    "wrapper_without_capability": (
        "@hookimpl(wrapper=True)\ndef schedule(self):\n    return (yield)",
        "'wrap:schedule' in PLUGIN.provides",
    ),
    "wrapper_around_observer": (
        "@hookimpl(wrapper=True)\ndef on_cache_reset(self, event):\n    return (yield)",
        "only step phases",
    ),
    "old_wrapper": (
        "@hookimpl(hookwrapper=True)\ndef schedule(self):\n    yield",
        "declare wrapper=True",
    ),
    "tryfirst": ("@hookimpl(tryfirst=True)\ndef on_cache_reset(self, event): ...", "PLUGIN.before"),
    "forgotten_mark": ("def on_cache_reset(self, event): ...", "without @hookimpl"),
    "twice": (
        "@hookimpl\ndef on_cache_reset(self, event): ...\n"
        "@hookimpl(specname='on_cache_reset')\ndef other(self, event): ...",
        "implemented twice",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_broken_implementations_are_refused(site: Any, build: Any, case: str) -> None:
    body, message = BROKEN[case]
    site.plugin("bad", body)
    with pytest.raises(PluginLoadError, match=message) as caught:
        build(required=("bad",))
    assert (caught.value.plugin, caught.value.distribution) == ("bad", "bad-dist")
    assert caught.value.hook


@pytest.mark.parametrize("case", BROKEN)
def test_or_left_out_as_broken(site: Any, build: Any, case: str) -> None:
    site.plugin("bad", BROKEN[case][0])
    (report,) = build().report()
    assert report.state == "broken" and report.hooks == ()


def test_a_wrapper_must_be_a_generator(site: Any, build: Any) -> None:
    site.plugin(
        "bad",
        "@hookimpl(wrapper=True)\ndef schedule(self): ...",
        info="provides=('wrap:schedule',)",
    )
    with pytest.raises(PluginLoadError, match="generator function"):
        build(required=("bad",))


def test_an_optional_hook_of_a_later_contract_is_skipped(site: Any, build: Any) -> None:
    site.plugin("ahead", "@hookimpl(optionalhook=True)\ndef on_moon_risen(self, event): ...")
    (report,) = build(required=("ahead",)).report()
    assert report.hooks == ()


def test_another_method_name_with_specname(site: Any, build: Any) -> None:
    site.plugin("alias", "@hookimpl(specname='on_cache_reset')\ndef cache(self, event): ...")
    (report,) = build(required=("alias",)).report()
    assert report.hooks == ("on_cache_reset",)
