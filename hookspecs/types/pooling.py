"""Pooling: one vector for a whole prompt instead of tokens."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import msgspec
from msgspec import Meta

from hookspecs.types.columns import Float32Column

__all__ = ["PoolingOutput", "PoolingParams", "PoolingType"]


class PoolingType(StrEnum):
    """How the last hidden states of a prompt's tokens become one vector."""

    MEAN = "mean"
    """Their mean."""
    LAST = "last"
    """That of the last token."""


class PoolingParams(msgspec.Struct, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Parameters of one pooling request."""

    pooling: PoolingType = PoolingType.MEAN
    normalize: Annotated[bool, Meta(description="Scale the vector to Euclidean length 1.")] = True
    dimensions: Annotated[
        int | None,
        Meta(
            description="Keep the first so many elements, before normalizing (Kusupati et al., "
            "Matryoshka Representation Learning, 2022); at most the hidden size."
        ),
    ] = None


class PoolingOutput(msgspec.Struct, kw_only=True):
    """What a user gets for one pooling request."""

    request_id: str
    prompt_token_ids: list[int]
    embedding: Float32Column
    """float32[dimensions]"""
