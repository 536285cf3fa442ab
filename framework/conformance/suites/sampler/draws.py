"""Which token is taken: the most likely, or one drawn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from framework.conformance.suites.sampler.base import VOCAB, Make, SamplerPart, logits_of
from framework.conformance.worlds.sampling import kept, probabilities
from hookspecs.types.sampling import SamplingParams

__all__ = ["Draws"]

DRAWS = 256
"""Rows that draw at once, where a distribution is compared."""


class Draws(SamplerPart):
    """Tokens are drawn from the distribution that the filters leave."""

    def test_greedy_rows_take_the_most_likely(self, make: Make, seed: int) -> None:
        """Requires nothing.
        Does: samples at a temperature of 0 and below 1e-5, from small and large vocabularies.
        Must: take the token with the largest logit.
        """
        for vocab in (2, VOCAB, 3000):
            slots, logits = make(vocab), logits_of(seed, 12, vocab)
            for slot in range(12):
                slots.add(slot, temperature=0.0 if slot % 2 else 9e-6, top_p=0.5)
            tokens = slots.tokens(logits)
            best = logits.argmax(1).tolist()
            assert tokens == best, f"greedy rows took {tokens} where {best} are most likely"

    def test_of_equals_the_lowest_id(self, make: Make) -> None:
        """Requires nothing.
        Does: samples greedily from logits of which several are the largest.
        Must: take the lowest id among these.
        """
        slots = make()
        for slot in range(4):
            slots.add(slot, temperature=0)
        logits = np.zeros((4, VOCAB))
        logits[1, [7, 30, 31]] = 2.0
        logits[2, [VOCAB - 2, VOCAB - 1]] = 0.5
        logits[3] = -5.0
        tokens = slots.tokens(logits)
        assert tokens == [0, 7, VOCAB - 2, 0], (
            f"of equally likely tokens greedy rows took {tokens}, not the lowest ids"
        )

    def test_draws_follow_the_distribution(self, make: Make, seed: int) -> None:
        """Requires nothing.
        Does: compares thousands of draws, with and without seeds, with the probabilities, by the
        chi-square statistic.
        Must: draw each token as often as temperature and filters say.
        """
        cases: list[dict[str, Any]] = [
            {"temperature": 1.0},
            {"temperature": 0.5},
            {"temperature": 1.8},
            {"temperature": 0.8, "top_k": 5},
            {"temperature": 1.2, "top_p": 0.8},
            {"temperature": 1.0, "min_p": 0.2},
        ]
        for number, params in enumerate(cases):
            logits = logits_of(seed + number, 1, 10)[0]
            expected = probabilities(logits, SamplingParams(**params))
            slots = make(10, DRAWS)
            for slot in range(DRAWS):
                slots.add(slot, **params, seed=1000 * seed + slot if slot % 2 else None)
            drawn: list[int] = []
            for _ in range(12):
                drawn += slots.tokens(np.tile(logits, (DRAWS, 1)))
            counts = np.bincount(drawn, minlength=10)
            outside = np.flatnonzero((counts > 0) & (expected == 0)).tolist()
            assert not outside, f"{params}: drew {outside}, whose probability is 0"
            likely = expected > 0
            wanted = expected[likely] * len(drawn)
            chi_square = float((((counts[likely] - wanted) ** 2) / wanted).sum())
            # One in ten million for 9 degrees of freedom.
            assert chi_square < 50, (
                f"{params}: chi-square {chi_square:.0f} over {len(drawn)} draws; counts "
                f"{counts.tolist()}, expected {np.round(expected * len(drawn)).tolist()}"
            )

    def test_filters_keep_what_they_say(self, make: Make) -> None:
        """Requires nothing.
        Does: draws with top_k, top_p and min_p from known probabilities.
        Must: draw each token that they keep, and no other: top_p the fewest that reach it.
        """
        likely = [0.38, 0.3, 0.17, 0.1, 0.05]
        cases: list[tuple[dict[str, Any], int]] = [
            ({"top_k": 1}, 1),
            ({"top_k": 3}, 3),
            ({"top_k": 0}, 5),
            ({"top_k": -1}, 5),
            ({"top_k": 1000}, 5),
            ({"top_p": 0.35}, 1),
            ({"top_p": 0.4}, 2),
            ({"top_p": 0.67}, 2),
            ({"top_p": 0.7}, 3),
            ({"top_p": 1e-9}, 1),
            ({"top_p": 1.0}, 5),
            ({"min_p": 0.0}, 5),
            ({"min_p": 0.2}, 4),
            ({"min_p": 0.7}, 2),
            ({"min_p": 1.0}, 1),
        ]
        for params, count in cases:
            _expect_kept(make, likely, params, count)

    def test_the_order_of_filters(self, make: Make) -> None:
        """Requires nothing.
        Does: draws with parameters whose order makes a difference.
        Must: apply temperature first, then min_p, top_k and top_p, each to what the one before
        has left.
        """
        likely = [0.38, 0.3, 0.17, 0.1, 0.05]
        cases: list[tuple[dict[str, Any], int]] = [
            ({"top_k": 2, "top_p": 0.5}, 1),  # 0.38 of 0.68 reach a half
            ({"min_p": 0.7, "top_p": 0.5}, 1),
            ({"min_p": 0.4, "top_k": 4}, 3),
            ({"temperature": 2.0, "min_p": 0.5}, 4),  # 0.1 / 0.38 becomes 0.51
            ({"temperature": 2.0, "top_p": 0.4}, 2),
            ({"temperature": 0.5, "top_p": 0.5}, 1),
        ]
        for params, count in cases:
            _expect_kept(make, likely, params, count)

    def test_filters_of_large_vocabularies(self, make: Make, seed: int) -> None:
        """Requires nothing.
        Does: draws from 3,000 tokens with filters that keep many, and few.
        Must: draw from all that are kept, and from no other.
        """
        vocab = 3000
        logits = logits_of(seed, 1, vocab)[0] * 0.3
        ranks = np.empty(vocab, dtype=np.int64)
        ranks[np.argsort(-logits)] = np.arange(vocab)
        for params in (
            {"top_k": 700},
            {"top_p": 0.9},
            {"min_p": 0.4},
            {"top_k": 2000, "top_p": 0.5},
        ):
            slots = make(vocab, DRAWS)
            allowed = kept(logits, SamplingParams(**params))
            for slot in range(DRAWS):
                slots.add(slot, seed=slot, **params)
            tokens = slots.tokens(np.tile(logits, (DRAWS, 1)))
            outside = sorted(set(tokens) - allowed)
            assert not outside, (
                f"{params} of {vocab} tokens: drew {outside[:5]}, which are left out"
            )
            deepest = int(ranks[tokens].max())
            assert deepest > 0.7 * len(allowed), (
                f"{params} keep {len(allowed)} of {vocab} tokens, but of {DRAWS} draws none was "
                f"ranked behind {deepest}"
            )


def _expect_kept(make: Make, likely: Sequence[float], params: dict[str, Any], count: int) -> None:
    """Draws give the first `count` tokens, and no others."""
    slots = make(len(likely), DRAWS)
    for slot in range(DRAWS):
        slots.add(slot, seed=slot, **params)
    drawn = set(slots.tokens(np.tile(np.log(likely), (DRAWS, 1))))
    drawn |= set(slots.tokens(np.tile(np.log(likely), (DRAWS, 1))))
    assert drawn == set(range(count)), (
        f"{params} of the probabilities {list(likely)}: drew {sorted(drawn)}; kept are the first "
        f"{count}"
    )
