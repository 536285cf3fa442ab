"""What the command takes and answers: the words that both halves share."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

__all__ = ["Census", "CensusArguments", "Holder"]

Tenant = Annotated[str, Meta(max_length=256)]


class CensusArguments(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Bounded, for no request advances while the command runs."""

    tenants: Annotated[
        tuple[Tenant, ...], Meta(max_length=100, description="Whose served tokens are told.")
    ] = ()
    limit: Annotated[int, Meta(ge=0, le=1000, description="Requests that are listed, at most.")] = (
        100
    )


class Holder(msgspec.Struct, frozen=True, kw_only=True):
    """One request."""

    request_id: str
    tenant: str
    running: bool
    blocks: int
    """Blocks for all its present tokens, shared ones counted in full; of one that does not run,
    those that it will need."""


class Census(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of one engine."""

    engine: int
    blocks_free: int
    """Blocks that can be given out now; cached ones that nobody uses are among them."""
    blocks_used: int
    running: int
    waiting: int
    served_tokens: dict[str, int]
    """Tenant to tokens computed for it since the start."""
    requests: list[Holder]
    """In the order of arrival."""
    requests_left_out: int
