"""`SamplingParams`: how a request's tokens are chosen and how its output is given."""

from __future__ import annotations

from enum import IntEnum
from typing import Annotated, Any

import msgspec
from msgspec import Meta

__all__ = ["OutputKind", "SamplingLimits", "SamplingParams"]


class OutputKind(IntEnum):
    """What each output of a request holds."""

    CUMULATIVE = 0
    """All text and tokens so far."""
    DELTA = 1
    """What is new since the last output."""
    FINAL_ONLY = 2
    """One output, when the request has finished."""


class SamplingParams(msgspec.Struct, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Parameters of one request. Validated by the front end before it reaches an engine.

    Order of application to a row of logits: logits processors, allowed_token_ids, bad_words,
    min_tokens, logit_bias, repetition, frequency and presence penalty, temperature, min_p, top_k,
    top_p.
    """

    n: Annotated[int, Meta(description="Number of outputs for the prompt; >= 1.")] = 1
    temperature: Annotated[
        float, Meta(description="[0, 2]. 0 is greedy; below 1e-5 counts as 0.")
    ] = 1.0
    top_p: Annotated[float, Meta(description="(0, 1]; 1 is off.")] = 1.0
    top_k: Annotated[int, Meta(description=">= 1; 0 and -1 are off.")] = 0
    min_p: Annotated[float, Meta(description="[0, 1]; 0 is off.")] = 0.0
    seed: Annotated[
        int | None,
        Meta(
            description="[-2**63, 2**64); the same seed repeats the same draws, whatever else runs."
        ),
    ] = None
    presence_penalty: Annotated[float, Meta(description="[-2, 2], over output tokens.")] = 0.0
    frequency_penalty: Annotated[float, Meta(description="[-2, 2], over output tokens.")] = 0.0
    repetition_penalty: Annotated[
        float, Meta(description="(0, 2], over prompt and output tokens; 1 is off.")
    ] = 1.0
    logit_bias: Annotated[
        dict[int, float] | None, Meta(description="Token id to [-100, 100], added to its logit.")
    ] = None
    allowed_token_ids: Annotated[
        list[int] | None, Meta(description="If given, no other token is produced.")
    ] = None
    bad_words: Annotated[
        list[str] | None,
        Meta(
            description="Words whose tokens, with and without a leading space, are never produced."
        ),
    ] = None
    bad_words_token_ids: Annotated[
        list[list[int]] | None,
        Meta(description="Token sequences never produced; the front end fills it from bad_words."),
    ] = None
    max_tokens: Annotated[
        int | None, Meta(description=">= 1; None fills the context of the model.")
    ] = None
    min_tokens: Annotated[
        int, Meta(description="No end token and no stop string before this many tokens.")
    ] = 0
    stop: Annotated[list[str] | str | None, Meta(description="Strings that end the output.")] = None
    stop_token_ids: Annotated[
        list[int] | None, Meta(description="Tokens that end the output, besides the model's own.")
    ] = None
    ignore_eos: bool = False
    include_stop_str_in_output: bool = False
    skip_special_tokens: bool = True
    spaces_between_special_tokens: bool = True
    detokenize: bool = True
    logprobs: Annotated[
        int | None,
        Meta(description="Alternatives a token; 0 is the chosen one only; -1 the vocabulary."),
    ] = None
    prompt_logprobs: Annotated[
        int | None, Meta(description="The same for prompt tokens; the prompt is then recomputed.")
    ] = None
    output_kind: OutputKind = OutputKind.CUMULATIVE
    extensions: Annotated[
        dict[str, Any],
        Meta(
            description="Provider name to options of this request, checked against the provider's "
            "`request_options`."
        ),
    ] = msgspec.field(default_factory=dict)

    @property
    def greedy(self) -> bool:
        """Whether the most likely token is taken."""
        return self.temperature < 1e-5


class SamplingLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds on what one request may ask for, so that one can not harm others."""

    max_n: int = 128
    max_logprobs: int = 100
    max_stop: int = 64
    max_stop_chars: int = 1024
    max_stop_token_ids: int = 1024
    max_bad_words: int = 1024
    max_logit_bias: int = 4096
    max_extension_bytes: int = 1 << 20
    """All extensions of a request, as msgpack."""
