"""Options of the recorder."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

__all__ = ["FlightRecorderOptions"]


class FlightRecorderOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`plugins.options.flight-recorder`."""

    directory: Annotated[
        Annotated[str, Meta(min_length=1)] | None,
        Meta(
            description="Where records are written; made when the first one is. None: nothing is "
            "recorded."
        ),
    ] = None
    max_events: Annotated[
        int, Meta(ge=1, le=100_000, description="Events of a record: the last ones.")
    ] = 2000
    max_files: Annotated[
        int,
        Meta(
            ge=1,
            le=10_000,
            description="Records in the directory, of all engines; the oldest are deleted.",
        ),
    ] = 20
    at_stop: Annotated[
        bool, Meta(description="Write a record also when an engine stops in an orderly way.")
    ] = False
