"""What a front-end process is told besides its boot message."""

from __future__ import annotations

import msgspec

from framework.transport.curve import CurveKeys
from hookspecs.contracts.model import ResolvedModel

__all__ = ["FrontEndStart"]


class FrontEndStart(msgspec.Struct, frozen=True, kw_only=True):
    """The payload of its first message."""

    model: ResolvedModel
    process_index: int
    """Also its client index."""
    num_engines: int
    listen_fd: int
    """Inherited."""
    shared_dir: str
    """Of all front-end processes."""
    curve: CurveKeys | None = None
