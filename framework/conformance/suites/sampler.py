"""Suite of samplers, against what SamplingParams says, in float64."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch

from framework.conformance.subject import Subject
from framework.conformance.worlds.engines import prompts_of
from framework.conformance.worlds.makers import PartMaker
from framework.conformance.worlds.sampling import (
    NEAR,
    Entry,
    Logits,
    Slots,
    adjusted,
    entries_of,
    kept,
    probabilities,
)
from framework.conformance.worlds.tensors import TensorConformance
from hookspecs.errors import RequestError
from hookspecs.types.sampling import SamplingParams
from hookspecs.types.step import LogprobColumns, RowFailure

__all__ = ["SamplerConformance"]

Make = Callable[..., Slots]
VOCAB = 40
DRAWS = 256
"""Rows that draw at once, where a distribution is compared."""
EVERYTHING: dict[str, Any] = {
    "temperature": 0.9,
    "seed": 11,
    "frequency_penalty": 0.7,
    "presence_penalty": 0.3,
    "repetition_penalty": 1.3,
    "bad_words_token_ids": [[3, 4], [5, 6, 7], [9]],
    "min_tokens": 9,
    "stop_token_ids": [8],
    "logit_bias": {2: 1.5},
    "top_p": 0.95,
    "top_k": 30,
    "min_p": 0.01,
}


class SamplerConformance(TensorConformance):
    """Samplers apply every parameter in its order, and each row depends on itself alone."""

    kind = "sampler"

    @pytest.fixture
    def make(self, subject: Subject, device: str) -> Make:
        """Makes a new sampler, with nothing in its slots."""
        maker, config = PartMaker(subject), subject.config()

        def slots(vocab_size: int = VOCAB, max_num_seqs: int = 16) -> Slots:
            sampler = maker(
                "sampler",
                config,
                vocab_size=vocab_size,
                max_num_seqs=max_num_seqs,
                device=device,
            )
            return Slots(sampler, vocab_size, device)

        return slots

    # Which token

    def test_greedy_rows_take_the_most_likely(self, make: Make, seed: int) -> None:
        """Requires nothing.
        Does: samples at a temperature of 0 and below 1e-5, from small and large vocabularies.
        Must: take the token with the largest logit.
        """
        for vocab in (2, VOCAB, 3000):
            slots, logits = make(vocab), _logits(seed, 12, vocab)
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
            logits = _logits(seed + number, 1, 10)[0]
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
        logits = _logits(seed, 1, vocab)[0] * 0.3
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
            slots, generator = make(), _generator(seed, round_)
            for slot in range(16):
                prompt = [rng.randrange(VOCAB) for _ in range(3)]
                slots.add(slot, prompt, eos=0, **_random_params(rng, slot))
            for step in range(6):
                logits = generator.normal(0, 2, (16, VOCAB))
                _sample_and_check(slots, logits, f"round {round_}, step {step}")

    # Seeds

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
            streams.append([slots.tokens([row]) for row in _logits(seed, 20)])
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
        logits = np.tile(_logits(seed, 1), (len(edges), 1))
        columns = [slots.tokens(logits) for _ in range(16)]
        streams = list(zip(*columns, strict=True))
        assert len(set(streams)) == len(edges), f"of the seeds {edges} two draw the same tokens"
        assert len(set(map(tuple, columns))) == len(columns), "two positions draw the same tokens"

    def test_requests_without_a_seed(self, make: Make, seed: int) -> None:
        """Requires nothing.
        Does: draws for requests that give no seed, in two samplers with one model.seed.
        Must: draw other tokens for each request, and the same ones again in the second.
        """
        logits = np.tile(_logits(seed, 1), (4, 1))
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
        rows = _logits(seed, 20)
        alone = make()
        alone.add(0, **EVERYTHING, eos=0)
        expected = [alone.tokens([row])[0] for row in rows]
        crowd = make()
        crowd.add(5, **EVERYTHING, eos=0)
        crowd.add(2, request_id="same seed", seed=11)
        crowd.add(9, temperature=0, frequency_penalty=1.0)
        crowd.add(1, top_k=3, logprobs=2, allowed_token_ids=[1, 2, 3, 4])
        got, noise = [], _generator(seed)
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
        rows = _logits(seed, 24)
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
        rows = _logits(seed, 12)
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

    # Slots

    def test_a_slot_forgets(self, make: Make, seed: int) -> None:
        """Requires nothing.
        Does: gives the slots of requests with all parameters to plain ones, after `remove`.
        Must: treat them as in a new sampler: nothing of a request outlives it.
        """
        rows = _logits(seed, 6)
        plain: list[dict[str, Any]] = [
            {"seed": 1},
            {"temperature": 0},
            {"temperature": 0, "presence_penalty": 0.5},
            {"temperature": 0, "bad_words_token_ids": [[1]]},
        ]
        used = make(max_num_seqs=len(plain))
        for _ in range(2):
            for slot in range(len(plain)):
                used.add(
                    slot, [1] * 5, eos=1, logprobs=3, allowed_token_ids=[*range(12)], **EVERYTHING
                )
            for row in rows:
                used.sample(np.tile(row, (len(plain), 1)))
            for slot in range(len(plain)):
                used.remove(slot)
        fresh = make(max_num_seqs=len(plain))
        for slot, params in enumerate(plain):
            used.add(slot, **params)
            fresh.add(slot, **params)
        for row in rows:
            tiled = np.tile(row, (len(plain), 1))
            batch, expected = used.sample(tiled), fresh.sample(tiled)
            assert batch.token_ids.tolist() == expected.token_ids.tolist(), (
                f"in used slots {batch.token_ids.tolist()}, in new ones "
                f"{expected.token_ids.tolist()}; the parameters are {plain}"
            )
            assert batch.logprobs is None, "logprobs of a request that asked for none"

    def test_what_is_refused_leaves_nothing(self, make: Make, seed: int) -> None:
        """Requires nothing.
        Does: adds requests with extreme parameters; where one is refused, a plain one follows in
        its slot.
        Must: refuse with RequestError only, and serve the next one as in a new sampler; what is
        not refused gets a token.
        """
        cases: list[dict[str, Any]] = [
            {"temperature": 2.0, "top_p": 1e-9, "min_p": 1.0, "top_k": 2**31 - 1},
            {"temperature": 1e-5, "seed": 2**64 - 1},
            {"repetition_penalty": 1e-30, "prompt": [1, 2, 3]},
            {"frequency_penalty": 2.0, "presence_penalty": -2.0, "outputs": [5] * 3000},
            {"logit_bias": dict.fromkeys(range(VOCAB), 100.0)},
            {"logit_bias": dict.fromkeys(range(VOCAB), -100.0)},
            {"allowed_token_ids": list(range(VOCAB))},
            {"allowed_token_ids": [3]},
            {"bad_words_token_ids": [[1] * length + [2] for length in range(1, 300)]},
            {"min_tokens": 2**31 - 1, "stop_token_ids": list(range(VOCAB - 1))},
            {"logprobs": VOCAB},
            {"logprobs": -1, "temperature": 0},
        ]
        row = _logits(seed, 1)
        for params in cases:
            slots = make()
            try:
                slots.add(0, **params)
            except RequestError:
                slots.add(0, outputs=[3, 1], temperature=0)
                token, best = slots.tokens(row)[0], int(row[0].argmax())
                assert token == best, (
                    f"after {_short(params)} was refused, a plain request in its slot took {token} "
                    f"where {best} is most likely"
                )
                continue
            batch = slots.sample(row)
            assert not batch.failures, f"{_short(params)} failed: {batch.failures}"

    # Failures

    def test_nan_fails_its_row_alone(self, make: Make, seed: int) -> None:
        """Requires nothing.
        Does: puts NaN into the logits of one row among others, of greedy, drawn and masked ones.
        Must: name that row in `failures`, with a message, as poisoned; the others get what they
        get without it.
        """
        rows = _logits(seed, 4)
        for params in ({"temperature": 0}, {"seed": 3}, {"top_k": 4, "logprobs": 1}, EVERYTHING):
            for count in (1, VOCAB):
                slots = _four(make, params)
                bad = rows.copy()
                bad[2, VOCAB - count :] = np.nan
                _expect_failure(slots.sample(bad), _four(make, params).sample(rows), poisoned=True)

    def test_nothing_allowed_fails_its_row_alone(self, make: Make, seed: int) -> None:
        """Requires nothing.
        Does: samples a row whose parameters mask all tokens, and one whose logits are all -inf.
        Must: name that row in `failures`, with a message; the others get what they get without
        it.
        """
        rows = _logits(seed, 4)
        masked: list[dict[str, Any]] = [
            {"bad_words_token_ids": [[token] for token in range(VOCAB)]},
            {"allowed_token_ids": [4], "bad_words_token_ids": [[4]], "temperature": 0},
            {"allowed_token_ids": [4], "min_tokens": 2, "stop_token_ids": [4], "logprobs": 2},
        ]
        for params in masked:
            slots = _four(make, params)
            _expect_failure(slots.sample(rows), _four(make, {}).sample(rows))
        for params in ({"temperature": 0}, {"seed": 3, "top_p": 0.5}):
            slots, bad = _four(make, params), rows.copy()
            bad[2] = -np.inf
            _expect_failure(slots.sample(bad), _four(make, params).sample(rows))

    # Log-probabilities

    def test_logprobs(self, make: Make, seed: int) -> None:
        """Requires nothing.
        Does: asks for none, 0, some and all logprobs in rows whose parameters change the logits.
        Must: give those of the raw logits: the chosen token, then so many of the most likely, in
        order, of the rows that asked, in order; rank 1 is the most likely.
        """
        asked = [None, 0, 5, -1, 20, 1, VOCAB, None]
        changes: list[dict[str, Any]] = [
            {"temperature": 0},
            {"top_k": 1},
            {"top_p": 0.3, "allowed_token_ids": [3, 4]},
            {"logit_bias": {2: 100.0}, "temperature": 0},
            {"temperature": 0, "repetition_penalty": 2.0},
            {"temperature": 2.0},
            {"presence_penalty": 2.0, "outputs": [1, 2]},
            EVERYTHING,
        ]
        slots, rows = make(), _logits(seed, len(asked))
        for slot, (count, change) in enumerate(zip(asked, changes, strict=True)):
            slots.add(slot, logprobs=count, **change)
        for step in range(2):
            order = [3, 0, 6, 5, 1, 7, 2, 4] if step else list(range(len(asked)))
            batch = slots.sample(rows[order], order)
            assert not batch.failures, f"rows failed: {batch.failures}"
            wanted = [row for row, slot in enumerate(order) if asked[slot] is not None]
            assert batch.logprobs is not None and batch.logprob_rows is not None, (
                "no logprobs, though rows asked for them"
            )
            assert batch.logprob_rows.tolist() == wanted, (
                f"logprob_rows is {batch.logprob_rows.tolist()}; the rows {wanted} asked"
            )
            counts = [asked[order[row]] or 0 for row in wanted]
            tokens = [int(batch.token_ids[row]) for row in wanted]
            _expect_logprobs(batch.logprobs, rows[order][wanted], tokens, counts)

    def test_logprobs_are_finite(self, make: Make) -> None:
        """Requires nothing.
        Does: asks for all logprobs under logits with -inf, and with very small ones.
        Must: give finite numbers, the chosen token first.
        """
        slots = make(4)
        slots.add(0, temperature=0, logprobs=-1)
        batch = slots.sample([[-np.inf, 3.0, -np.inf, -1e30]])
        assert batch.logprobs is not None, "no logprobs, though the row asked for them"
        entries = entries_of(batch.logprobs)[0]
        assert [entry.token for entry in entries[:2]] == [1, 1], f"token 1 has all: {entries}"
        assert all(entry.logprob < -500 for entry in entries[2:]), f"those of -inf: {entries}"

    def test_prompt_logprobs(self, make: Make, seed: int, device: str) -> None:
        """Requires nothing.
        Does: asks for the logprobs of targets, with 0, some and all alternatives.
        Must: give the target, then the most likely tokens, of each position.
        """
        slots, rows = make(), _logits(seed, 5)
        targets = [int(row.argmax()) if n % 2 else n for n, row in enumerate(rows)]
        for count in (0, 1, 4, VOCAB, -1):
            columns = slots.sampler.prompt_logprobs(
                torch.tensor(rows, dtype=torch.float32, device=device),
                torch.tensor(targets, dtype=torch.int64, device=device),
                count,
            )
            _expect_logprobs(columns, rows, targets, [count] * len(targets))

    # In an engine

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


def _generator(*keys: int) -> np.random.Generator:
    # It takes no negative numbers, as a seed of the suite may be.
    return np.random.default_rng([key % 2**64 for key in keys])


def _logits(seed: int, rows: int, vocab: int = VOCAB) -> Logits:
    """float64 [rows, vocab] whose numbers are exact in float32, no two in a row alike."""
    generator = _generator(seed, rows, vocab)
    spread = generator.permuted(np.tile(np.linspace(-3, 3, vocab), (rows, 1)), axis=1)
    logits = (spread + generator.normal(0, 1e-3, (rows, vocab))).astype(np.float32)
    exact: Logits = logits.astype(np.float64)
    return exact


def _few_likely(seed: int) -> Logits:
    """float64 [vocab]: the first ids are the likely ones, in falling order."""
    logits: Logits = _logits(seed, 1)[0] - 6.0
    logits[:10] = 4.0 - 0.37 * np.arange(10)
    return logits


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
    generator = _generator(seed, steps)
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
            f"{what}: slot {slot} with {_short(_given(request.sampling_params))}, prompt "
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


def _short(params: dict[str, Any]) -> str:
    text = repr(params)
    return text if len(text) < 300 else f"{text[:300]}…"


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


def _four(make: Make, params: dict[str, Any]) -> Slots:
    """Rows 0, 1 and 3 always the same; row 2 with these parameters."""
    slots = make()
    slots.add(0, temperature=0, logprobs=1)
    slots.add(1, seed=5, top_p=0.9)
    slots.add(2, **params)
    slots.add(3, temperature=0.7, seed=6, repetition_penalty=1.5)
    return slots


def _expect_failure(batch: Any, without: Any, *, poisoned: bool = False) -> None:
    assert list(batch.failures) == [2], (
        f"failures name the rows {sorted(batch.failures)}; only row 2 can not be sampled"
    )
    failure = batch.failures[2]
    assert isinstance(failure, RowFailure) and failure.message.strip(), (
        f"the failure is {failure!r}; it must be a RowFailure with a message"
    )
    assert failure.poisoned or not poisoned, "NaN logits, but the failure is not poisoned"
    others = [batch.token_ids[row] == without.token_ids[row] for row in (0, 1, 3)]
    assert all(others), (
        f"beside a row that failed the others took {batch.token_ids[[0, 1, 3]].tolist()}, without "
        f"it {without.token_ids[[0, 1, 3]].tolist()}"
    )
    rows = None if batch.logprob_rows is None else batch.logprob_rows.tolist()
    assert rows == [0], f"logprob_rows is {rows}; row 0 asked, row 2 failed"


def _expect_logprobs(
    columns: LogprobColumns,
    rows: Logits,
    tokens: Sequence[int],
    counts: Sequence[int],
) -> None:
    positions = entries_of(columns)
    assert len(positions) == len(tokens), f"{len(positions)} positions where {len(tokens)} asked"
    for entries, row, token, count in zip(positions, rows, tokens, counts, strict=True):
        shifted = row - row.max()
        logprobs = shifted - np.log(np.exp(shifted).sum())
        order = np.argsort(-row)
        wanted = [token, *order[: len(row) if count < 0 else count].tolist()]
        expected = [Entry(t, float(logprobs[t]), int((row > row[t]).sum()) + 1) for t in wanted]
        shown = f"asked for {count} of token {token}: got {entries[:4]}, expected {expected[:4]}"
        assert [(e.token, e.rank) for e in entries] == [(e.token, e.rank) for e in expected], shown
        worst = max(abs(e.logprob - x.logprob) for e, x in zip(entries, expected, strict=True))
        assert worst < NEAR, f"log-probabilities off by {worst:.2g}; {shown}"
