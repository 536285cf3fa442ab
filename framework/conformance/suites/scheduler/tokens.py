"""How many tokens a step computes."""

from __future__ import annotations

import random

from framework.conformance.suites.scheduler.base import BOUND, SchedulerPart
from framework.conformance.worlds.makers import PartMaker, kernel_around
from framework.conformance.worlds.mini_kernel import MiniKernel
from framework.conformance.worlds.told_policy import ToldPolicy
from hookspecs.types.step import SchedulerOutput

__all__ = ["Tokens"]


class Tokens(SchedulerPart):
    """Chunks keep to the budget, the threshold and the caps."""

    def test_long_prompts_are_computed_in_chunks(self, make: PartMaker) -> None:
        """Requires nothing.
        Does: runs a prompt of 50 tokens at 8 tokens a step, before and after a short one.
        Must: compute it in several steps; no capability says that it could not.
        """
        kernel = kernel_around(make, max_num_batched_tokens=8, num_blocks=64)
        requests = [kernel.add(3, 2), kernel.add(50, 2), kernel.add(3, 2)]
        for _ in range(100):
            if not kernel.requests:
                break
            kernel.step()
        left = [request.request_id for request in requests if not request.finished]
        assert not left, f"{left} had not ended after 100 steps of 8 tokens"

    def test_the_threshold_is_followed(self, make: PartMaker) -> None:
        """Requires nothing.
        Does: sets scheduler.long_prefill_token_threshold to 5, and runs long prompts.
        Must: compute at most 5 prompt tokens of a request in a step.
        """
        kernel = kernel_around(
            make, num_blocks=64, long_prefill_token_threshold=5, max_num_batched_tokens=32
        )
        for length in (40, 5, 6, 17):
            kernel.add(length, 2)
        most = _largest_chunk(kernel)
        assert most <= 5, (
            f"{most} prompt tokens of one request in a step; the setting "
            "scheduler.long_prefill_token_threshold is 5"
        )

    def test_caps_are_kept(self, make: PartMaker, told: ToldPolicy, seed: int) -> None:
        """Requires nothing.
        Does: lets a policy cap the tokens of each step, at random, also below 1.
        Must: give out at most that many, at least one, and get everything done.
        """
        rng = random.Random(seed)
        kernel = kernel_around(make, policies=[told], num_blocks=64)
        for length in (20, 9, 3, 14, 1):
            kernel.add(length, 4)
        for _ in range(500):
            if not kernel.requests:
                return
            told.cap = rng.choice((-1, 0, 1, 3, 7, None))
            tokens = sum(kernel.schedule_of_next_step().values())
            most = 32 if told.cap is None else max(1, told.cap)
            assert tokens <= most, f"{tokens} tokens in a step that a policy capped at {told.cap}"
        raise AssertionError(f"{sorted(kernel.requests)} not done after 500 steps with caps")


def _largest_chunk(kernel: MiniKernel) -> int:
    """The most prompt tokens of a request in a step, over a whole run."""
    chunks = [0]

    def note(output: SchedulerOutput) -> None:
        for row in output.rows():
            prompt = kernel.table.at(row.slot).num_prompt_tokens
            chunks.append(min(row.num_scheduled_tokens, prompt - row.num_computed_tokens))

    kernel.on_scheduled = note
    kernel.run(BOUND)
    return max(chunks)
