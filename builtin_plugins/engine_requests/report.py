"""What the command `requests` takes and answers."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

__all__ = ["RequestLine", "RequestsArguments", "RequestsReport", "Totals"]


class RequestsArguments(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which requests."""

    tenant: Annotated[
        Annotated[str, Meta(max_length=256)] | None,
        Meta(description="Only those of this tenant; the empty one is a tenant, too."),
    ] = None
    limit: Annotated[
        int, Meta(ge=0, le=1000, description="Lines at most; 0 gives the totals alone.")
    ] = 100


class RequestLine(msgspec.Struct, frozen=True, kw_only=True):
    """One request."""

    request_id: str
    """Within the engine: of several outputs of one prompt each has its own."""
    tenant: str
    status: str
    """`waiting`, `running` or `preempted`."""
    priority: int
    prompt_tokens: int
    output_tokens: int
    blocks_needed: int
    """For all its present tokens, without prefix hits."""
    preemptions: int
    age_s: float
    """Seconds since it arrived."""


class Totals(msgspec.Struct, frozen=True, kw_only=True):
    """Of all requests that match, those left out of the lines included."""

    running: int
    waiting: int
    preempted: int
    prompt_tokens: int
    output_tokens: int


class RequestsReport(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of one engine."""

    engine_index: int
    requests: list[RequestLine]
    """In the order of arrival."""
    left_out: int
    """Requests that match, beyond `limit`."""
    totals: Totals
    blocks_free: int
    """Blocks that can be given out now."""
    blocks_total: int
