"""Makes the selected side channels, and of each the half that belongs to this side."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from framework.core.side_channels.halves import HOOK, Half, Halves
from framework.core.side_channels.message_type import MessageType
from framework.plugins.failure import describe
from framework.plugins.manager import PluginManager
from framework.plugins.readable import unreadable
from framework.plugins.registry import RegisteredProvider
from hookspecs.contracts.side_channel import CoreHalf, SideChannel, WorkerHalf
from hookspecs.errors import ContractViolation, FrameworkError, PluginError, ProviderError
from hookspecs.events import PluginFailed
from hookspecs.info import ProcessRole

__all__ = ["create_core_halves", "create_worker_halves"]

H = TypeVar("H", bound=CoreHalf | WorkerHalf)
Tell = Callable[[PluginFailed], object]


def create_core_halves(plugins: PluginManager, engine_index: int) -> Halves[CoreHalf]:
    """Of the channels in `engine.side_channels`. ProviderError, ContractViolation or an error
    of its own for one that can not be made; those made before are closed."""

    def make(name: str) -> Half[CoreHalf]:
        channel, to_worker, to_core = _channel(plugins, name, engine_index, None)
        half, plugin = _half(plugins, name, channel.create_core, CoreHalf), channel.context.plugin
        counter = plugins.calls.counter(plugin, HOOK)
        return Half(half, plugin, sends=to_worker, receives=to_core, counter=counter)

    return _all(plugins, make, plugins.calls.on_plugin_failed, "core", ProcessRole.CORE)


def create_worker_halves(
    plugins: PluginManager, engine_index: int, rank: int, tell: Tell
) -> Halves[WorkerHalf]:
    """The same for each worker, in its thread. `tell`: see `Halves`."""

    def make(name: str) -> Half[WorkerHalf]:
        channel, to_worker, to_core = _channel(plugins, name, engine_index, rank)
        half, plugin = (
            _half(plugins, name, channel.create_worker, WorkerHalf),
            channel.context.plugin,
        )
        counter = plugins.calls.counter_of_thread(plugin, HOOK)
        return Half(half, plugin, sends=to_core, receives=to_worker, counter=counter)

    return _all(plugins, make, tell, "worker", ProcessRole.WORKER)


def _all(
    plugins: PluginManager,
    make: Callable[[str], Half[H]],
    tell: Tell,
    side: str,
    role: ProcessRole,
) -> Halves[H]:
    made: dict[str, Half[H]] = {}
    try:
        for name in dict.fromkeys(plugins.config.engine.side_channels):
            made[name] = make(name)
    except BaseException:
        Halves(made, tell=tell, side=side, role=role).close()
        raise
    return Halves(made, tell=tell, side=side, role=role)


def _channel(
    plugins: PluginManager, name: str, engine_index: int, rank: int | None
) -> tuple[SideChannel, MessageType, MessageType]:
    """A channel, and the types of what goes to the worker and to the core."""
    channel: SideChannel = plugins.create(
        "side_channel", name, engine_index=engine_index, rank=rank
    )
    found = plugins.resolve("side_channel", name)
    return channel, _type(channel, "Message", found), _type(channel, "Reply", found)


def _type(channel: SideChannel, attribute: str, found: RegisteredProvider) -> MessageType:
    kind: Any = getattr(channel, attribute, None)
    if attribute == "Message" and kind is None:
        raise _error(
            ContractViolation,
            found,
            "its class declares no Message, the type of what its half in the core sends",
        )
    why = unreadable(kind)
    if why is not None:
        raise _error(ContractViolation, found, f"msgspec can not decode its {attribute}: {why}")
    return MessageType(kind)


def _half(plugins: PluginManager, name: str, create: Callable[[], H], contract: type) -> H:
    found = plugins.resolve("side_channel", name)
    try:
        half = create()
    except FrameworkError:
        raise
    except (Exception, SystemExit) as error:
        raise _error(
            ProviderError, found, f"making its {contract.__name__} failed: {describe(error)}"
        ) from error
    if not isinstance(half, contract):
        raise _error(
            ContractViolation, found, f"it made a {type(half).__name__}, no {contract.__name__}"
        )
    return half


def _error(kind: type[PluginError], found: RegisteredProvider, what: str) -> PluginError:
    return kind(
        f"side_channel {found.provider.name!r} of {found.ref}: {what}",
        plugin=found.ref.name,
        distribution=found.ref.distribution,
        hook=HOOK,
    )
