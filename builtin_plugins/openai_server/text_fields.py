"""Fields that completions and chat completions have in common."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from builtin_plugins.openai_server.endpoint import Service
from builtin_plugins.openai_server.errors import ApiError
from builtin_plugins.openai_server.limits import SEQUENCES, check_limit
from builtin_plugins.openai_server.sampling import SamplingFields, sampling_fields, sampling_params
from hookspecs.types.sampling import OutputKind, SamplingParams

__all__ = ["StreamOptions", "TextFields", "text_params"]


class StreamOptions(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What a stream holds besides text."""

    include_usage: Annotated[
        bool | None, Meta(description="End with a chunk that has the usage and no choices.")
    ] = None
    continuous_usage_stats: Annotated[
        bool | None, Meta(description="With include_usage: the usage so far in every chunk.")
    ] = None
    include_obfuscation: Annotated[bool | None, Meta(description="Without effect.")] = None


class TextFields(SamplingFields, kw_only=True):
    """Fields of bodies that make n texts and can stream them."""

    n: Annotated[int | None, Meta(description="Outputs for each prompt; default 1.")] = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    return_token_ids: Annotated[
        bool | None, Meta(description="Give the token ids of each choice in `token_ids`.")
    ] = None

    @property
    def includes_usage(self) -> bool:
        """Whether the stream ends with the usage."""
        return self.stream_options is not None and bool(self.stream_options.include_usage)

    @property
    def repeats_usage(self) -> bool:
        """Whether every chunk has the usage so far."""
        return self.stream_options is not None and bool(self.stream_options.continuous_usage_stats)


def text_params(
    service: Service,
    body: TextFields,
    *,
    num_prompts: int,
    max_tokens: int | None,
    logprobs: int | None,
) -> SamplingParams:
    """Sampling parameters of the body. ApiError (400) for options that contradict each other;
    what is wrong in one field is the engine's to say."""
    _check_stream(body)
    params = sampling_params(service, {**sampling_fields(body), "n": body.n})
    check_limit(SEQUENCES, num_prompts * params.n, "n")
    params.max_tokens = max_tokens
    params.logprobs = logprobs
    params.output_kind = OutputKind.DELTA if body.stream else OutputKind.FINAL_ONLY
    return params


def _check_stream(body: TextFields) -> None:
    options = body.stream_options
    if options is None or not options.continuous_usage_stats:
        return
    needed = "stream" if not body.stream else "include_usage"
    if not (body.stream and options.include_usage):
        name = "stream_options.continuous_usage_stats"
        raise ApiError(400, f"{name} needs {needed}: true", param=name)
