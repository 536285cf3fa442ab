"""Options of a request."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

__all__ = ["NoRepeatNgram"]


class NoRepeatNgram(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`SamplingParams.extensions["no-repeat-ngram"]`."""

    size: Annotated[
        int,
        Meta(ge=1, description="So many tokens in a row occur once; 1: no token occurs twice."),
    ]
    include_prompt: Annotated[
        bool,
        Meta(description="What the prompt holds may not be repeated either. Off: output alone."),
    ] = True
