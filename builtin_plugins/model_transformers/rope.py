"""Rotary embeddings whose frequencies follow the length of the sequence.

transformers recomputes `dynamic` and `longrope` frequencies from the largest position of a
forward. In a flattened batch that is the longest of all rows, so a request's tokens would depend
on its neighbours, and cached keys would have been rotated by other frequencies than the queries.
They are therefore fixed, for the longest sequence that may be served:

- `longrope`: the short factors when max_model_len is at most the model's
  `original_max_position_embeddings`, the long ones for all lengths when it is more;
- `dynamic`: unscaled when max_model_len is at most the model's `max_position_embeddings`, else
  scaled for max_model_len.

So results equal those of transformers for all sequences in the first case of each, and for
sequences as long as max_model_len in the second; lower model.max_model_len to get the first.
"""

from __future__ import annotations

from typing import Any

import torch
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

__all__ = ["pin_rope"]

_PINNED = "pinned"
"""A rope type that transformers does not update in its forward."""


def pin_rope(model: torch.nn.Module, max_model_len: int) -> None:
    """Fix the frequencies of all rotary embeddings of `model` that follow the length."""
    for module in model.modules():
        rope_type: Any = getattr(module, "rope_type", None)
        if isinstance(rope_type, str) and _follows_length(rope_type):
            _set_frequencies(module, rope_type, max_model_len, prefix="")
            module.rope_type = _PINNED  # type: ignore[assignment]
        elif isinstance(rope_type, dict):
            for layer_type, kind in rope_type.items():
                if _follows_length(kind):
                    _set_frequencies(
                        module, kind, max_model_len, prefix=f"{layer_type}_", layer_type=layer_type
                    )
                    rope_type[layer_type] = _PINNED


def _follows_length(rope_type: str) -> bool:
    return "dynamic" in rope_type or rope_type == "longrope"


def _set_frequencies(
    module: Any, rope_type: str, max_model_len: int, *, prefix: str, **layer: str
) -> None:
    frequencies = getattr(module, f"{prefix}inv_freq")
    pinned, _ = ROPE_INIT_FUNCTIONS[rope_type](
        module.config, frequencies.device, seq_len=max_model_len, **layer
    )
    frequencies.copy_(pinned)
