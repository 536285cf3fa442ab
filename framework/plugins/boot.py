"""The one message that tells a child process which plugins to load, and its answer.

msgpack; nothing in it is code. A process that the kernel starts decodes `Boot`, builds its
plugin manager from it once, and answers with what it loaded; the parent compares.
"""

from __future__ import annotations

from typing import Any

import msgspec

from framework.plugins.discovery import PluginRef
from framework.plugins.manifest import api_text
from hookspecs.config import EngineConfig
from hookspecs.errors import ApiVersionError, PluginError, PluginLoadError
from hookspecs.info import ProcessRole
from hookspecs.version import API_VERSION, PROTOCOL_VERSION

__all__ = ["Boot", "BootPlugin", "BootReply", "check_versions", "compare", "require_importable"]


class BootPlugin(msgspec.Struct, frozen=True, kw_only=True):
    """One plugin that the parent loaded."""

    ref: PluginRef
    roles: tuple[ProcessRole, ...]
    """The processes that import it."""


class Boot(msgspec.Struct, frozen=True, kw_only=True):
    """From a parent to a child. Carries all plugins, so that the child can start its own."""

    roles: tuple[ProcessRole, ...]
    """What the child is; the first names it. A core whose executor runs the worker in its own
    process is both core and worker."""
    plugins: tuple[BootPlugin, ...]
    """In the order in which they are called."""
    config: EngineConfig
    api: tuple[int, int] = API_VERSION
    protocol: int = PROTOCOL_VERSION

    @property
    def role(self) -> ProcessRole:
        """The name of the child's process."""
        return self.roles[0]

    def expected(self) -> list[PluginRef]:
        """The plugins that the child imports."""
        return [plugin.ref for plugin in self.plugins if {*plugin.roles} & {*self.roles}]

    def encode(self) -> bytes:
        """As msgpack. PluginError when an option's value can not be sent."""
        try:
            return msgspec.msgpack.encode(self)
        except (TypeError, ValueError, OverflowError) as error:
            raise PluginError(
                f"the configuration can not be sent to the {self.role} process: {error}"
            ) from error

    @classmethod
    def decode(cls, data: bytes) -> Boot:
        """Inverse of `encode`. PluginError when it is of another version.

        The versions are read first: a message of another version need not fit the struct.
        """
        try:
            head = msgspec.msgpack.decode(data, type=_Head)
            _check_protocol(head.protocol)
            check_versions(head.api)
            return msgspec.msgpack.decode(data, type=cls)
        except msgspec.DecodeError as error:
            raise PluginError(f"the boot message can not be read: {error}") from error


class _Head(msgspec.Struct):
    api: tuple[int, int]
    protocol: int


class BootReply(msgspec.Struct, frozen=True, kw_only=True):
    """What a child loaded."""

    roles: tuple[ProcessRole, ...]
    plugins: dict[str, str | None]
    """Name to version of its distribution as installed where the child runs; None for local
    objects."""
    api: tuple[int, int] = API_VERSION

    def encode(self) -> bytes:
        """As msgpack."""
        return msgspec.msgpack.encode(self)

    @classmethod
    def decode(cls, data: bytes) -> BootReply:
        """Inverse of `encode`. PluginError when it can not be read."""
        try:
            return msgspec.msgpack.decode(data, type=cls)
        except msgspec.DecodeError as error:
            raise PluginError(f"the reply to a boot message can not be read: {error}") from error


def check_versions(api: tuple[int, int]) -> None:
    """ApiVersionError when the other side speaks another version of the contract."""
    if tuple(api) != API_VERSION:
        raise ApiVersionError(
            f"the other process has contract version {api_text(api)}, this one {api_text()}; "
            "install the same version of the framework for both"
        )


def _check_protocol(protocol: int) -> None:
    if protocol != PROTOCOL_VERSION:
        raise PluginError(
            f"the parent process speaks protocol {protocol}, this one {PROTOCOL_VERSION}; "
            "install the same version of the framework for both"
        )


def require_importable(ref: PluginRef, plugin: Any) -> None:
    """PluginLoadError for a local object that a child process can not import."""
    if not ref.value:
        raise PluginLoadError(
            f"{ref}: child processes can not import {plugin!r}, since it is no top-level name "
            f"of the module {type(plugin).__module__!r} that defines it. Assign it to a name in "
            "an importable module: what is made in a function (<locals>) or lives in __main__ "
            "is out of reach. Or run everything in one process: engine.process = in_process",
            plugin=ref.name,
        )


def compare(boot: Boot, reply: BootReply) -> None:
    """PluginLoadError when a child has other plugins, or other versions, than it was told."""
    check_versions(reply.api)
    expected = {ref.name: ref for ref in boot.expected()}
    wrong = [f"{name} is missing" for name in expected if name not in reply.plugins]
    wrong += [f"{name} is there unasked" for name in reply.plugins if name not in expected]
    wrong += [
        f"{name} is {reply.plugins[name]} there and {ref.version} here"
        for name, ref in expected.items()
        if name in reply.plugins and reply.plugins[name] != ref.version
    ]
    if reply.roles != boot.roles:
        wrong.append(f"it is {', '.join(reply.roles)} instead of {', '.join(boot.roles)}")
    if wrong:
        raise PluginLoadError(
            f"the {boot.role} process has other plugins than this one: {'; '.join(wrong)}. "
            "Install the same packages where it runs"
        )
