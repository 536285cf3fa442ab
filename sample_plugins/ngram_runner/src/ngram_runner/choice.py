"""From counts and the parameters of a request to its next token."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping

from hookspecs.types.sampling import SamplingParams

__all__ = ["choose", "draw", "most_frequent", "uniform", "unsupported"]


def unsupported(params: SamplingParams) -> list[str]:
    """Names of the parameters that are set and that this runner does not honour."""
    asked = {
        # An unseen token has no finite log-probability.
        "logprobs": params.logprobs is not None,
        # There are no logits to add to.
        "logit_bias": bool(params.logit_bias),
        "presence_penalty": params.presence_penalty != 0,
        "frequency_penalty": params.frequency_penalty != 0,
        "repetition_penalty": params.repetition_penalty != 1,
        "bad_words": bool(params.bad_words_token_ids),
    }
    return [name for name, is_asked in asked.items() if is_asked]


def choose(
    candidates: Iterable[Mapping[int, int]],
    params: SamplingParams,
    *,
    banned: frozenset[int],
    number: float,
) -> int | None:
    """A token of the first of `candidates` (token to count) that has one which is allowed and
    not banned; None if none has. `number`: in [0, 1), decides the draw."""
    allowed = None if params.allowed_token_ids is None else set(params.allowed_token_ids)
    for counts in candidates:
        left = {
            token: count
            for token, count in counts.items()
            if token not in banned and (allowed is None or token in allowed)
        }
        if left:
            return most_frequent(left) if params.greedy else draw(left, params, number)
    return None


def most_frequent(counts: Mapping[int, int]) -> int:
    """Of equals, the lowest id."""
    return min(counts, key=lambda token: (-counts[token], token))


def draw(counts: Mapping[int, int], params: SamplingParams, number: float) -> int:
    """Draw with probabilities in proportion to count ** (1 / temperature), after min_p, top_k
    and top_p, in this order."""
    ranked = sorted(counts, key=lambda token: (-counts[token], token))
    largest = counts[ranked[0]]
    weights = [math.exp(math.log(counts[token] / largest) / params.temperature) for token in ranked]
    # Falling, from 1: min_p compares with them directly, and every filter keeps a beginning.
    kept = sum(weight >= params.min_p for weight in weights)
    if params.top_k > 0:
        kept = min(kept, params.top_k)
    share = params.top_p * math.fsum(weights[:kept])
    if params.top_p < 1:
        kept = _first_beyond(weights[:kept], share, strictly=False) + 1
    place = _first_beyond(weights[:kept], number * math.fsum(weights[:kept]), strictly=True)
    return ranked[place]


def _first_beyond(weights: list[float], share: float, *, strictly: bool) -> int:
    """The place at which the running sum reaches `share`, or exceeds it; the last one if rounding
    keeps it below."""
    total = 0.0
    for place, weight in enumerate(weights):
        total += weight
        if total > share or (total == share and not strictly):
            return place
    return len(weights) - 1


def uniform(key: str, position: int) -> float:
    """A number in [0, 1), a multiple of 2**-53, that depends on the arguments only: the first 53
    bits of BLAKE2b (RFC 7693)."""
    digest = hashlib.blake2b(f"{key}/{position}".encode(), digest_size=8).digest()
    return (int.from_bytes(digest, "big") >> 11) * 2.0**-53
