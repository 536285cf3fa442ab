"""What a span says of a request, in the names of OpenTelemetry's semantic conventions for
generative AI where these have one, else below `framework.`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from opentelemetry.util.types import AttributeValue

from hookspecs.contracts.stats import FinishedRequest
from hookspecs.types.request import FinishReason

__all__ = ["FAILURES", "attributes_of", "operation_of"]

FAILURES: Final = frozenset({FinishReason.ERROR, FinishReason.TIMEOUT})
PROVIDER: Final = "engine-framework"


def operation_of(request: FinishedRequest) -> str:
    """`gen_ai.operation.name`. The engine gets a chat as the prompt that its template makes of
    it, and so can not tell it from any other text."""
    return "embeddings" if request.stats.pooling else "text_completion"


def attributes_of(request: FinishedRequest, model: str) -> Mapping[str, AttributeValue]:
    """Attributes of the span of one output. Optional parameters are there when they are set."""
    stats = request.stats
    found: dict[str, AttributeValue] = {
        "gen_ai.operation.name": operation_of(request),
        "gen_ai.provider.name": PROVIDER,
        "gen_ai.request.model": model,
        "gen_ai.response.id": request.request_id,
        "gen_ai.response.model": model,
        "gen_ai.response.finish_reasons": (str(stats.finish_reason),),
        "gen_ai.usage.input_tokens": stats.num_prompt_tokens,
        "gen_ai.usage.cache_read.input_tokens": stats.num_cached_tokens,
        "framework.output_index": request.index,
        "framework.num_preemptions": stats.num_preemptions,
    }
    optional: dict[str, AttributeValue | None] = {
        **({} if stats.pooling else _generation(request)),
        "framework.tenant": stats.tenant or None,
        "error.type": str(stats.finish_reason) if stats.finish_reason in FAILURES else None,
    }
    found |= {name: value for name, value in optional.items() if value is not None}
    return found | {f"framework.label.{name}": value for name, value in stats.labels.items()}


def _generation(request: FinishedRequest) -> dict[str, AttributeValue | None]:
    """What only an output has that samples tokens."""
    stats, params = request.stats, request.params
    return {
        "gen_ai.request.temperature": params.temperature,
        "gen_ai.request.top_p": params.top_p,
        "gen_ai.request.max_tokens": stats.max_tokens,
        "gen_ai.request.choice.count": stats.n if stats.n > 1 else None,
        "gen_ai.request.top_k": params.top_k if params.top_k > 0 else None,
        "gen_ai.request.frequency_penalty": params.frequency_penalty or None,
        "gen_ai.request.presence_penalty": params.presence_penalty or None,
        "gen_ai.request.seed": _int64(params.seed),
        "gen_ai.response.time_to_first_chunk": (
            stats.time_to_first_token if stats.num_generation_tokens else None
        ),
        "gen_ai.usage.output_tokens": stats.num_generation_tokens,
    }


def _int64(value: int | None) -> int | None:
    """As OTLP has integers; a seed may be larger, and is the same seed modulo 2**64."""
    if value is None or value < 2**63:
        return value
    return value - 2**64
