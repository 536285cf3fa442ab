"""Pooling requests in the front end: their parameters, what the engine is told, their result."""

from __future__ import annotations

from framework.core.info import EngineInfo
from framework.frontend.checks import flag, integer, invalid
from hookspecs.contracts.worker import WorkerCapability
from hookspecs.errors import InvalidRequestError, RequestFailedError, UnsupportedFeatureError
from hookspecs.types.outputs import RequestOutput
from hookspecs.types.pooling import PoolingOutput, PoolingParams, PoolingType
from hookspecs.types.sampling import OutputKind, SamplingParams

__all__ = ["check_pools", "check_room", "checked_pooling", "pooling_output", "sampling_stand_in"]


def check_pools(info: EngineInfo) -> None:
    """UnsupportedFeatureError if the worker gives no vectors."""
    if WorkerCapability.POOLING not in info.capabilities:
        raise UnsupportedFeatureError(
            f"the worker {info.worker!r} does not declare {WorkerCapability.POOLING}, so prompts "
            "can not be embedded; choose another one (executor.worker)"
        )


def checked_pooling(params: object, hidden_size: int) -> PoolingParams:
    """A copy of a caller's `params` (None: the defaults). InvalidRequestError for the first field
    that is wrong. `hidden_size`: 0 if the model does not tell."""
    if params is None:
        return PoolingParams()
    if not isinstance(params, PoolingParams):
        raise invalid("params", params, "PoolingParams or None")
    if not isinstance(params.pooling, PoolingType):
        allowed = ", ".join(f"PoolingType.{kind.name}" for kind in PoolingType)
        raise invalid("pooling", params.pooling, f"one of {allowed}")
    flag("normalize", params.normalize)
    if params.dimensions is not None:
        if not hidden_size:
            raise InvalidRequestError(
                "dimensions can not be chosen, since the model does not tell its hidden size; "
                "leave it out",
                param="dimensions",
            )
        shown = f"from 1 to {hidden_size}, the hidden size of the model"
        integer("dimensions", params.dimensions, 1, hidden_size, shown=shown)
    return PoolingParams(
        pooling=params.pooling, normalize=params.normalize, dimensions=params.dimensions
    )


def sampling_stand_in() -> SamplingParams:
    """Sampling parameters of a pooling request, which samples nothing."""
    return SamplingParams(
        max_tokens=1, temperature=0.0, detokenize=False, output_kind=OutputKind.FINAL_ONLY
    )


def check_room(num_prompt_tokens: int, info: EngineInfo) -> None:
    """InvalidRequestError if the cache can not hold the prompt and the one token more that the
    engine core reserves for every request."""
    if num_prompt_tokens >= info.cache_tokens:
        raise InvalidRequestError(
            f"the prompt has {num_prompt_tokens} tokens, but the KV cache holds "
            f"{info.cache_tokens} for one request, one of which is not the prompt's; shorten the "
            "prompt or raise cache.num_blocks",
            param="prompt",
            value=num_prompt_tokens,
        )


def pooling_output(output: RequestOutput) -> PoolingOutput:
    """The result of a pooling request that has ended. RequestFailedError if it has no vector."""
    if output.embedding is None:
        completion = output.outputs[0]
        raise RequestFailedError(
            f"request {output.request_id!r} ended without an embedding (finish reason "
            f"{completion.finish_reason}): {completion.error or 'no error was given'}",
            request_id=output.request_id,
        )
    return PoolingOutput(
        request_id=output.request_id,
        prompt_token_ids=output.prompt_token_ids,
        embedding=output.embedding,
    )
