"""From the user's sampling parameters to the engine's: limits and defaults filled in."""

from __future__ import annotations

import msgspec

from framework.core.info import EngineInfo
from framework.frontend.tokenizer import Tokenizer
from hookspecs.errors import InvalidRequestError
from hookspecs.types.sampling import SamplingParams

__all__ = ["engine_params"]


def engine_params(
    params: SamplingParams,
    *,
    num_prompt_tokens: int,
    end_tokens: list[int],
    vocab_size: int,
    engine_info: EngineInfo,
    tokenizer: Tokenizer | None,
) -> list[SamplingParams]:
    """Parameters of each of the n outputs, n being 1 in each. `params`: validated, unchanged.

    Only the first has prompt_logprobs, for all: they recompute the prompt, which is the same.
    `end_tokens`: the model's, the primary one first; empty if they are ignored. With a seed,
    the outputs have the seeds seed to seed + n - 1 (modulo 2**64).
    InvalidRequestError for what does not fit the prompt, the context or the cache.
    """
    stop_token_ids = list(dict.fromkeys([*(params.stop_token_ids or ()), *end_tokens[1:]]))
    _check_allowed(params, {*stop_token_ids, *end_tokens})
    one = msgspec.structs.replace(
        params,
        n=1,
        # Off, or no token is left out: the same.
        top_k=params.top_k if 0 < params.top_k < vocab_size else 0,
        max_tokens=_max_tokens(params, num_prompt_tokens, engine_info),
        stop_token_ids=stop_token_ids or None,
        bad_words_token_ids=_bad_words(params, vocab_size, tokenizer) or None,
    )
    other = msgspec.structs.replace(one, prompt_logprobs=None)
    all_params = [one, *[other] * (params.n - 1)]
    if params.seed is None or params.n == 1:
        return all_params
    seeds = (params.seed + index for index in range(params.n))
    return [
        msgspec.structs.replace(each, seed=seed if seed < 2**64 else seed - 2**64)
        for each, seed in zip(all_params, seeds, strict=True)
    ]


def _check_allowed(params: SamplingParams, ends: set[int]) -> None:
    allowed = params.allowed_token_ids
    if allowed and params.min_tokens and ends.issuperset(allowed):
        raise InvalidRequestError(
            "allowed_token_ids are all end or stop tokens, but with min_tokens "
            f"{params.min_tokens} the first token can be none of these",
            param="allowed_token_ids",
        )


def _max_tokens(params: SamplingParams, num_prompt_tokens: int, info: EngineInfo) -> int:
    """Most tokens this request may produce, within the model's context and the cache."""
    limit, cache = info.max_model_len, info.cache_tokens
    if params.max_tokens is None:
        wanted, needed = min(limit, cache) - num_prompt_tokens, num_prompt_tokens + 1
    else:
        wanted = min(params.max_tokens, limit - num_prompt_tokens)
        needed = num_prompt_tokens + wanted
    if needed > cache:
        raise InvalidRequestError(
            f"the request needs {needed} tokens in the KV cache (prompt {num_prompt_tokens}, "
            f"output {needed - num_prompt_tokens}), which holds {cache} for one request; shorten "
            "the prompt, lower max_tokens or raise cache.num_blocks",
            param="prompt" if params.max_tokens is None else "max_tokens",
            value=num_prompt_tokens if params.max_tokens is None else params.max_tokens,
        )
    if params.min_tokens > wanted:
        raise InvalidRequestError(
            f"min_tokens is {params.min_tokens}, but after a prompt of {num_prompt_tokens} tokens "
            f"there is room for {wanted}",
            param="min_tokens",
            value=params.min_tokens,
        )
    return wanted


def _bad_words(
    params: SamplingParams, vocab_size: int, tokenizer: Tokenizer | None
) -> list[list[int]]:
    sequences = list(params.bad_words_token_ids or ())
    if params.bad_words and tokenizer is not None:
        for word in params.bad_words:
            sequences += tokenizer.bad_word_ids(word)
    # The model has no logit for an id beyond its width, so such a sequence can not appear.
    return [ids for ids in sequences if max(ids) < vocab_size]
