"""Types that msgspec can not read: what resolving them raises is said with who declares them."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest

from framework.config import load_config
from framework.plugins.manager import PluginManager
from framework.plugins.readable import unreadable
from hookspecs import EngineHooks, PluginInfo, Provider, hookimpl
from hookspecs.errors import ContractViolation


class OfTypeCheckers(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Names what only a type checker knows."""

    field: "Nowhere" = 0  # type: ignore[name-defined]  # noqa: F821, UP037


class Misspelt(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Names what a module has not."""

    field: "msgspec.Meter" = 0  # type: ignore[name-defined]  # noqa: UP037


class Broken(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Its annotation raises what it likes."""

    field: "1 // 0" = 0  # type: ignore[valid-type]  # noqa: UP037


class Plain(msgspec.Struct):
    """Can be read."""


class Ambiguous(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """msgspec can not tell which is meant."""

    field: Plain | dict[str, int] = msgspec.field(default_factory=dict)


UNREADABLE = {
    OfTypeCheckers: "NameError.*Nowhere",
    Misspelt: "AttributeError.*Meter",
    Broken: "ZeroDivisionError",
    Ambiguous: "TypeError.*unions",
}


@pytest.mark.parametrize(("kind", "why"), UNREADABLE.items())
def test_the_reason_is_told(kind: Any, why: str) -> None:
    told = unreadable(kind)
    assert told is not None
    assert re.search(why, told)


@pytest.mark.parametrize(
    "kind", [int, Plain, list[int], dict[str, Any], None, int | None, PluginInfo]
)
def test_what_can_be_read_has_none(kind: Any) -> None:
    assert unreadable(kind) is None


class Declares(EngineHooks):
    """Options of a plugin and of a provider."""

    def __init__(self, struct: Any, *, provider: bool) -> None:
        self.PLUGIN = PluginInfo(
            name="declares", api=">=1.0,<2", options=None if provider else struct
        )
        self._options = struct if provider else None

    @hookimpl
    def register_samplers(self) -> Any:
        yield Provider("declares", "m:C", options=self._options)


@pytest.mark.parametrize("provider", [False, True])
@pytest.mark.parametrize(("kind", "why"), UNREADABLE.items())
def test_options_that_can_not_be_read_name_the_plugin(kind: Any, why: str, provider: bool) -> None:
    config = load_config({"plugins": {"options": {"declares": {}}}}).config
    with pytest.raises(ContractViolation, match=why) as caught:
        PluginManager.build(config, objects=[Declares(kind, provider=provider)])
    assert caught.value.plugin == "declares"
