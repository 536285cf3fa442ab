"""Options of the filters."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

__all__ = ["RequestGuardOptions"]

Tenant = Annotated[str, Meta(max_length=256)]
Secret = Annotated[str, Meta(min_length=1, max_length=200)]


class RequestGuardOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`plugins.options.request-guard`. Without any, all requests and outputs pass."""

    max_tokens: Annotated[
        dict[Tenant, Annotated[int, Meta(ge=1)]],
        Meta(
            description="Tenant to the most tokens of each of its outputs; '' are requests "
            "without a tenant, and tenants that are not named have no limit."
        ),
    ] = msgspec.field(default_factory=dict)
    refuse: Annotated[
        tuple[Tenant, ...], Meta(description="Tenants whose requests are refused.")
    ] = ()
    redact: Annotated[
        tuple[Secret, ...],
        Meta(
            max_length=1000,
            description="Texts that are masked wherever they occur in an output, also inside of "
            "words, in upper or lower case.",
        ),
    ] = ()
    share_fairly: Annotated[
        bool,
        Meta(description="Put the policy fair_share first, unless scheduler.policies names it."),
    ] = False
