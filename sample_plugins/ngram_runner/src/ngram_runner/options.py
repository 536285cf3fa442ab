"""The options, of the worker and the model source alike."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

__all__ = ["NgramOptions"]


class NgramOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`plugins.options.ngram`."""

    order: Annotated[
        int,
        Meta(ge=1, le=16, description="Longest n-grams: a token depends on order - 1 before it."),
    ] = 3
    max_model_len: Annotated[
        int, Meta(ge=2, le=1 << 20, description="Tokens of prompt and output.")
    ] = 2048
    max_bytes: Annotated[
        int, Meta(ge=1, le=1 << 40, description="Of a text: a longer one is refused.")
    ] = 64 << 20
    cache_dir: Annotated[
        str,
        Meta(min_length=1, description="Where tokenizers and token ids of texts are kept."),
    ] = "~/.cache/framework-ngram-runner"
