"""What in one request would harm the forward of all: found before it joins the batch."""

from __future__ import annotations

import math

import torch

from hookspecs.contracts.model import ModelInfo
from hookspecs.types.step import NewRequest

__all__ = ["refusal"]


def refusal(request: NewRequest, info: ModelInfo) -> str | None:
    """Why a request can not run; None if it can."""
    if request.adapter is not None:
        return f"adapter {request.adapter.name!r}: the worker `cpu` has no adapters"
    if not (min(request.token_ids) >= 0 and max(request.token_ids) < info.vocab_size):
        bad = next(token for token in request.token_ids if not 0 <= token < info.vocab_size)
        return f"token id {bad} is not between 0 and {info.vocab_size - 1}"
    if request.prompt_embeds is not None:
        embeds = torch.as_tensor(request.prompt_embeds)
        expected = (request.num_prompt_tokens, info.hidden_size)
        if tuple(embeds.shape) != expected:
            return f"prompt_embeds has shape {tuple(embeds.shape)}; it must have {expected}"
        if not math.isfinite(embeds.float().abs().max().item()):
            return "prompt_embeds has values that are not finite"
    return None
