"""Options of the model source."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

__all__ = ["ArchiveOptions"]


class ArchiveOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`plugins.options.archive`."""

    cache_dir: Annotated[
        Annotated[str, Meta(min_length=1)] | None,
        Meta(description="Directory for what was unpacked; default: `archive` in the cache."),
    ] = None
    max_bytes: Annotated[
        int,
        Meta(ge=1, le=1 << 60, description="Most bytes that one archive may have when unpacked."),
    ] = 64 << 30
