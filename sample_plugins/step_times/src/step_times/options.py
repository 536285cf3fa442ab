"""Options of the side channel."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

__all__ = ["StepTimesOptions"]


class StepTimesOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`plugins.options.step-times`."""

    every_steps: Annotated[
        int, Meta(ge=1, le=1_000_000, description="Steps of one report; the last may have fewer.")
    ] = 1000
    path: Annotated[
        Annotated[str, Meta(min_length=1)] | None,
        Meta(
            description="File to which each report is appended as a line of JSON; its directory "
            "must exist. None: a table in the log."
        ),
    ] = None
