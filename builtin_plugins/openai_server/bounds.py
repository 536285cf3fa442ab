"""Bounds of fields for the OpenAPI document: those of the engine and of `limits`, as keywords of
JSON Schema (draft 2020-12, validation). Here they are only told: the engine checks what is about
sampling, the endpoints check the rest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from builtin_plugins.openai_server.endpoint import Service
from builtin_plugins.openai_server.limits import (
    CONTENT_PARTS,
    DETOKENIZE_TOKENS,
    LIMITS,
    MESSAGES,
    METADATA_ENTRIES,
    SEQUENCES,
    USER_CHARS,
    Limit,
)

__all__ = ["Bounds", "all_limits", "field_bounds"]

Bounds: TypeAlias = Mapping[str, Mapping[str, Any]]
"""Field, or type and field, to its keywords. Those about numbers say nothing of null, and so on."""


def all_limits(service: Service) -> dict[str, dict[str, Any]]:
    """Name to value and description, also of those that no keyword can express."""
    made = [
        *LIMITS,
        Limit("max_body_bytes", service.config.serving.max_body_bytes, "Bytes of a body."),
        Limit("max_prompts", service.options.max_prompts, "Prompts, or inputs, of one request."),
        Limit("max_model_len", service.engine.info.max_model_len, "Tokens of prompt and output."),
    ]
    return {one.name: {"value": one.value, "description": one.description} for one in made}


def field_bounds(service: Service) -> Bounds:
    """Of the fields of bodies, which mean the same in all types, or have their type's name."""
    info = service.engine.info
    limits = info.limits
    logprobs = {"minimum": 0, "maximum": min(limits.max_logprobs, info.vocab_size)}
    stop = {"maxItems": limits.max_stop, "maxLength": limits.max_stop_chars}
    penalty = {"minimum": -2, "maximum": 2}
    who = {"maxLength": USER_CHARS.value}
    return {
        "temperature": {"minimum": 0, "maximum": 2},
        "top_p": {"minimum": 0, "maximum": 1},
        "min_p": {"minimum": 0, "maximum": 1},
        "top_k": {"minimum": -1},
        "seed": {"minimum": -(2**63), "maximum": 2**64 - 1},
        "presence_penalty": penalty,
        "frequency_penalty": penalty,
        "repetition_penalty": {"exclusiveMinimum": 0, "maximum": 2},
        "n": {"minimum": 1, "maximum": min(limits.max_n, SEQUENCES.value)},
        "best_of": {"minimum": 1, "maximum": min(limits.max_n, SEQUENCES.value)},
        "max_tokens": {"minimum": 1, "maximum": 2**31 - 1},
        "CompletionBody.max_tokens": {"minimum": 0, "maximum": 2**31 - 1},
        "max_completion_tokens": {"minimum": 1, "maximum": 2**31 - 1},
        "max_output_tokens": {"minimum": 1, "maximum": 2**31 - 1},
        "min_tokens": {"minimum": 0, "maximum": 2**31 - 1},
        "logprobs": logprobs,
        "top_logprobs": logprobs,
        "prompt_logprobs": logprobs,
        "stop": stop,
        "stop_sequences": {"maxItems": limits.max_stop},
        "stop_token_ids": {"maxItems": limits.max_stop_token_ids},
        "bad_words": {"maxItems": limits.max_bad_words},
        "allowed_token_ids": {"minItems": 1, "maxItems": info.vocab_size},
        "logit_bias": {
            "maxProperties": limits.max_logit_bias,
            "additionalProperties": {"minimum": -100, "maximum": 100},
        },
        "metadata": {"maxProperties": METADATA_ENTRIES.value},
        "user": who,
        "safety_identifier": who,
        "tenant": who,
        "cache_salt": who,
        "messages": {"minItems": 1, "maxItems": MESSAGES.value},
        "content": {"maxItems": CONTENT_PARTS.value},
        "system": {"maxItems": CONTENT_PARTS.value},
        "ResponsesBody.input": {"minItems": 1, "maxItems": MESSAGES.value},
        "tokens": {"maxItems": DETOKENIZE_TOKENS.value},
    }
