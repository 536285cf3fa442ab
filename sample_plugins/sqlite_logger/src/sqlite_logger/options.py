"""Options of the stat logger."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

__all__ = ["SqliteOptions"]


class SqliteOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`plugins.options.sqlite`."""

    path: Annotated[
        str,
        Meta(
            min_length=1,
            description="Database file; made if missing. Its directory must exist, on a local "
            "file system.",
        ),
    ]
    keep_days: Annotated[
        Annotated[float, Meta(gt=0, le=36525)] | None,
        Meta(description="Days after which rows are deleted; None: never."),
    ] = None
    max_queued: Annotated[
        int, Meta(ge=1, le=1 << 20, description="Rows that wait for the disk; more are dropped.")
    ] = 8192
