"""Masks, penalties and biases, in their order."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from framework.conformance.suites.sampler.base import (
    VOCAB,
    Make,
    SamplerPart,
    generator_of,
    logits_of,
    short,
)
from framework.conformance.worlds.sampling import Logits, Slots, adjusted, kept
from hookspecs.types.sampling import SamplingParams

__all__ = ["Adjustments"]


class Adjustments(SamplerPart):
    """Logits are adjusted before a token is taken."""

    def test_masks(self, make: Make, seed: int) -> None:
        """Requires nothing.
        Does: samples greedily with allowed_token_ids, bad words, min_tokens and logit_bias.
        Must: never take a masked token, whatever its bias, and take it again when it is free.
        """
        cases: list[dict[str, Any]] = [
            {"allowed_token_ids": [1, 5, 38]},
            {"allowed_token_ids": [4, 6], "logit_bias": {7: 100.0, 4: 1.0}},
            {"bad_words_token_ids": [[3], [2, 5], [4, 4, 4], [5, 2, 5, 6]]},
            {"bad_words_token_ids": [[3]], "logit_bias": {3: 100.0}},
            {"min_tokens": 3, "eos": 6, "stop_token_ids": [5], "logit_bias": {5: 50.0, 6: 60.0}},
            {"min_tokens": 1, "eos": 2},
            {"logit_bias": {9: 100.0, 2: -100.0}},
            {"stop_token_ids": [2], "eos": 3},
        ]
        _follow(make, cases, seed, steps=8, base=_few_likely(seed))

    def test_penalties(self, make: Make, seed: int) -> None:
        """Requires nothing.
        Does: samples greedily with repetition, frequency and presence penalties of both signs,
        from logits of both signs, with a prompt and with tokens of before.
        Must: count each token as it comes; repetition over prompt and output, the others over
        output only.
        """
        cases: list[dict[str, Any]] = [
            {"repetition_penalty": 2.0},
            {"repetition_penalty": 0.5},
            {"repetition_penalty": 1.2, "outputs": [2, 2, 5]},
            {"frequency_penalty": 0.6},
            {"frequency_penalty": -0.4, "outputs": [1, 1, 4]},
            {"presence_penalty": 1.1},
            {"presence_penalty": -1.5, "outputs": [7]},
            {"repetition_penalty": 1.4, "frequency_penalty": 0.3, "presence_penalty": 0.7},
        ]
        for base in (_few_likely(seed), _few_likely(seed) - 6.0):
            _follow(make, cases, seed, steps=10, base=base)

    def test_the_order_of_adjustments(self, make: Make) -> None:
        """Requires nothing.
        Does: samples greedily where bias, repetition and presence penalty give another token in
        another order.
        Must: add the bias first, then apply repetition, then frequency and presence.
        """
        slots = make(4)
        slots.add(0, [0], temperature=0, repetition_penalty=2.0, logit_bias={0: 3.0})
        slots.add(1, [3], [0], temperature=0, repetition_penalty=2.0, presence_penalty=1.0)
        # Row 0: (1 + 3) / 2 is less than 2.6, 1 / 2 + 3 is not. Row 1: 4 / 2 - 1 is less than
        # 1.3, (4 - 1) / 2 is not.
        tokens = slots.tokens([[1.0, 2.6, 0.0, 0.0], [4.0, 1.3, 0.0, 0.0]])
        assert tokens == [1, 1], f"took {tokens} where [1, 1] follow from the order"

    def test_everything_at_once(self, make: Make, seed: int) -> None:
        """Requires nothing.
        Does: samples batches of requests with random parameters of all kinds, step after step.
        Must: take a token that the parameters of its row leave.
        """
        for round_ in range(4):
            rng = random.Random(seed * 1_000_003 + round_)
            slots, generator = make(), generator_of(seed, round_)
            for slot in range(16):
                prompt = [rng.randrange(VOCAB) for _ in range(3)]
                slots.add(slot, prompt, eos=0, **_random_params(rng, slot))
            for step in range(6):
                logits = generator.normal(0, 2, (16, VOCAB))
                _sample_and_check(slots, logits, f"round {round_}, step {step}")


def _few_likely(seed: int) -> Logits:
    """float64 [vocab]: the first ids are the likely ones, in falling order."""
    logits: Logits = logits_of(seed, 1)[0] - 6.0
    logits[:10] = 4.0 - 0.37 * np.arange(10)
    return logits


def _follow(
    make: Make,
    cases: Sequence[dict[str, Any]],
    seed: int,
    steps: int,
    base: Logits,
) -> None:
    """Greedy rows, step after step, from nearly the same logits."""
    slots = make()
    for slot, params in enumerate(cases):
        slots.add(slot, **{"prompt": [1, 2, 2], "temperature": 0, **params})
    generator = generator_of(seed, steps)
    for step in range(steps):
        logits = base + generator.normal(0, 0.01, (len(cases), VOCAB))
        _sample_and_check(slots, logits, f"step {step}")


def _sample_and_check(slots: Slots, logits: Logits, what: str) -> None:
    """Each row's token is one that its parameters leave."""
    logits = logits.astype(np.float32).astype(np.float64)
    before = {slot: list(request.token_ids) for slot, request in slots.requests.items()}
    adjusted_rows = [
        adjusted(row, request) for row, request in zip(logits, slots.requests.values(), strict=True)
    ]
    tokens = slots.tokens(logits)
    for token, x, (slot, request) in zip(
        tokens, adjusted_rows, slots.requests.items(), strict=True
    ):
        allowed = kept(x, request.sampling_params)
        start = request.num_prompt_tokens
        assert token in allowed, (
            f"{what}: slot {slot} with {short(_given(request.sampling_params))}, prompt "
            f"{before[slot][:start]} and output {before[slot][start:]} took {token}; allowed are "
            f"{sorted(allowed)[:12]}"
        )


def _given(params: SamplingParams) -> dict[str, Any]:
    plain = SamplingParams()
    return {
        name: getattr(params, name)
        for name in params.__struct_fields__
        if getattr(params, name) != getattr(plain, name)
    }


def _random_params(rng: random.Random, slot: int) -> dict[str, Any]:
    def tokens(most: int) -> list[int]:
        return [rng.randrange(1, VOCAB) for _ in range(rng.randint(1, most))]

    choices: dict[str, Callable[[], Any]] = {
        "temperature": lambda: rng.choice((0.0, 0.3, 0.7, 1.0, 2.0)),
        "top_k": lambda: rng.choice((-1, 0, 1, 2, 5, 39, 40, 1000)),
        "top_p": lambda: rng.choice((1e-9, 0.1, 0.5, 0.9, 0.999)),
        "min_p": lambda: rng.choice((1e-6, 0.05, 0.3, 1.0)),
        "presence_penalty": lambda: rng.uniform(-2, 2),
        "frequency_penalty": lambda: rng.uniform(-2, 2),
        "repetition_penalty": lambda: rng.choice((0.5, 0.9, 1.2, 2.0)),
        "logit_bias": lambda: {token: rng.uniform(-9, 9) for token in tokens(4)},
        "allowed_token_ids": lambda: sorted({*tokens(30), 37, 38, 39}),
        "bad_words_token_ids": lambda: [[*tokens(2), rng.randrange(36)] for _ in range(3)],
        "min_tokens": lambda: rng.randint(0, 4),
        "stop_token_ids": lambda: [rng.randrange(36)],
        "logprobs": lambda: rng.choice((0, 3)),
        "outputs": lambda: tokens(5),
    }
    chosen = {name: make() for name, make in choices.items() if rng.random() < 0.4}
    return {"seed": slot, **chosen}
