"""Options of the policy."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

__all__ = ["ShortestPromptFirstOptions"]


class ShortestPromptFirstOptions(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True
):
    """`plugins.options.shortest-prompt-first`."""

    aging_tokens_per_s: Annotated[
        float,
        Meta(
            gt=0,
            le=1e6,
            description="Prompt tokens that a second of waiting makes up for. A prompt of N "
            "tokens can be overtaken for N / aging_tokens_per_s seconds at most.",
        ),
    ] = 100.0
