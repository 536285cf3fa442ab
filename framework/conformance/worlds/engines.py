"""Real engines with a scripted worker: prompts to run, and what must hold when they are done."""

from __future__ import annotations

import random
from typing import Any

from framework.launcher import Engine
from hookspecs.types.sampling import SamplingParams

__all__ = ["greedy", "prompts_of", "run_prompts"]


def greedy(max_tokens: int, **fields: Any) -> SamplingParams:
    """Tokens alone, greedy; `fields` override."""
    fields = {"temperature": 0, "ignore_eos": True, "detokenize": False, **fields}
    return SamplingParams(max_tokens=max_tokens, **fields)


def prompts_of(
    seed: int, count: int = 12, longest: int = 18, vocab_size: int = 50
) -> list[list[int]]:
    """Prompts, of which some share a beginning."""
    rng = random.Random(seed)
    shared = [rng.randrange(1, vocab_size) for _ in range(9)]
    prompts = []
    for _ in range(count):
        own = [rng.randrange(1, vocab_size) for _ in range(rng.randint(1, longest))]
        prompts.append([*shared, *own][:longest] if rng.random() < 0.5 else own)
    return prompts


def run_prompts(engine: Engine, seed: int, **fields: Any) -> list[tuple[list[int], str | None]]:
    """Token ids and finish reason of each prompt; `fields` of the sampling parameters."""
    rng = random.Random(seed)
    prompts = prompts_of(seed, vocab_size=min(50, engine.model.info.vocab_size))
    params = [greedy(rng.randint(1, 9), **fields) for _ in prompts]
    outputs = list(engine.generate(prompts, params))
    return [(out.outputs[0].token_ids, out.outputs[0].finish_reason) for out in outputs]
