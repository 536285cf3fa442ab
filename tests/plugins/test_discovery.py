"""Finding installed plugins, and the failures of finding and importing them."""

from __future__ import annotations

import logging
import sys
from typing import Any

import pytest

from framework.plugins.discovery import Source, discover
from hookspecs.errors import ConfigError, PluginConflictError, PluginLoadError


def names(refs: list[Any]) -> list[str]:
    return [ref.name for ref in refs]


def test_sorted_by_distribution_then_name_whatever_the_path(site: Any) -> None:
    site.install("Zebra.Dist", {"b": "zb:p", "a": "za:p"}, {})
    site.install("alpha", {"z": "az:p"}, {})
    assert names(discover()) == ["z", "a", "b"]
    assert [ref.distribution for ref in discover()] == ["alpha", "zebra-dist", "zebra-dist"]


def test_the_projects_own_distribution_is_builtin_and_first(site: Any) -> None:
    site.install("alpha", {"a": "a:p"}, {})
    site.install("engine_framework", {"own": "own:p"}, {}, directory="own")
    assert [(ref.name, ref.source) for ref in discover()] == [
        ("own", Source.BUILTIN),
        ("a", Source.ENTRY_POINT),
    ]


def test_only_the_first_of_a_shadowed_distribution_counts(site: Any) -> None:
    site.install("twice", {"old": "old:p"}, {}, version="1.0", directory="behind")
    site.install("twice", {"new": "new:p"}, {}, version="2.0", directory="front")
    assert [(ref.name, ref.version) for ref in discover()] == [("new", "2.0")]


def test_a_shadowing_distribution_without_plugins_counts_too(site: Any) -> None:
    site.install("twice", {"old": "old:p"}, {}, version="1.0", directory="behind")
    site.install("Twice", {}, {}, version="2.0", directory="front")
    assert discover() == []


def test_a_distribution_with_damaged_metadata_is_skipped_with_a_warning(
    site: Any, caplog: pytest.LogCaptureFixture
) -> None:
    path = site.install("damaged", {"x": "x:p"}, {})
    (path / "damaged-1.0.dist-info" / "METADATA").write_bytes(b"\xff\xfe\x00")
    site.install("sound", {"s": "s:p"}, {})
    with caplog.at_level(logging.WARNING, "framework.plugins"):
        assert names(discover()) == ["s"]
    assert "damaged" in caplog.text


def test_two_plugins_of_one_name_are_an_error_that_names_both(site: Any, build: Any) -> None:
    site.plugin("same", distribution="first")
    site.plugin("same", distribution="second")
    with pytest.raises(PluginConflictError, match=r"distribution first.*distribution second"):
        build()


def test_blocking_the_name_settles_it(site: Any, build: Any) -> None:
    site.plugin("same", distribution="first")
    site.plugin("same", distribution="second")
    assert [report.state for report in build(block=("same",)).report()] == ["disabled"] * 2


def test_a_local_object_cannot_take_an_installed_name(site: Any, build: Any) -> None:
    from hookspecs import PluginInfo

    class Local:
        PLUGIN = PluginInfo(name="same", api=">=1.0")

    site.plugin("same", distribution="first")
    with pytest.raises(PluginConflictError, match=r"distribution first.*local object"):
        build(Local())


def test_a_blocked_plugin_is_never_imported(site: Any, build: Any) -> None:
    module = site.plugin("evil", top="raise SystemExit('imported')")
    (report,) = build(block=("evil",)).report()
    assert report.state == "disabled" and "plugins.block" in (report.error or "")
    assert module not in sys.modules


@pytest.mark.parametrize(
    ("top", "cause"),
    [
        ("import surely_not_there", "ModuleNotFoundError"),
        ("1 / 0", "ZeroDivisionError"),
        ("raise SystemExit(3)", "SystemExit"),
    ],
)
def test_an_optional_plugin_that_fails_to_import_is_broken_and_said_once(
    site: Any, build: Any, caplog: pytest.LogCaptureFixture, top: str, cause: str
) -> None:
    site.plugin("bad", top=top)
    site.plugin("good")
    with caplog.at_level(logging.WARNING, "framework.plugins"):
        reports = {report.name: report for report in build().report()}
    assert reports["bad"].state == "broken" and cause in (reports["bad"].error or "")
    assert reports["good"].state == "unused"
    warnings = [record for record in caplog.records if "bad" in record.getMessage()]
    assert len(warnings) == 1
    assert "bad-dist 1.0" in warnings[0].getMessage()
    assert "launcher process" in warnings[0].getMessage()


@pytest.mark.parametrize("section", [{"required": ("bad",)}, {"enable": ("bad",)}])
def test_a_plugin_that_the_operator_names_must_load(site: Any, build: Any, section: Any) -> None:
    site.plugin("bad", top="import surely_not_there")
    with pytest.raises(PluginLoadError, match="surely_not_there") as caught:
        build(**section)
    assert (caught.value.plugin, caught.value.distribution) == ("bad", "bad-dist")
    assert "launcher process" in str(caught.value)
    causes, error = [], caught.value
    while error is not None:
        causes.append(type(error))
        error = error.__cause__  # type: ignore[assignment]
    assert ModuleNotFoundError in causes


def test_the_entry_point_may_lack_the_object(site: Any, build: Any) -> None:
    site.install("bad-dist", {"bad": "fake_bad:nothing"}, {"fake_bad": "x = 1\n"})
    (report,) = build().report()
    assert report.state == "broken" and "nothing" in (report.error or "")


@pytest.mark.parametrize("field", ["required", "enable", "block"])
def test_names_of_plugins_must_be_installed(site: Any, build: Any, field: str) -> None:
    site.plugin("tracer-otlp")
    with pytest.raises(ConfigError, match=rf"plugins\.{field}.*Did you mean tracer-otlp"):
        build(**{field: ("tracer-oltp",)})


def test_required_and_blocked_contradict(site: Any, build: Any) -> None:
    site.plugin("both")
    with pytest.raises(PluginLoadError, match=r"plugins\.required.*plugins\.block"):
        build(required=("both",), block=("both",))


def test_requires_is_checked_through_chains(site: Any, build: Any) -> None:
    site.plugin("a", info="requires=('b',)")
    site.plugin("b", info="requires=('c',)")
    site.plugin("c", top="1 / 0")
    site.plugin("d")
    states = {report.name: report.state.value for report in build().report()}
    assert states == {"a": "broken", "b": "broken", "c": "broken", "d": "unused"}
    with pytest.raises(PluginLoadError, match="requires the plugin 'b'"):
        build(required=("a",))
