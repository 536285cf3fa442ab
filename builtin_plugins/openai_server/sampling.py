"""What a body says besides its prompt: the model, who asks, and how tokens are chosen.

Types are strict: JSON decoding takes no boolean or text for a number, and no NaN. Bounds are
checked by the engine, which names the field.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, TypedDict

import msgspec
from msgspec import UNSET, Meta, UnsetType

from builtin_plugins.openai_server.endpoint import Call, Service
from builtin_plugins.openai_server.errors import ApiError
from builtin_plugins.openai_server.limits import (
    METADATA_ENTRIES,
    METADATA_KEY,
    METADATA_VALUE,
    USER_CHARS,
    check_limit,
)
from hookspecs.errors import InvalidRequestError
from hookspecs.types.sampling import SamplingParams

__all__ = [
    "RequestArguments",
    "RequestFields",
    "SamplingFields",
    "check_model",
    "deadline",
    "request_arguments",
    "sampling_fields",
    "sampling_params",
    "served_tier",
    "trace_headers",
]

TRACE_HEADERS: Final = ("traceparent", "tracestate")
"""W3C Trace Context."""
MAX_TOKEN_ID_DIGITS: Final = 18


class RequestFields(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Fields of every body that is about the model. Unknown fields are refused, so that nobody
    waits for the effect of one that is not there."""

    model: Annotated[
        str | None, Meta(description="A name that the model is served under; null: the model.")
    ] = None
    user: Annotated[str | None, Meta(description="Taken as tenant where that is not given.")] = None
    safety_identifier: Annotated[
        str | None, Meta(description="Taken as tenant where neither that nor user is given.")
    ] = None
    tenant: Annotated[
        str | None, Meta(description="On whose behalf; for policies that share out.")
    ] = None
    priority: Annotated[
        int | None,
        Meta(description="Lower is served earlier, by the policy `priority`; default 0."),
    ] = None
    cache_salt: Annotated[
        str | None, Meta(description="Prefixes are cached for requests with the same salt only.")
    ] = None
    metadata: Annotated[
        dict[str, str] | None, Meta(description="Labels of the request, for plugins.")
    ] = None
    store: Annotated[bool | None, Meta(description="Without effect: no answer is stored.")] = None
    prompt_cache_key: Annotated[
        str | None, Meta(description="Without effect: prefixes are cached anyway.")
    ] = None
    prompt_cache_retention: Annotated[str | None, Meta(description="Without effect.")] = None
    service_tier: Annotated[
        str | None, Meta(description="auto, default, flex or priority: all are served alike.")
    ] = None


class SamplingFields(RequestFields, kw_only=True):
    """Fields of bodies that make text. What is null is as the model's authors recommend."""

    temperature: float | None = None
    top_p: Annotated[float | None, Meta(description="(0, 1], or 0: as temperature 0.")] = None
    top_k: int | None = None
    min_p: float | None = None
    seed: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None
    logit_bias: Annotated[
        dict[str, float] | None, Meta(description="Token id, as text, to [-100, 100].")
    ] = None
    allowed_token_ids: list[int] | None = None
    bad_words: list[str] | None = None
    min_tokens: int | None = None
    stop: str | list[str] | None = None
    stop_token_ids: list[int] | None = None
    ignore_eos: bool | None = None
    include_stop_str_in_output: bool | None = None
    skip_special_tokens: bool | None = None
    spaces_between_special_tokens: bool | None = None
    prompt_logprobs: Annotated[
        Annotated[int, Meta(ge=0)] | None,
        Meta(description="Alternatives for each token of the prompt."),
    ] = None
    extensions: Annotated[
        dict[str, Any] | None, Meta(description="Name of a plugin's provider to its options.")
    ] = None
    deadline_ms: Annotated[
        Annotated[float, Meta(gt=0, le=2**31 - 1)] | None,
        Meta(
            description="Milliseconds in which it must start; else the policy `deadline` ends it, "
            "with status 504."
        ),
    ] = None


_OWN_FIELDS: Final = tuple(
    name
    for name in SamplingFields.__struct_fields__
    if name in SamplingParams.__struct_fields__ and name not in RequestFields.__struct_fields__
)


class RequestArguments(TypedDict):
    """Keyword arguments that `generate` and `embed` of the engine have in common."""

    priority: int
    tenant: str
    cache_salt: str
    labels: dict[str, str] | None
    trace_headers: dict[str, str] | None


def check_model(service: Service, model: str | None) -> None:
    """Raises ApiError (404) unless the model is served under this name, or no name is given."""
    if model is None or model in service.model_names:
        return
    raise ApiError(
        404,
        f"the model {model[:100]!r} does not exist; served: {', '.join(service.model_names)}",
        param="model",
        code="model_not_found",
    )


def request_arguments(call: Call[Any]) -> RequestArguments:
    """Who asks and why, of a call whose body is a RequestFields. ApiError (400) for metadata
    above its limits."""
    body: RequestFields = call.body
    _check_metadata(body.metadata or {})
    for name in ("user", "safety_identifier"):
        check_limit(USER_CHARS, len(getattr(body, name) or ""), name)
    return RequestArguments(
        priority=body.priority or 0,
        tenant=body.tenant or body.user or body.safety_identifier or "",
        cache_salt=body.cache_salt or "",
        labels=body.metadata,
        trace_headers=trace_headers(call),
    )


def served_tier(body: RequestFields) -> Literal["default"] | UnsetType:
    """The `service_tier` of the answer, which has it if the body does."""
    return "default" if body.service_tier else UNSET


def trace_headers(call: Call[Any]) -> dict[str, str] | None:
    """The headers that tie the request to the client's trace; None without any."""
    headers = call.request.headers
    return {name: headers[name] for name in TRACE_HEADERS if name in headers} or None


def _check_metadata(metadata: Mapping[str, str]) -> None:
    check_limit(METADATA_ENTRIES, len(metadata), "metadata")
    for key, value in metadata.items():
        check_limit(METADATA_KEY, len(key), "metadata")
        check_limit(METADATA_VALUE, len(value), "metadata")


def deadline(body: SamplingFields) -> float | None:
    """Latest time to start, seconds of the monotonic clock."""
    return None if body.deadline_ms is None else time.monotonic() + body.deadline_ms / 1e3


def sampling_fields(body: SamplingFields) -> dict[str, Any]:
    """The fields of the body that are fields of SamplingParams, null where not given."""
    return {name: getattr(body, name) for name in _OWN_FIELDS}


def sampling_params(service: Service, given: Mapping[str, Any]) -> SamplingParams:
    """The model's recommended parameters with those of `given` that are not None in their place.

    `given`: names of SamplingParams; `logit_bias` has token ids as text, as in JSON.
    InvalidRequestError for an id that is none; all other checks are the engine's."""
    params = service.engine.default_params()
    for name, value in given.items():
        if value is not None:
            setattr(params, name, _logit_bias(value) if name == "logit_bias" else value)
    if params.top_p == 0:
        # Only the most likely token is left. Clients have this for "no randomness".
        params.temperature, params.top_p = 0.0, 1.0
    return params


def _logit_bias(given: Mapping[str, float]) -> dict[int, float]:
    for key in given:
        if not (key.isascii() and key.isdigit() and len(key) <= MAX_TOKEN_ID_DIGITS):
            raise InvalidRequestError(
                f"logit_bias has the key {key[:50]!r}; keys are token ids in decimal digits",
                param="logit_bias",
                value=key[:50],
            )
    return {int(key): value for key, value in given.items()}
