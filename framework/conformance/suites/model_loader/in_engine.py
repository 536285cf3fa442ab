"""Model loaders in a real engine."""

from __future__ import annotations

import torch

from framework.conformance.subject import Subject
from framework.conformance.suites.model_loader.base import ModelLoaderPart
from framework.conformance.worlds.engines import greedy
from framework.conformance.worlds.loaded_models import ModelWorld

__all__ = ["InEngine"]

LOGIT_MARGIN = 1e-3
"""How much less likely than the best a greedy token may be, as a share of the largest logit."""


class InEngine(ModelLoaderPart):
    """An engine's tokens are those of the checkpoint."""

    def test_tokens_of_an_engine(self, subject: Subject, world: ModelWorld) -> None:
        """Requires nothing.
        Does: generates in a real engine, with chunks and a cache that is too small.
        Must: lead to the tokens that are most likely by the model's logits.
        """
        worker = subject.given.get("executor", {}).get("worker", "cpu")
        prompts = [world.tokens(length) for length in (1, 9, 21, 4)]
        with subject.launch(
            model={"name": world.model.name, "tokenizer": "none", "dtype": "float32"},
            executor={"worker": worker},
            cache={"num_blocks": 100 // subject.config().cache.block_size},
        ) as engine:
            outputs = list(engine.generate(prompts, greedy(8)))
        for prompt, output in zip(prompts, outputs, strict=True):
            tokens = output.outputs[0].token_ids
            assert len(tokens) == 8, f"{len(tokens)} tokens: {output.outputs[0].error}"
            logits = world.expected([*prompt, *tokens])[len(prompt) - 1 : -1]
            chosen = logits.gather(1, torch.tensor(tokens)[:, None])[:, 0]
            worst = float((logits.amax(-1) - chosen).max())
            assert worst <= LOGIT_MARGIN * float(logits.abs().max()), (
                f"of the tokens {tokens} one has a logit that is {worst:.3g} below the best"
            )
