"""Requests and tables for tests of single parts of the kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from framework.core.request import Request
from hookspecs.types.request import EngineCoreRequest
from hookspecs.types.sampling import SamplingParams

MakeRequest = Callable[..., Request]


@pytest.fixture
def make_request() -> MakeRequest:
    """Requests that arrive in the order in which they are made."""
    made: list[Request] = []

    def make(
        prompt: list[int] | None = None,
        *,
        max_tokens: int = 8,
        block_size: int = 4,
        max_model_len: int = 64,
        stop_token_ids: list[int] | None = None,
        prompt_logprobs: int | None = None,
        **fields: Any,
    ) -> Request:
        number = len(made)
        request = Request(
            EngineCoreRequest(
                request_id=f"r{number}",
                handle=number,
                prompt_token_ids=[1, 2, 3] if prompt is None else prompt,
                sampling_params=SamplingParams(
                    temperature=0,
                    max_tokens=max_tokens,
                    stop_token_ids=stop_token_ids,
                    prompt_logprobs=prompt_logprobs,
                ),
                arrival_time=float(number),
                **fields,
            ),
            arrival=number,
            max_model_len=max_model_len,
            block_size=block_size,
            queued_at=0.0,
        )
        made.append(request)
        return request

    return make
