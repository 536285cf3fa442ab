"""The arguments of the control commands, one struct each.

A command is known by the name in the registry of the engine core; nothing that is not registered
can be called. `EngineClient.command(name, arguments)` checks the arguments against these.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from hookspecs.types.control import PauseMode, WakeTag

__all__ = [
    "CollectiveRpc",
    "CommandArguments",
    "Drain",
    "GetStatus",
    "ListAdapters",
    "LoadAdapter",
    "Pause",
    "PluginCommand",
    "ResetPrefixCache",
    "Resume",
    "Sleep",
    "StartProfile",
    "StopProfile",
    "UnloadAdapter",
    "UpdateWeights",
    "WakeUp",
]


class CommandArguments(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of all command arguments."""


class GetStatus(CommandArguments, frozen=True, kw_only=True):
    """`get_status`: the engine's state. Allowed in every state."""


class Pause(CommandArguments, frozen=True, kw_only=True):
    """`pause`: answers when nothing runs any more."""

    mode: PauseMode = PauseMode.ABORT
    clear_cache: Annotated[
        bool,
        Meta(description="Forget cached blocks; requests that are kept are computed again."),
    ] = True


class Resume(CommandArguments, frozen=True, kw_only=True):
    """`resume`: schedule again; takes back a pause or a drain that still waits."""


class Sleep(CommandArguments, frozen=True, kw_only=True):
    """`sleep`: pause, then give memory back."""

    level: Annotated[
        int,
        Meta(
            ge=0,
            le=2,
            description="0: only pause; 1: keep weights in host memory, drop the KV cache; 2: drop "
            "both.",
        ),
    ] = 1
    mode: PauseMode = PauseMode.ABORT


class WakeUp(CommandArguments, frozen=True, kw_only=True):
    """`wake_up`: bring memory back, and schedule again once all of it is."""

    tags: Annotated[
        tuple[WakeTag, ...] | None, Meta(description="What to bring back; none: everything.")
    ] = None


class ResetPrefixCache(CommandArguments, frozen=True, kw_only=True):
    """`reset_prefix_cache`: forget all cached blocks; answers whether it was done."""

    preempt_running: Annotated[
        bool,
        Meta(description="Compute running requests again; otherwise they stand in the way."),
    ] = False


class UpdateWeights(CommandArguments, frozen=True, kw_only=True):
    """`update_weights`: replace weights in place, between two steps. Needs an engine that is
    paused or has no requests. Cached blocks are forgotten, kept requests are computed again."""

    path: Annotated[
        str | None, Meta(description="A .safetensors file, or a directory of them.")
    ] = None
    tensors: Annotated[
        dict[str, Any] | None,
        Meta(description="Parameter name, as in the checkpoint, to array or torch tensor."),
    ] = None
    version: Annotated[str, Meta(max_length=256, description="A label for what is loaded.")] = ""


class Drain(CommandArguments, frozen=True, kw_only=True):
    """`drain`: refuse new requests; answers when the others have ended."""

    timeout_s: Annotated[
        Annotated[float, Meta(ge=0)] | None,
        Meta(description="After so many seconds what is left is aborted; none: never."),
    ] = None


class StartProfile(CommandArguments, frozen=True, kw_only=True):
    """`start_profile`: record what the workers compute."""

    directory: Annotated[str, Meta(description="Where the workers write their traces.")]


class StopProfile(CommandArguments, frozen=True, kw_only=True):
    """`stop_profile`: write the traces; answers their paths, one a worker."""


class CollectiveRpc(CommandArguments, frozen=True, kw_only=True):
    """`collective_rpc`: run a registered command on every worker; answers the results in the
    order of ranks."""

    command: str
    args: tuple[Any, ...] = ()
    timeout_s: Annotated[float, Meta(gt=0)] | None = None


class PluginCommand(CommandArguments, frozen=True, kw_only=True):
    """`plugin_command`: run a command that a plugin provides (`EngineCommand`); answers its result
    in plain values. `EngineClient.command` makes it of any name that is none of these."""

    command: Annotated[str, Meta(min_length=1, max_length=256, description="The provider's name.")]
    arguments: Annotated[
        dict[str, Any], Meta(description="Checked against the command's own struct.")
    ] = {}


class ListAdapters(CommandArguments, frozen=True, kw_only=True):
    """`list_adapters`: the names of the loaded adapters."""


class LoadAdapter(CommandArguments, frozen=True, kw_only=True):
    """`load_adapter`: load a fine-tuned adapter from a directory."""

    name: str
    path: str


class UnloadAdapter(CommandArguments, frozen=True, kw_only=True):
    """`unload_adapter`: forget an adapter."""

    name: str
