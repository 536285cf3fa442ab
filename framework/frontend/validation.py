"""Validation of sampling parameters and of what comes with a request, before tokenising."""

from __future__ import annotations

from typing import Final

from framework.frontend.checks import (
    flag,
    integer,
    invalid,
    items,
    number,
    plain,
    shorten,
    text,
    token_ids,
)
from framework.frontend.extensions import check_extensions
from hookspecs.errors import InvalidRequestError
from hookspecs.types.sampling import OutputKind, SamplingLimits, SamplingParams

__all__ = ["validate_metadata", "validate_params"]

INT32_MAX: Final = 2**31 - 1
"""Counts go into int32 columns."""
MAX_ID_CHARS: Final = 256
MAX_LABELS: Final = 16
MAX_LABEL_CHARS: Final = 512
MAX_TRACE_HEADERS: Final = 16
MAX_TRACE_CHARS: Final = 8192
"""Headers such as `tracestate` and `baggage` (W3C Trace Context, W3C Baggage) are this long."""

NUMBERS: Final = (
    # name, low, high, whether low itself is excluded
    ("temperature", 0.0, 2.0, False),
    ("top_p", 0.0, 1.0, True),
    ("min_p", 0.0, 1.0, False),
    ("presence_penalty", -2.0, 2.0, False),
    ("frequency_penalty", -2.0, 2.0, False),
    ("repetition_penalty", 0.0, 2.0, True),
)
FLAGS: Final = (
    "ignore_eos",
    "include_stop_str_in_output",
    "skip_special_tokens",
    "spaces_between_special_tokens",
    "detokenize",
)


def validate_params(
    params: SamplingParams, *, limits: SamplingLimits, vocab_size: int, has_tokenizer: bool
) -> None:
    """Check every field against its type and bounds. InvalidRequestError for the first that
    is wrong; nothing is changed. Counts are checked before the elements are looked at."""
    if not isinstance(params, SamplingParams):
        raise invalid("params", params, "SamplingParams")
    for name, low, high, above_low in NUMBERS:
        number(name, getattr(params, name), low, high, above_low=above_low)
    for name in FLAGS:
        flag(name, getattr(params, name))
    if not isinstance(params.output_kind, OutputKind):
        raise invalid("output_kind", params.output_kind, "an OutputKind")
    _check_counts(params, limits)
    _check_logprobs("logprobs", params.logprobs, limits, vocab_size)
    _check_logprobs("prompt_logprobs", params.prompt_logprobs, limits, vocab_size)
    _check_stop(params, limits, has_tokenizer)
    _check_token_sets(params, limits, vocab_size)
    _check_bad_words(params, limits, vocab_size, has_tokenizer)
    check_extensions(params.extensions, limits)


def _check_counts(params: SamplingParams, limits: SamplingLimits) -> None:
    integer("n", params.n, 1, limits.max_n)
    if params.n > 1 and params.greedy:
        raise InvalidRequestError(
            f"n is {params.n} with temperature {params.temperature:g}: greedy outputs of one "
            "prompt are all equal; set n to 1 or raise the temperature",
            param="n",
            value=params.n,
        )
    integer("top_k", params.top_k, -1, INT32_MAX, shown=">= 1, or 0 or -1 for off")
    if params.seed is not None:
        integer("seed", params.seed, -(2**63), 2**64 - 1, shown="in [-2**63, 2**64)")
    integer("min_tokens", params.min_tokens, 0, INT32_MAX)
    if params.max_tokens is None:
        return
    integer("max_tokens", params.max_tokens, 1, INT32_MAX)
    if params.min_tokens > params.max_tokens:
        raise InvalidRequestError(
            f"min_tokens ({params.min_tokens}) is more than max_tokens ({params.max_tokens})",
            param="min_tokens",
            value=params.min_tokens,
        )


def _check_logprobs(param: str, value: int | None, limits: SamplingLimits, vocab_size: int) -> None:
    if value is None:
        return
    limit = min(limits.max_logprobs, vocab_size)
    integer(param, value, -1, INT32_MAX, shown=f"from 0 to {limit}, or -1 for the vocabulary")
    wanted = vocab_size if value == -1 else value
    if wanted > limit:
        raise InvalidRequestError(
            f"{param} is {value}, which is {wanted} alternatives a token; at most {limit} are "
            f"allowed (limit {limits.max_logprobs}, vocabulary {vocab_size})",
            param=param,
            value=value,
        )


def _check_stop(params: SamplingParams, limits: SamplingLimits, has_tokenizer: bool) -> None:
    stop = params.stop
    if stop is None:
        return
    if not isinstance(stop, str):
        for element in items("stop", stop, limits.max_stop, "strings"):
            text("stop", element, limits.max_stop_chars)
    else:
        text("stop", stop, limits.max_stop_chars)
    if stop and not (params.detokenize and has_tokenizer):
        cause = "detokenize is false" if has_tokenizer else "the model has no tokenizer"
        raise InvalidRequestError(
            f"stop strings need text, but {cause}; use stop_token_ids",
            param="stop",
            value=plain(stop),
        )


def _check_token_sets(params: SamplingParams, limits: SamplingLimits, vocab_size: int) -> None:
    if params.stop_token_ids is not None:
        ids = items("stop_token_ids", params.stop_token_ids, limits.max_stop_token_ids, "token ids")
        token_ids("stop_token_ids", ids, vocab_size)
    if params.allowed_token_ids is not None:
        ids = items("allowed_token_ids", params.allowed_token_ids, vocab_size, "token ids")
        if not ids:
            raise invalid("allowed_token_ids", ids, "a list that is not empty, or None")
        token_ids("allowed_token_ids", ids, vocab_size)
    bias = params.logit_bias
    if bias is None:
        return
    if not isinstance(bias, dict):
        raise invalid("logit_bias", bias, "a dict of token id to number")
    if len(bias) > limits.max_logit_bias:
        raise InvalidRequestError(
            f"logit_bias has {len(bias)} entries; at most {limits.max_logit_bias} are allowed",
            param="logit_bias",
            value=len(bias),
        )
    token_ids("logit_bias", list(bias), vocab_size)
    for value in bias.values():
        number("logit_bias", value, -100.0, 100.0)


def _check_bad_words(
    params: SamplingParams, limits: SamplingLimits, vocab_size: int, has_tokenizer: bool
) -> None:
    words = params.bad_words
    if words is not None:
        for word in items("bad_words", words, limits.max_bad_words, "strings"):
            text("bad_words", word, limits.max_stop_chars)
        if words and not has_tokenizer:
            raise InvalidRequestError(
                "bad_words need a tokenizer, and the model has none; use bad_words_token_ids",
                param="bad_words",
                value=shorten(words),
            )
    param = "bad_words_token_ids"
    sequences = params.bad_words_token_ids
    if sequences is not None:
        for ids in items(param, sequences, limits.max_bad_words, "lists of token ids"):
            if not isinstance(ids, list) or not ids:
                raise invalid(param, ids, "a list of lists of token ids, none empty")
            items(param, ids, limits.max_stop_chars, "token ids")
            token_ids(param, ids, vocab_size)


def validate_metadata(
    request_id: str,
    *,
    priority: int,
    tenant: str,
    deadline: float | None,
    cache_salt: str,
    labels: dict[str, str] | None,
    trace_headers: dict[str, str] | None = None,
    arrival_time: float | None = None,
) -> None:
    """Check what comes with a request besides prompt and parameters. InvalidRequestError."""
    text("request_id", request_id, MAX_ID_CHARS)
    integer("priority", priority, -(2**63), 2**63 - 1, shown="of 64 bits")
    text("tenant", tenant, MAX_ID_CHARS, empty=True)
    text("cache_salt", cache_salt, MAX_ID_CHARS, empty=True)
    if deadline is not None:
        number("deadline", deadline, 0.0, float(2**53))
    if arrival_time is not None:
        number("arrival_time", arrival_time, 0.0, float(2**53))
    _check_texts("labels", labels, MAX_LABELS, MAX_LABEL_CHARS)
    _check_texts("trace_headers", trace_headers, MAX_TRACE_HEADERS, MAX_TRACE_CHARS)


def _check_texts(param: str, texts: dict[str, str] | None, max_count: int, max_chars: int) -> None:
    if texts is None:
        return
    if not isinstance(texts, dict) or len(texts) > max_count:
        raise invalid(param, texts, f"a dict of at most {max_count} strings")
    for key, value in texts.items():
        text(param, key, MAX_ID_CHARS)
        text(param, value, max_chars, empty=True)
