"""What all plugins offer: plugin kind to provider name to providers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NoReturn

import msgspec
from packaging.utils import canonicalize_name

from framework.config.suggest import suggestion
from framework.plugins.calls import call_register
from framework.plugins.command_names import wrong_command_name
from framework.plugins.discovery import PluginRef
from framework.plugins.manifest import is_options_struct
from framework.plugins.readable import unreadable
from framework.plugins.specs import KIND_OF_HOOK
from framework.plugins.validate import HookMethod
from hookspecs.contracts.engine_command import EngineCommand
from hookspecs.contracts.logits import LogitsProcessor
from hookspecs.errors import (
    ContractViolation,
    InternalError,
    PluginConflictError,
    ProviderNotFoundError,
)
from hookspecs.info import PluginInfo, ProcessRole, Provider
from hookspecs.kinds import PLUGIN_KINDS, PluginKind

__all__ = [
    "LOCAL",
    "RegisteredProvider",
    "Registry",
    "collect_providers",
    "kind_named",
    "split_choice",
]

LOCAL: Final = "local"
"""Stands for the distribution of local objects in `distribution:name`."""

_NAME: Final = re.compile(r"[a-z0-9]+([-_][a-z0-9]+)*")
_TARGET: Final = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")


class RegisteredProvider(msgspec.Struct, frozen=True, kw_only=True):
    """One provider and the plugin that offers it."""

    kind: PluginKind
    provider: Provider[Any]
    plugin: PluginInfo
    ref: PluginRef

    @property
    def choice(self) -> str:
        """`distribution:name`: names this one even where another has the same name."""
        return f"{self.ref.distribution or LOCAL}:{self.provider.name}"


def kind_named(name: str) -> PluginKind:
    """A plugin kind. InternalError for an unknown one: kinds come from code, not from users."""
    if name not in PLUGIN_KINDS:
        raise InternalError(f"no plugin kind {name!r}.{suggestion(name, PLUGIN_KINDS)}")
    return PLUGIN_KINDS[name]


def split_choice(choice: str) -> tuple[str | None, str]:
    """`name` or `distribution:name` to the normalised distribution (or None) and the name."""
    distribution, colon, name = choice.rpartition(":")
    return (str(canonicalize_name(distribution)) if colon else None), name


def collect_providers(
    methods: Sequence[HookMethod], info: PluginInfo, ref: PluginRef
) -> list[RegisteredProvider]:
    """Ask one plugin's provider hooks once, and check the answers.

    ContractViolation for a provider that is none or is malformed, or that a process needs which
    does not import the plugin (`PluginInfo.roles`); PluginConflictError when the plugin offers
    one name twice, PluginLoadError when it raises.
    """
    found: list[RegisteredProvider] = []
    for method in methods:
        kind = KIND_OF_HOOK[method.spec.name]
        names: set[str] = set()
        for provider in call_register(method):
            _check(provider, kind, ref)
            _check_roles(provider, kind, method.spec.meta.roles, info, ref)
            if provider.name in names:
                raise PluginConflictError(
                    f"{ref} offers two {kind.name} providers called {provider.name!r}",
                    plugin=ref.name,
                    distribution=ref.distribution,
                    hook=kind.hook,
                )
            names.add(provider.name)
            found.append(RegisteredProvider(kind=kind, provider=provider, plugin=info, ref=ref))
    return found


def _check(provider: Provider[Any], kind: PluginKind, ref: PluginRef) -> None:
    name = provider.name
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        _violation(ref, kind, f"the name {name!r} is not lower case letters, digits, '-' and '_'")
    wrong = wrong_command_name(name) if kind.contract is EngineCommand else None
    if wrong is not None:
        _violation(ref, kind, wrong)
    if not isinstance(provider.target, str) or not _TARGET.fullmatch(provider.target):
        _violation(
            ref,
            kind,
            f"the target {provider.target!r} of {name!r} is not 'package.module:attribute'",
        )
    if provider.options is not None and not is_options_struct(provider.options):
        _violation(ref, kind, f"options of {name!r} is {provider.options!r}, not a msgspec.Struct")
    _check_request_options(provider, kind, ref)
    allowed = sorted(kind.capabilities) if kind.capabilities else []
    if not isinstance(provider.capabilities, frozenset):
        _violation(
            ref, kind, f"capabilities of {name!r} are {provider.capabilities!r}, no frozenset"
        )
    for capability in sorted(map(str, provider.capabilities)):
        if capability not in allowed:
            _violation(
                ref,
                kind,
                f"{name!r} declares the capability {capability!r}; {kind.name} has "
                f"{', '.join(allowed) or 'none'}.{suggestion(capability, allowed)}",
            )


def _check_roles(
    provider: Provider[Any],
    kind: PluginKind,
    roles: Iterable[ProcessRole],
    info: PluginInfo,
    ref: PluginRef,
) -> None:
    """A process that does not import the plugin does not know the provider: the start would fail
    there, or a request would lose it without a word. `roles`: where the kernel makes or needs
    providers of this kind. The launcher imports all plugins."""
    needed = {*roles} - {ProcessRole.LAUNCHER}
    if provider.request_options is not None:
        needed.add(ProcessRole.FRONTEND)  # which checks the options of requests
    missing = [role for role in ProcessRole if role in needed - info.roles]
    if missing:
        _violation(
            ref,
            kind,
            f"PLUGIN.roles lacks {' and '.join(missing)}, where the engine needs the {kind.name} "
            f"{provider.name!r}; add {' and '.join(f'ProcessRole.{r.name}' for r in missing)}, or "
            "leave roles out, which means every process",
        )


def _check_request_options(provider: Provider[Any], kind: PluginKind, ref: PluginRef) -> None:
    options = provider.request_options
    if options is None:
        if kind.contract is LogitsProcessor:
            _violation(
                ref,
                kind,
                f"{provider.name!r} has no request_options, so no request could ask for it; give "
                "it a struct, without fields if there is nothing to say",
            )
        return
    what = f"request_options of {provider.name!r}"
    if not is_options_struct(options):
        _violation(ref, kind, f"{what} is {options!r}, not a msgspec.Struct")
    why = unreadable(options)
    if why is not None:
        _violation(ref, kind, f"{what}: {options.__name__} can not be read: {why}")


def _violation(ref: PluginRef, kind: PluginKind, what: str) -> NoReturn:
    raise ContractViolation(
        f"{ref}, hook {kind.hook}: {what}",
        plugin=ref.name,
        distribution=ref.distribution,
        hook=kind.hook,
    )


class Registry:
    """All providers of one process. Filled when the plugin manager is built, then only read."""

    def __init__(self) -> None:
        self._providers: dict[str, dict[str, list[RegisteredProvider]]] = {
            kind: {} for kind in PLUGIN_KINDS
        }
        self._absent: list[tuple[str | None, str]] = []

    def add(self, found: RegisteredProvider) -> None:
        """Add one provider; nothing is replaced."""
        self._providers[found.kind.name].setdefault(found.provider.name, []).append(found)

    def note_absent(self, reason: str, kind: str | None = None) -> None:
        """Remember why some plugin's providers (of one kind, or any) are not here, to say it
        when one is missed."""
        self._absent.append((kind, reason))

    def why_absent(self, kind: str) -> str:
        """Why providers of a kind may not be here: a sentence each, with a blank before it."""
        reasons = [reason for which, reason in self._absent if which in (None, kind)]
        return "".join(f" {reason}." for reason in reasons)

    def providers(self, kind: str) -> list[RegisteredProvider]:
        """All of one kind, by name, then in plugin order."""
        by_name = self._providers[kind_named(kind).name]
        return [found for name in sorted(by_name) for found in by_name[name]]

    def find(self, kind: str, choice: str) -> list[RegisteredProvider]:
        """Those that `name` or `distribution:name` may mean."""
        distribution, name = split_choice(choice)
        return [
            found
            for found in self._providers[kind_named(kind).name].get(name, ())
            if distribution is None or distribution == (found.ref.distribution or LOCAL)
        ]

    def resolve(self, kind: str, choice: str) -> RegisteredProvider:
        """The provider that `name` or `distribution:name` selects.

        ProviderNotFoundError when there is none, PluginConflictError when there are several.
        """
        found = self.find(kind, choice)
        if not found:
            raise self._not_found(kind, choice)
        if len(found) > 1:
            raise _conflict(found)
        return found[0]

    def request_options(
        self, selected: Mapping[str, Sequence[str]]
    ) -> dict[str, type[msgspec.Struct]]:
        """The structs of per-request options by provider name.

        Of several of one kind and name, that which the configuration (`selected`: kind to
        choices) means. PluginConflictError when those left have different structs."""
        owners: dict[str, RegisteredProvider] = {}
        for kind in PLUGIN_KINDS:
            for found in self.providers(kind):
                if found.provider.request_options is None or self._passed_over(found, selected):
                    continue
                owner = owners.setdefault(found.provider.name, found)
                if owner.provider.request_options is not found.provider.request_options:
                    raise PluginConflictError(
                        f"{owner.ref} and {found.ref} both take options of requests under "
                        f"extensions[{found.provider.name!r}]; block one plugin with plugins.block",
                        plugin=found.ref.name,
                        distribution=found.ref.distribution,
                        hook=found.kind.hook,
                    )
        return {
            name: owner.provider.request_options
            for name, owner in owners.items()
            if owner.provider.request_options is not None
        }

    def check_conflicts(self, selected: Mapping[str, Sequence[str]]) -> None:
        """PluginConflictError when one name of one kind has several providers and the
        configuration (`selected`: kind to choices) does not say which."""
        for kind, by_name in self._providers.items():
            for name, several in by_name.items():
                if len(several) > 1 and not self._decided(kind, name, selected.get(kind, ())):
                    raise _conflict(several)

    def _passed_over(
        self, found: RegisteredProvider, selected: Mapping[str, Sequence[str]]
    ) -> bool:
        """Whether the configuration means another provider of this kind by this name."""
        kind, name = found.kind.name, found.provider.name
        choices = [each for each in selected.get(kind, ()) if split_choice(each)[1] == name]
        return bool(choices) and not any(found in self.find(kind, each) for each in choices)

    def _decided(self, kind: str, name: str, choices: Sequence[str]) -> bool:
        meant = [choice for choice in choices if split_choice(choice)[1] == name]
        return bool(meant) and all(len(self.find(kind, choice)) == 1 for choice in meant)

    def _not_found(self, kind: str, choice: str) -> ProviderNotFoundError:
        names = list(self._providers[kind])
        choices = [found.choice for found in self.providers(kind)] if ":" in choice else names
        setting = PLUGIN_KINDS[kind].setting
        return ProviderNotFoundError(
            f"no plugin provides the {kind} {choice!r}"
            + (f" ({setting})" if setting else "")
            + f"; there are: {', '.join(sorted(choices)) or 'none'}.{suggestion(choice, choices)}"
            + self.why_absent(kind),
            hook=PLUGIN_KINDS[kind].hook,
        )


def _conflict(several: Sequence[RegisteredProvider]) -> PluginConflictError:
    kind, name = several[0].kind, several[0].provider.name
    choices = " or ".join(repr(choice) for choice in sorted({one.choice for one in several}))
    remedy = f"select {choices} in {kind.setting}, or block" if kind.setting else "block"
    return PluginConflictError(
        f"{len(several)} plugins provide the {kind.name} {name!r}: "
        f"{'; '.join(str(one.ref) for one in several)}. Please {remedy} one plugin with "
        "plugins.block",
        plugin=several[1].ref.name,
        distribution=several[1].ref.distribution,
        hook=kind.hook,
    )
