"""Draws that repeat."""

from __future__ import annotations

import random

import numpy as np
import torch

from framework.conformance.suites.sampler.base import (
    EVERYTHING,
    VOCAB,
    Make,
    SamplerPart,
    generator_of,
    logits_of,
)

__all__ = ["Seeds"]


class Seeds(SamplerPart):
    """Draws follow from a request's seed and its own steps."""

    def test_a_seed_repeats_its_draws(self, make: Make, seed: int) -> None:
        """Requires nothing.
        Does: draws with one seed in two samplers, in other slots, under other request ids, with
        other uses of the library's global generator before.
        Must: draw the same tokens.
        """
        streams = []
        for slot, name in ((0, "first"), (7, "second")):
            torch.manual_seed(slot)
            np.random.seed(slot)
            random.seed(slot)
            slots = make()
            slots.add(slot, request_id=name, seed=123, temperature=1.3)
            streams.append([slots.tokens([row]) for row in logits_of(seed, 20)])
        assert streams[0] == streams[1], f"one seed drew {streams[0]}, then {streams[1]}"

    def test_seeds_differ(self, make: Make, seed: int) -> None:
        """Requires nothing.
        Does: draws with the smallest and largest seeds that are allowed, and with neighbouring
        ones, each at successive positions.
        Must: take them all, and draw other tokens with another seed and at another position.
        """
        edges = [-(2**63), -1, 0, 1, 2, 2**63 - 1, 2**64 - 2]
        slots = make()
        for slot, own in enumerate(edges):
            slots.add(slot, seed=own)
        # The same logits at every position: what differs is the draw.
        logits = np.tile(logits_of(seed, 1), (len(edges), 1))
        columns = [slots.tokens(logits) for _ in range(16)]
        streams = list(zip(*columns, strict=True))
        assert len(set(streams)) == len(edges), f"of the seeds {edges} two draw the same tokens"
        assert len(set(map(tuple, columns))) == len(columns), "two positions draw the same tokens"

    def test_requests_without_a_seed(self, make: Make, seed: int) -> None:
        """Requires nothing.
        Does: draws for requests that give no seed, in two samplers with one model.seed.
        Must: draw other tokens for each request, and the same ones again in the second.
        """
        logits = np.tile(logits_of(seed, 1), (4, 1))
        runs = []
        for _ in range(2):
            slots = make()
            for slot in range(4):
                slots.add(slot)
            columns = [slots.tokens(logits) for _ in range(16)]
            runs.append(list(zip(*columns, strict=True)))
        assert len(set(runs[0])) == 4, "two requests without a seed draw the same tokens"
        assert runs[0] == runs[1], (
            "requests without a seed draw other tokens in a second engine with the same model.seed"
        )

    def test_neighbours_do_not_matter(self, make: Make, seed: int) -> None:
        """Requires nothing.
        Does: draws for a seeded request alone, and in batches whose rows come, go, change places
        and have other parameters.
        Must: draw the same tokens.
        """
        rows = logits_of(seed, 20)
        alone = make()
        alone.add(0, **EVERYTHING, eos=0)
        expected = [alone.tokens([row])[0] for row in rows]
        crowd = make()
        crowd.add(5, **EVERYTHING, eos=0)
        crowd.add(2, request_id="same seed", seed=11)
        crowd.add(9, temperature=0, frequency_penalty=1.0)
        crowd.add(1, top_k=3, logprobs=2, allowed_token_ids=[1, 2, 3, 4])
        got, noise = [], generator_of(seed)
        for step, row in enumerate(rows):
            if step == 12:
                crowd.remove(2)
            order = [slot for slot in (9, 2, 5, 1) if slot in crowd.requests]
            order = order[step % len(order) :] + order[: step % len(order)]
            logits = noise.normal(0, 4, (len(order), VOCAB))
            logits[order.index(5)] = row
            got.append(crowd.tokens(logits, order)[order.index(5)])
        assert got == expected, f"alone {expected}, among neighbours {got}"

    def test_a_resumed_request_goes_on(self, make: Make, seed: int) -> None:
        """Requires nothing.
        Does: takes a request out after some tokens, and adds it again with these to another slot.
        Must: draw what it draws undisturbed: positions, counts and words go on.
        """
        rows = logits_of(seed, 24)
        slots = make()
        slots.add(0, [1, 3], **EVERYTHING, eos=0)
        expected = [slots.tokens([row], [0])[0] for row in rows]
        for cut in (1, 8, 9, 17):
            again = make()
            again.add(3, [1, 3], **EVERYTHING, eos=0)
            for row in rows[:cut]:
                again.tokens([row], [3])
            again.remove(3)
            again.add(3, [2], temperature=0)
            again.add(6, [1, 3], expected[:cut], **EVERYTHING, eos=0)
            got = [again.tokens([row], [6])[0] for row in rows[cut:]]
            assert got == expected[cut:], (
                f"resumed after {cut} tokens it drew {got}, undisturbed {expected[cut:]}"
            )

    def test_steps_without_it_do_not_count(self, make: Make, seed: int) -> None:
        """Requires nothing.
        Does: samples other slots between the tokens of a seeded request.
        Must: draw what it draws without such steps.
        """
        rows = logits_of(seed, 12)
        slots = make()
        slots.add(0, seed=7)
        expected = [slots.tokens([row])[0] for row in rows]
        slots = make()
        slots.add(0, seed=7)
        slots.add(1)
        got = []
        for step, row in enumerate(rows):
            for _ in range(step % 3):
                slots.tokens([rows[0]], [1])
            got.append(slots.tokens([row], [0])[0])
        assert got == expected, f"with steps of others between: {got}, without: {expected}"
