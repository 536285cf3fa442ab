"""Which tokens a request may not produce now, and logit bias.

Ids outside of the vocabulary have no effect: they can not be produced anyway.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
import numpy as np
import torch

from builtin_plugins.sampler_default.bad_words import BadWords
from hookspecs.types.columns import Float32Column, Int64Column
from hookspecs.types.step import NewRequest

__all__ = ["TokenRules", "apply_rules", "build_rules"]

_NO_IDS: Int64Column = np.zeros(0, dtype=np.int64)


class TokenRules(msgspec.Struct, kw_only=True):
    """Rules of one request, with ids made ready for indexing."""

    allowed: Int64Column | None
    """The only tokens, or None for all."""
    banned: Int64Column
    """Bad words of one token."""
    longer: BadWords | None
    """Those of several."""
    min_tokens: int
    ends: Int64Column
    """Masked while fewer than min_tokens tokens were produced."""
    bias_ids: Int64Column
    bias: Float32Column

    def accept(self, token: int) -> None:
        """The next output token was chosen."""
        if self.longer is not None:
            self.longer.accept(token)

    def spent(self, num_output_tokens: int) -> bool:
        """Whether no rule will ever apply again: there was only min_tokens."""
        lasting = self.allowed is not None or self.longer is not None
        lasting = lasting or len(self.banned) + len(self.bias_ids) > 0
        return not lasting and num_output_tokens >= self.min_tokens

    def masked(self, num_output_tokens: int) -> Int64Column:
        """The ids masked by bad words and min_tokens; may repeat."""
        parts = [self.banned]
        if self.longer is not None:
            parts.append(self.longer.completing())
        if num_output_tokens < self.min_tokens:
            parts.append(self.ends)
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def names(self, num_output_tokens: int) -> str:
        """The parameters that mask tokens now, for an error message."""
        active = {
            "allowed_token_ids": self.allowed is not None,
            "bad_words": self.longer is not None or len(self.banned) > 0,
            "min_tokens": num_output_tokens < self.min_tokens,
        }
        return ", ".join(name for name, masks in active.items() if masks)


def build_rules(request: NewRequest, vocab_size: int) -> TokenRules | None:
    """The rules of a request with its outputs so far; None if it has none."""
    params = request.sampling_params
    outputs = request.token_ids[request.num_prompt_tokens :]
    words = [word for word in params.bad_words_token_ids or () if word]
    waits = params.min_tokens > len(outputs)
    if not (params.allowed_token_ids is not None or words or waits or params.logit_bias):
        return None
    longer = [word for word in words if len(word) > 1 and _within(word, vocab_size)]
    ends = [*(params.stop_token_ids or ())]
    if request.eos_token_id is not None:
        ends.append(request.eos_token_id)
    bias = {i: b for i, b in (params.logit_bias or {}).items() if 0 <= i < vocab_size}
    allowed = params.allowed_token_ids
    return TokenRules(
        allowed=None if allowed is None else _ids(allowed, vocab_size),
        banned=_ids((word[0] for word in words if len(word) == 1), vocab_size),
        longer=BadWords(longer, outputs) if longer else None,
        min_tokens=params.min_tokens,
        ends=_ids(ends, vocab_size) if waits else _NO_IDS,
        bias_ids=_ids(bias, vocab_size),
        bias=np.array(list(bias.values()), dtype=np.float32),
    )


def apply_rules(
    logits: torch.Tensor,
    rows: Int64Column,
    rules: Sequence[TokenRules],
    num_output_tokens: Int64Column,
) -> None:
    """Mask (to -inf) and then bias the given rows of float32 [all rows, vocab], in place."""
    device = logits.device
    limited = [i for i, r in enumerate(rules) if r.allowed is not None]
    if limited:
        allowed = [r.allowed for r in rules if r.allowed is not None]
        at, ids = _pairs(rows[limited], allowed, device)
        kept = logits[at, ids]
        logits[torch.as_tensor(rows[limited], device=device)] = -torch.inf
        logits[at, ids] = kept
    masked = [r.masked(n) for r, n in zip(rules, num_output_tokens.tolist(), strict=True)]
    logits[_pairs(rows, masked, device)] = -torch.inf
    bias = torch.as_tensor(np.concatenate([r.bias for r in rules]), device=device)
    at, ids = _pairs(rows, [r.bias_ids for r in rules], device)
    logits[at, ids] += bias  # a request's bias names each id once


def _pairs(
    rows: Int64Column, ids: Sequence[Int64Column], device: torch.device
) -> tuple[torch.Tensor, torch.Tensor]:
    """Index tensors of (row, id) for the ids of each row."""
    at = np.repeat(rows, [len(i) for i in ids])
    flat = np.concatenate(ids)
    return torch.as_tensor(at, device=device), torch.as_tensor(flat, device=device)


def _within(ids: Sequence[int], vocab_size: int) -> bool:
    return min(ids) >= 0 and max(ids) < vocab_size


def _ids(ids: Iterable[int], vocab_size: int) -> Int64Column:
    return np.array([i for i in ids if 0 <= i < vocab_size], dtype=np.int64)
