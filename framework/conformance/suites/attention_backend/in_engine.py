"""Attention backends in a real engine."""

from __future__ import annotations

import random

import torch

from framework.conformance.subject import Subject
from framework.conformance.suites.attention_backend.base import AttentionBackendPart, launch
from framework.conformance.worlds.checkpoint import tiny_checkpoint
from framework.conformance.worlds.engines import greedy
from framework.conformance.worlds.tiny_llama import Traits, last_logits

__all__ = ["InEngine"]

LOGIT_MARGIN = 1e-3
"""How much less likely than the best a greedy token may be: float32 adds up in another order."""


class InEngine(AttentionBackendPart):
    """An engine's tokens do not depend on the backend."""

    def test_tokens_of_an_engine(self, subject: Subject, seed: int) -> None:
        """Requires nothing.
        Does: generates with a model of two layers in a real engine, with chunks, a cache that is
        too small and prompts that begin alike.
        Must: lead to the tokens that the model gives without a cache.
        """
        rng = random.Random(seed)
        model = tiny_checkpoint()
        shared = [rng.randrange(3, 99) for _ in range(11)]
        prompts = [
            [*shared[: rng.choice((0, 9, 11))], *(rng.randrange(3, 99) for _ in range(length))]
            for length in (1, 2, 9, 17, 4, 12)
        ]
        with launch(subject, {}, cache={"num_blocks": 120 // _size_of(subject)}) as engine:
            outputs = list(engine.generate(prompts, greedy(8)))
        for prompt, output in zip(prompts, outputs, strict=True):
            tokens = output.outputs[0].token_ids
            assert len(tokens) == 8, f"{len(tokens)} tokens: {output.outputs[0].error}"
            logits = last_logits(model.config, model.weights, prompt, tokens, Traits())
            chosen = logits.gather(1, torch.tensor(tokens)[:, None])[:, 0]
            worse = (logits.amax(-1) - chosen).tolist()
            wrong = [place for place, by in enumerate(worse) if not by <= LOGIT_MARGIN]
            assert not wrong, (
                f"token {wrong[0]} after a prompt of {len(prompt)} is {tokens[wrong[0]]}, whose "
                f"logit is {worse[wrong[0]]:.3g} below that of the best"
            )


def _size_of(subject: Subject) -> int:
    return subject.config().cache.block_size
