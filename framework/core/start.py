"""What an engine core process is told, and by what name it is known."""

from __future__ import annotations

import msgspec

from framework.transport.curve import CurveKeys
from hookspecs.contracts.model import ResolvedModel

__all__ = ["CoreStart", "FrontEndAddress", "engine_identity"]


class FrontEndAddress(msgspec.Struct, frozen=True, kw_only=True):
    """Where a front end listens."""

    inputs: str
    """Its ROUTER, from which engine cores get requests."""
    outputs: str
    """Its PULL, where they send outputs."""
    listens: bool = True
    """Whether it reads all the time. One that does not gets no heartbeats while nothing happens:
    they would pile up."""


class CoreStart(msgspec.Struct, frozen=True, kw_only=True):
    """What the process is told besides its boot message."""

    model: ResolvedModel
    engine_index: int
    front_ends: tuple[FrontEndAddress, ...]
    """By client index."""
    curve: CurveKeys | None = None
    """With tcp addresses."""


def engine_identity(engine_index: int) -> bytes:
    """The name of an engine core at the sockets of its front ends."""
    return f"engine-{engine_index}".encode()
