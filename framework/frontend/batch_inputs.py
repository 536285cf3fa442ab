"""The inputs of a batch: one or many prompts, one value or one for each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from framework.frontend.checks import invalid
from framework.frontend.prompts import Prompt
from hookspecs.errors import InvalidRequestError, RequestFailedError
from hookspecs.types.outputs import CompletionOutput, RequestOutput
from hookspecs.types.request import FinishReason

__all__ = ["as_prompts", "at_index", "failed_output", "for_each"]


def as_prompts(prompts: Any) -> Sequence[Prompt]:
    """The list of prompts that was meant."""
    if isinstance(prompts, (str, Mapping)):
        return [prompts]
    if not isinstance(prompts, (list, tuple)):
        raise invalid("prompts", prompts, "a prompt or a list of prompts")
    if not prompts:
        raise InvalidRequestError("prompts is empty; give at least one prompt", param="prompts")
    if isinstance(prompts[0], (str, Mapping, list, tuple)):
        return prompts
    return [list(prompts)]


def for_each(param: str, value: Any, count: int) -> list[Any]:
    """`value` for each of `count` prompts."""
    if not isinstance(value, (list, tuple)):
        return [value] * count
    if len(value) != count:
        raise InvalidRequestError(
            f"{param} has {len(value)} elements for {count} prompts; give one, or one for each",
            param=param,
            value=len(value),
        )
    return list(value)


def at_index(error: InvalidRequestError, index: int, count: int) -> InvalidRequestError:
    """The error of one prompt among several, with its place."""
    if count == 1:
        return error
    return InvalidRequestError(
        f"prompt {index}: {error}; nothing was submitted", param=error.param, value=error.value
    )


def failed_output(error: RequestFailedError) -> RequestOutput:
    """The only output of a request that failed before it was submitted."""
    completion = CompletionOutput(index=0, finish_reason=str(FinishReason.ERROR), error=str(error))
    return RequestOutput(
        request_id=error.request_id,
        prompt=None,
        prompt_token_ids=[],
        outputs=[completion],
        finished=True,
    )
