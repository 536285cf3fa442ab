"""Requests and outputs as filters get them."""

from __future__ import annotations

import random

from hookspecs.events import RequestReceived
from hookspecs.types.outputs import CompletionOutput, RequestOutput
from hookspecs.types.pooling import PoolingParams
from hookspecs.types.sampling import SamplingParams

__all__ = ["outputs", "requests"]


def requests(seed: int, count: int = 40) -> list[RequestReceived]:
    """Of several tenants and lengths; every eighth wants a vector."""
    rng = random.Random(seed)
    return [
        RequestReceived(
            request_id=f"r{number}",
            prompt_token_ids=[rng.randrange(1, 100) for _ in range(rng.randint(1, 60))],
            params=SamplingParams(max_tokens=rng.choice((1, 16, 400)), temperature=rng.random()),
            tenant=rng.choice(("", "red", "green")),
            priority=rng.randint(-2, 2),
            labels={"number": str(number)} if number % 2 else {},
            pooling=PoolingParams() if number % 8 == 7 else None,
        )
        for number in range(count)
    ]


def outputs(seed: int, count: int = 40) -> list[RequestOutput]:
    """Parts of streams and whole outputs, of one or two completions, and of each way to end."""
    rng = random.Random(seed)
    return [_output(rng, number) for number in range(count)]


def _output(rng: random.Random, number: int) -> RequestOutput:
    reason = rng.choice((None, None, "stop", "length", "abort", "error", "timeout"))
    completions = [
        CompletionOutput(
            index=index,
            text=rng.choice(("", " a", " some words, in a row", "\N{SNOWMAN}")),
            token_ids=[rng.randrange(1, 100) for _ in range(rng.randint(0, 6))],
            finish_reason=reason,
            error="it went wrong" if reason in ("error", "timeout") else None,
        )
        for index in range(rng.choice((1, 1, 2)))
    ]
    return RequestOutput(
        request_id=f"r{number}",
        prompt=rng.choice((None, "a prompt")),
        prompt_token_ids=[1, 2, 3],
        outputs=completions,
        finished=reason is not None,
    )
