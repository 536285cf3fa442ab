"""What a parent process and its child tell each other over their channel."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

__all__ = [
    "ChildMessage",
    "Failed",
    "Line",
    "ParentMessage",
    "PeerDied",
    "Progress",
    "Ready",
    "Start",
    "Stop",
    "Told",
]


class Start(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Parent: the first message."""

    boot: bytes
    """An encoded `Boot`."""
    payload: bytes
    """msgpack of a struct that the child's entry point knows."""
    runtime_dir: str
    """The launch's directory, which a child removes when its parent has died."""
    log_level: int
    """Of the logger `framework`, as the parent has it."""
    name: str
    """Of the child, e.g. `engine-core-0`."""


class Stop(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Parent: end in an orderly way."""

    drain_s: float = 0.0
    """Seconds that requests get to end by themselves."""


class PeerDied(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Parent: another process of this launch is gone."""

    name: str
    index: int
    reason: str


class Line(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Child: a line for the start-up log."""

    text: str


class Progress(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Child: long work at its start."""

    what: str
    fraction: float


class Told(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Child: something that the parent waits for before the child is ready."""

    payload: bytes


class Ready(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Child: it works."""

    reply: bytes
    """An encoded `BootReply`."""


class Failed(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Child: it could not start, and ends."""

    error_type: str
    error: str
    traceback: str
    plugin: str | None = None
    """Who caused it, where that is known."""


ParentMessage: TypeAlias = Start | Stop | PeerDied
ChildMessage: TypeAlias = Line | Progress | Told | Ready | Failed
