"""Options of the stat logger `json_lines`."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import msgspec
from msgspec import Meta

__all__ = ["Every", "JsonLinesOptions"]


class Every(StrEnum):
    """What gets a line."""

    FINISHED = "finished"
    """Every finished request."""
    REPORT = "report"
    """Every report interval (`stats.interval_s`)."""
    BOTH = "both"


class JsonLinesOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`plugins.options.json_lines`."""

    path: Annotated[
        str,
        Meta(min_length=1, description="File to append to; its directory must exist."),
    ] = "framework-stats.jsonl"
    every: Annotated[
        Every,
        Meta(description="A line for every `finished` request, every `report` interval, or both."),
    ] = Every.BOTH
