"""Options of the scheduling policies, one struct a provider."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

__all__ = ["FairShareOptions", "PriorityOptions"]

Weight = Annotated[float, Meta(gt=0, le=1e6)]


class PriorityOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of `priority`."""

    preempt_running: Annotated[
        bool,
        Meta(
            description="Push out running requests of larger priority number when a waiting one "
            "has no room."
        ),
    ] = False


class FairShareOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of `fair_share`."""

    weights: Annotated[
        dict[str, Weight],
        Meta(description="Tenant to its share; twice the weight gets twice the tokens."),
    ] = msgspec.field(default_factory=dict)
    default_weight: Annotated[
        float, Meta(gt=0, le=1e6, description="Weight of tenants that `weights` does not name.")
    ] = 1.0
