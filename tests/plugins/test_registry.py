"""Collecting, choosing and constructing providers."""

from __future__ import annotations

import sys
import types
from typing import Any, ClassVar

import msgspec
import pytest

from framework.plugins import construct
from framework.plugins.check import check_plugin
from framework.plugins.specs import HOOKS
from hookspecs import EngineConfig, EngineHooks, PluginInfo, ProcessRole, Provider, hookimpl
from hookspecs.config import SchedulerConfig
from hookspecs.contracts.policy import PolicyCapability, PolicyContext, SchedulingPolicy
from hookspecs.errors import (
    ContractViolation,
    InternalError,
    MissingDependencyError,
    PluginConflictError,
    PluginLoadError,
    ProviderError,
    ProviderNotFoundError,
    UnsupportedFeatureError,
)
from hookspecs.kinds import PLUGIN_KINDS, PluginKind

KIND = "scheduling_policy"


class Limit(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    tokens: int = 8


def policies(*providers: Any, name: str = "mine") -> EngineHooks:
    class Plugin(EngineHooks):
        PLUGIN = PluginInfo(name=name, api=">=1.0")

        @hookimpl
        def register_scheduling_policies(self) -> Any:
            yield from providers

    return Plugin()


def offer(site: Any, plugin: str, *names: str) -> None:
    yields = "\n    ".join(f"yield Provider({name!r}, 'm:C')" for name in names)
    site.plugin(plugin, f"@hookimpl\ndef register_scheduling_policies(self):\n    {yields}")


def selecting(*names: str) -> EngineConfig:
    return EngineConfig(scheduler=SchedulerConfig(policies=names))


@pytest.fixture
def targets(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """A module `fake_targets` for the targets of providers."""
    module = types.ModuleType("fake_targets")
    monkeypatch.setitem(sys.modules, "fake_targets", module)
    return module


@pytest.mark.parametrize(
    ("provider", "message"),
    [
        ("fcfs", "must yield hookspecs.Provider"),
        (Provider("Bad Name", "m:C"), "'Bad Name' is not lower case"),
        (Provider("a", "m.C"), "'package.module:attribute'"),
        (Provider("a", "m:C", options=dict), "msgspec.Struct"),  # type: ignore[arg-type]
        (Provider("a", "m:C", capabilities=["dynamic_order"]), "no frozenset"),  # type: ignore[arg-type]
        (
            Provider("a", "m:C", capabilities=frozenset({"dynamic_ordr"})),
            "Did you mean dynamic_order",
        ),
    ],
)
def test_malformed_providers_break_the_contract(build: Any, provider: Any, message: str) -> None:
    with pytest.raises(ContractViolation, match=message) as caught:
        build(policies(provider))
    assert caught.value.hook == "register_scheduling_policies"


def test_a_raising_register_hook_is_attributed(site: Any, build: Any) -> None:
    site.plugin("bad", "@hookimpl\ndef register_samplers(self):\n    yield 1 / 0")
    with pytest.raises(PluginLoadError, match="ZeroDivisionError") as caught:
        build(required=("bad",))
    assert caught.value.hook == "register_samplers"
    (report,) = build().report()
    assert report.state == "broken"


def test_a_broken_plugin_offers_nothing(site: Any, build: Any) -> None:
    site.plugin(
        "half",
        "@hookimpl\ndef register_samplers(self):\n    yield Provider('s', 'm:C')\n"
        "@hookimpl\ndef register_tracers(self):\n    yield 'no provider'",
    )
    assert build().providers("sampler") == []


def test_one_plugin_may_not_offer_a_name_twice(build: Any) -> None:
    with pytest.raises(PluginConflictError, match="two scheduling_policy providers called 'a'"):
        build(policies(Provider("a", "m:C"), Provider("a", "m:D")))


def test_the_same_name_in_two_kinds_is_fine(site: Any, build: Any) -> None:
    site.plugin(
        "both",
        "@hookimpl\ndef register_samplers(self):\n    yield Provider('x', 'm:C')\n"
        "@hookimpl\ndef register_tracers(self):\n    yield Provider('x', 'm:D')",
    )
    manager = build()
    assert manager.resolve("sampler", "x").provider.target == "m:C"
    assert manager.resolve("tracer", "x").provider.target == "m:D"


def test_two_owners_of_a_name_stop_the_start(site: Any, build: Any) -> None:
    offer(site, "one", "fair")
    offer(site, "two", "fair")
    with pytest.raises(PluginConflictError) as caught:
        build()
    for part in (
        "one-dist",
        "two-dist",
        "'one-dist:fair' or 'two-dist:fair'",
        "scheduler.policies",
    ):
        assert part in str(caught.value)


def test_the_explicit_choice_settles_it(site: Any, build: Any) -> None:
    offer(site, "one", "fair")
    offer(site, "two", "fair")
    manager = build(config=selecting("Two_Dist:fair"))
    assert manager.resolve(KIND, "Two_Dist:fair").ref.distribution == "two-dist"
    with pytest.raises(PluginConflictError):
        manager.resolve(KIND, "fair")


def test_the_name_alone_is_no_choice(site: Any, build: Any) -> None:
    offer(site, "one", "fair")
    offer(site, "two", "fair")
    with pytest.raises(PluginConflictError):
        build(config=selecting("fair"))


def test_a_local_object_is_chosen_as_local(site: Any, build: Any) -> None:
    offer(site, "one", "fair")
    local = policies(Provider("fair", "m:L"))
    manager = build(local, config=selecting("local:fair"))
    assert manager.resolve(KIND, "local:fair").provider.target == "m:L"


def test_an_unknown_name_lists_the_choices(site: Any, build: Any) -> None:
    offer(site, "one", "fair-share", "deadline")
    manager = build()
    with pytest.raises(ProviderNotFoundError) as caught:
        manager.resolve(KIND, "fair-shar")
    assert "deadline, fair-share" in str(caught.value)
    assert "Did you mean fair-share" in str(caught.value)
    assert "scheduler.policies" in str(caught.value)


def test_an_unknown_selection_stops_the_start(site: Any, build: Any) -> None:
    offer(site, "one", "fair")
    with pytest.raises(ProviderNotFoundError, match="'fairer'"):
        build(config=selecting("fcfs", "fairer"))


def test_a_missing_name_mentions_broken_and_blocked_plugins(site: Any, build: Any) -> None:
    site.plugin("bad", top="import surely_not_there")
    offer(site, "blocked", "fair")
    manager = build(block=("blocked",))
    with pytest.raises(ProviderNotFoundError) as caught:
        manager.resolve(KIND, "fair")
    assert "bad-dist" in str(caught.value) and "surely_not_there" in str(caught.value)
    assert "blocked-dist" in str(caught.value) and "plugins.block" in str(caught.value)


def test_providers_are_listed_by_name_with_capabilities(build: Any) -> None:
    manager = build(
        policies(
            Provider("b", "m:C", capabilities=frozenset({"dynamic_order"})), Provider("a", "m:C")
        )
    )
    assert [found.provider.name for found in manager.providers(KIND)] == ["a", "b"]
    assert manager.capabilities(KIND, "b") == {"dynamic_order"}


def test_an_unknown_kind_is_a_defect_of_the_caller(build: Any) -> None:
    with pytest.raises(InternalError, match="Did you mean scheduler"):
        build().resolve("schedular", "x")


def test_create_imports_lazily_and_hands_over_the_context(
    build: Any, targets: types.ModuleType
) -> None:
    manager = build(policies(Provider("a", "fake_targets:A", options=Limit)))

    class A(SchedulingPolicy):
        pass

    targets.A = A  # type: ignore[attr-defined]
    made = manager.create(KIND, "a")
    context = made.context
    assert isinstance(made, A) and isinstance(context, PolicyContext)
    assert (context.plugin, context.name, context.options) == ("mine", "a", Limit(tokens=8))
    assert context.config is manager.config
    (report,) = manager.report()
    assert report.state == "active"


def test_wrong_context_fields_are_a_defect_of_the_caller(
    build: Any, targets: types.ModuleType
) -> None:
    targets.A = SchedulingPolicy  # type: ignore[attr-defined]
    with pytest.raises(InternalError, match="context of a scheduling_policy"):
        build(policies(Provider("a", "fake_targets:A"))).create(KIND, "a", colour="red")


def test_a_factory_does_once_what_is_the_same_for_all(
    build: Any, targets: types.ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    class A(SchedulingPolicy):
        pass

    targets.A = A  # type: ignore[attr-defined]
    manager = build(policies(Provider("a", "fake_targets:A", options=Limit)))
    make = manager.factory(KIND, "a")
    first = make()

    def never(*_: Any) -> None:
        raise AssertionError("this was done before")

    monkeypatch.delattr(targets, "A")
    monkeypatch.setattr(construct, "check_members", never)
    monkeypatch.setattr(construct, "warn_of_methods", never)
    others = [make(), manager.factory(KIND, "a")(), manager.create(KIND, "a")]
    assert len({id(made) for made in (first, *others)}) == 4
    assert all(made.context.options is first.context.options for made in others)


def test_a_factory_checks_each_class_that_a_target_makes(
    build: Any, targets: types.ModuleType
) -> None:
    class Right(SchedulingPolicy):
        pass

    class Wrong(SchedulingPolicy):
        order_key = property(lambda self: 0)

    given = iter([Right, Wrong, Right, Wrong])
    targets.A = lambda context: next(given)(context)  # type: ignore[attr-defined]
    make = build(policies(Provider("a", "fake_targets:A"))).factory(KIND, "a")
    for _ in range(2):
        make()
        with pytest.raises(ContractViolation, match="is a property, but must be a method"):
            make()


# Roles


def in_roles(hook: str, provider: Provider[Any], roles: frozenset[ProcessRole]) -> type[Any]:
    def register(self: Any) -> Any:
        yield provider

    register.__name__ = hook
    info = PluginInfo(name="mine", api=">=1.0", roles=roles)
    return type("Plugin", (EngineHooks,), {"PLUGIN": info, hook: hookimpl(register)})


@pytest.mark.parametrize("kind", PLUGIN_KINDS.values(), ids=lambda kind: kind.name)
@pytest.mark.parametrize("asked", [False, True], ids=["", "request_options"])
def test_a_plugin_is_imported_wherever_its_providers_are_needed(
    build: Any, kind: PluginKind, asked: bool
) -> None:
    if kind.name == "logits_processor" and not asked:
        asked = True
    provider = Provider[Any]("a", "m:C", request_options=Limit if asked else None)
    needed = set(HOOKS[kind.hook].meta.roles) | ({ProcessRole.FRONTEND} if asked else set())
    every = frozenset(ProcessRole)
    enabled = frozenset(needed | {ProcessRole.LAUNCHER})
    assert build(in_roles(kind.hook, provider, enabled)()).providers(kind.name)
    for role in ProcessRole:
        plugin = in_roles(kind.hook, provider, every - {role})()
        if role in needed and role is not ProcessRole.LAUNCHER:
            with pytest.raises(ContractViolation, match=rf"roles lacks {role}, .*{kind.name} 'a'"):
                build(plugin)
            assert any(f"lacks {role}" in finding for finding in check_plugin(plugin))
        else:  # the launcher imports all
            assert build(plugin).providers(kind.name)


def test_a_hook_that_offers_nothing_needs_no_process(build: Any) -> None:
    class Empty(EngineHooks):
        PLUGIN = PluginInfo(name="mine", api=">=1.0", roles=frozenset({ProcessRole.LAUNCHER}))

        @hookimpl
        def register_samplers(self) -> Any:
            return ()

    assert build(Empty()).providers("sampler") == []


def test_a_missing_package_names_the_extra(site: Any, build: Any) -> None:
    site.plugin(
        "fast",
        "@hookimpl\ndef register_scheduling_policies(self):\n"
        "    yield Provider('fast', 'fake_fast_impl:C', extra='gpu')",
    )
    site.install("impl", {}, {"fake_fast_impl": "import surely_not_there\n"})
    with pytest.raises(MissingDependencyError, match=r"pip install 'fast-dist\[gpu\]'") as caught:
        build().create(KIND, "fast")
    assert isinstance(caught.value.__cause__, ModuleNotFoundError)
    assert caught.value.__cause__.name == "surely_not_there"


@pytest.mark.parametrize(
    ("target", "extra", "message"),
    [
        ("fake_absent:C", None, "fake_absent"),
        ("fake_absent:C", "gpu", "fake_absent"),
        ("fake_targets:Policies", None, "Did you mean Policy"),
        ("fake_targets:Raises", None, "ZeroDivisionError"),
    ],
)
def test_failures_of_targets_are_provider_errors(
    build: Any, targets: types.ModuleType, target: str, extra: str | None, message: str
) -> None:
    def raises(context: Any) -> None:
        raise ZeroDivisionError

    targets.Raises, targets.Policy = raises, None  # type: ignore[attr-defined]
    manager = build(policies(Provider("a", target, extra=extra)))
    with pytest.raises(ProviderError, match=message) as caught:
        manager.create(KIND, "a")
    assert caught.value.plugin == "mine" and caught.value.__cause__ is not None


def test_an_error_raised_on_purpose_keeps_its_class(build: Any, targets: types.ModuleType) -> None:
    def refuses(context: Any) -> None:
        raise UnsupportedFeatureError("needs a fan")

    targets.C = refuses  # type: ignore[attr-defined]
    with pytest.raises(UnsupportedFeatureError, match="needs a fan"):
        build(policies(Provider("a", "fake_targets:C"))).create(KIND, "a")


def test_an_object_of_another_class_breaks_the_contract(
    build: Any, targets: types.ModuleType
) -> None:
    targets.C = lambda context: "policy"  # type: ignore[attr-defined]
    with pytest.raises(ContractViolation, match="made a str, no SchedulingPolicy"):
        build(policies(Provider("a", "fake_targets:C"))).create(KIND, "a")


def test_an_incomplete_class_breaks_the_contract(build: Any, targets: types.ModuleType) -> None:
    from hookspecs.contracts.stats import Tracer, TracerContext

    class Half(Tracer):
        pass

    targets.C = Half  # type: ignore[attr-defined]

    class Plugin(EngineHooks):
        PLUGIN = PluginInfo(name="t", api=">=1.0")

        @hookimpl
        def register_tracers(self) -> list[Provider[Any]]:
            return [Provider("half", "fake_targets:C")]

    assert TracerContext.__struct_fields__
    with pytest.raises(ContractViolation, match="Half lacks on_request_finished"):
        build(Plugin()).create("tracer", "half")


# Capabilities

DYNAMIC = frozenset({PolicyCapability.DYNAMIC_ORDER})


class Dynamic(SchedulingPolicy):
    capabilities = DYNAMIC


class Silent(SchedulingPolicy):
    pass


class SilentHeir(Dynamic):
    pass


class Static(SchedulingPolicy):
    capabilities: ClassVar[frozenset[PolicyCapability]] = frozenset()


class Frozen(SchedulingPolicy):
    def __setattr__(self, name: str, value: object) -> None:
        if name != "context":
            raise AttributeError(name)
        super().__setattr__(name, value)


@pytest.mark.parametrize(
    ("policy", "declared"),
    [
        (Dynamic, DYNAMIC),
        (Dynamic, frozenset({"dynamic_order"})),
        (SilentHeir, DYNAMIC),
        (Static, frozenset()),
        (Silent, frozenset()),
        (Silent, DYNAMIC),
        (Frozen, DYNAMIC),
    ],
)
def test_an_object_has_the_capabilities_of_its_provider(
    build: Any, targets: types.ModuleType, policy: type[SchedulingPolicy], declared: Any
) -> None:
    targets.C = policy  # type: ignore[attr-defined]
    manager = build(policies(Provider("a", "fake_targets:C", capabilities=declared)))
    assert manager.create(KIND, "a").capabilities == declared
    assert Silent.capabilities == frozenset()


@pytest.mark.parametrize(
    ("policy", "declared"),
    [(Dynamic, frozenset()), (SilentHeir, frozenset()), (Static, DYNAMIC)],
)
def test_other_capabilities_than_those_of_the_provider_break_the_contract(
    build: Any, targets: types.ModuleType, policy: type[SchedulingPolicy], declared: Any
) -> None:
    targets.C = policy  # type: ignore[attr-defined]
    manager = build(policies(Provider("a", "fake_targets:C", capabilities=declared)))
    with pytest.raises(ContractViolation, match="dynamic_order") as caught:
        manager.create(KIND, "a")
    assert caught.value.plugin == "mine"


# Options of requests


def requesting(name: str, *structs: Any, plugin: str) -> EngineHooks:
    return policies(
        *(
            Provider(f"{name}{number or ''}", "m:C", request_options=struct)
            for number, struct in enumerate(structs)
        ),
        name=plugin,
    )


def test_request_options_by_provider_name(build: Any) -> None:
    manager = build(requesting("a", Limit, None, plugin="one"), policies(Provider("c", "m:C")))
    assert manager.request_options() == {"a": Limit}


class Unreadable(msgspec.Struct):
    value: "NoSuchType"  # type: ignore[name-defined]  # noqa: F821, UP037


@pytest.mark.parametrize("struct", [dict, Limit(), Unreadable])
def test_request_options_must_be_a_readable_struct(build: Any, struct: Any) -> None:
    with pytest.raises(ContractViolation, match="request_options of 'a'"):
        build(requesting("a", struct, plugin="one"))


class SamplerToo(EngineHooks):
    PLUGIN = PluginInfo(name="two", api=">=1.0")

    def __init__(self, struct: Any) -> None:
        self._struct = struct

    @hookimpl
    def register_samplers(self) -> Any:
        yield Provider("a", "m:C", request_options=self._struct)


def test_two_kinds_of_one_name_have_the_same_request_options(build: Any) -> None:
    one = requesting("a", Limit, plugin="one")
    assert build(one, SamplerToo(Limit)).request_options() == {"a": Limit}
    with pytest.raises(PluginConflictError, match=r"one.*two.*extensions\['a'\]"):
        build(one, SamplerToo(Unlike))


def test_the_explicit_choice_decides_about_request_options_too(site: Any, build: Any) -> None:
    site.plugin(
        "one",
        "@hookimpl\ndef register_scheduling_policies(self):\n"
        "    yield Provider('a', 'm:C', request_options=R)",
        top="import msgspec\nclass R(msgspec.Struct):\n    size: int = 1\n",
    )
    local = requesting("a", Limit, plugin="mine")
    assert build(local, config=selecting("local:a")).request_options() == {"a": Limit}
    chosen = build(local, config=selecting("one-dist:a")).request_options()
    assert chosen["a"].__name__ == "R"


class Unlike(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    other: int = 1
