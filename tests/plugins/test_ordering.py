"""The order of plugins."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from framework.plugins.ordering import order_plugins
from hookspecs import PluginInfo
from hookspecs.errors import PluginOrderError

NAMES = [f"p{i}" for i in range(7)]


def info(name: str, before: tuple[str, ...] = (), after: tuple[str, ...] = ()) -> PluginInfo:
    return PluginInfo(name=name, api=">=1.0", before=before, after=after)


@given(st.permutations(NAMES))
def test_without_constraints_the_order_stays(names: list[str]) -> None:
    assert order_plugins([info(name) for name in names]) == names


@given(st.permutations(NAMES), st.permutations(NAMES), st.data())
def test_constraints_hold(names: list[str], truth: list[str], data: st.DataObject) -> None:
    """Constraints drawn from one total order can always be met, and are."""
    pairs = data.draw(
        st.lists(st.tuples(st.integers(0, 5), st.integers(1, 6)).filter(lambda p: p[0] < p[1]))
    )
    before: dict[str, list[str]] = {name: [] for name in names}
    after: dict[str, list[str]] = {name: [] for name in names}
    for at, (low, high) in enumerate(pairs):
        if at % 2:
            before[truth[low]].append(truth[high])
        else:
            after[truth[high]].append(truth[low])
    plugins = [info(name, tuple(before[name]), tuple(after[name])) for name in names]
    order = order_plugins(plugins)
    assert sorted(order) == sorted(names)
    for low, high in pairs:
        assert order.index(truth[low]) < order.index(truth[high])


def test_a_circle_is_named() -> None:
    plugins = [info("a", after=("b",)), info("b", after=("c",)), info("c", after=("a",)), info("d")]
    with pytest.raises(PluginOrderError, match="a after b after c after a"):
        order_plugins(plugins)


def test_a_plugin_after_itself_is_a_circle() -> None:
    with pytest.raises(PluginOrderError, match="a after a"):
        order_plugins([info("a", after=("a",))])


def test_constraints_on_absent_plugins_mean_nothing() -> None:
    assert order_plugins([info("b", before=("x",)), info("a", after=("y",))]) == ["b", "a"]


def test_the_manager_puts_builtins_first_and_keeps_constraints(site: Any, build: Any) -> None:
    site.plugin("zz-own", distribution="engine_framework")
    site.plugin("aa")
    site.plugin("bb", info="before=('zz-own',)")
    site.plugin("cc", info="after=('dd',)")
    site.plugin("dd")
    assert [report.name for report in build().report()] == ["bb", "zz-own", "aa", "dd", "cc"]


def test_a_circle_stops_the_start(site: Any, build: Any) -> None:
    site.plugin("aa", info="before=('bb',)")
    site.plugin("bb", info="before=('aa',)")
    with pytest.raises(PluginOrderError, match="aa after bb after aa"):
        build()
