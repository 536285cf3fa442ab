"""Options of the stat logger."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

__all__ = ["SlowRequestOptions"]


class SlowRequestOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`plugins.options.slow-requests`. A limit of `inf` is never exceeded."""

    e2e_latency_s: Annotated[
        float, Meta(gt=0, description="Most seconds from arrival to the end of the output.")
    ] = 30.0
    time_to_first_token_s: Annotated[
        float, Meta(gt=0, description="Most seconds from arrival to the first token.")
    ] = 5.0
