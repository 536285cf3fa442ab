"""Samplers in a real engine."""

from __future__ import annotations

from framework.conformance.subject import Subject
from framework.conformance.suites.sampler.base import SamplerPart
from framework.conformance.worlds.engines import prompts_of
from hookspecs.types.sampling import SamplingParams

__all__ = ["InEngine"]


class InEngine(SamplerPart):
    """An engine draws what the sampler draws."""

    def test_seeded_requests_of_an_engine(self, subject: Subject, seed: int) -> None:
        """Requires nothing.
        Does: generates seeded outputs of several likely tokens, one request at a time, and all at
        once in a cache that is too small.
        Must: give the same tokens: batches, chunks and preemption change nothing.
        """
        prompts = prompts_of(seed, count=10)
        params = [
            SamplingParams(
                seed=number,
                max_tokens=9,
                temperature=1.5,
                ignore_eos=True,
                detokenize=False,
                frequency_penalty=0.5,
                logit_bias={token: 19.0 + token % 3 for token in range(60, 72)},
            )
            for number in range(len(prompts))
        ]
        outputs = []
        for sizes in ({"max_num_seqs": 1}, {"max_num_seqs": 8, "max_num_batched_tokens": 16}):
            with subject.launch(scheduler=sizes, cache={"num_blocks": 14}) as engine:
                results = list(engine.generate(prompts, params))
            outputs.append([result.outputs[0].token_ids for result in results])
        assert all(len(set(tokens)) > 2 for tokens in outputs[0]), (
            f"the same token again and again, though twelve are likely: {outputs[0]}"
        )
        assert outputs[0] == outputs[1], "a request got other tokens in another company"
