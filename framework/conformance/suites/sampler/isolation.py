"""Slots that change hands, and rows that fail."""

from __future__ import annotations

from typing import Any

import numpy as np

from framework.conformance.suites.sampler.base import (
    EVERYTHING,
    VOCAB,
    Make,
    SamplerPart,
    logits_of,
    short,
)
from framework.conformance.worlds.sampling import Slots
from hookspecs.errors import RequestError
from hookspecs.types.step import RowFailure

__all__ = ["Isolation"]


class Isolation(SamplerPart):
    """What ended, was refused or fails does not touch others."""

    # Slots

    def test_a_slot_forgets(self, make: Make, seed: int) -> None:
        """Requires nothing.
        Does: gives the slots of requests with all parameters to plain ones, after `remove`.
        Must: treat them as in a new sampler: nothing of a request outlives it.
        """
        rows = logits_of(seed, 6)
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
        row = logits_of(seed, 1)
        for params in cases:
            slots = make()
            try:
                slots.add(0, **params)
            except RequestError:
                slots.add(0, outputs=[3, 1], temperature=0)
                token, best = slots.tokens(row)[0], int(row[0].argmax())
                assert token == best, (
                    f"after {short(params)} was refused, a plain request in its slot took {token} "
                    f"where {best} is most likely"
                )
                continue
            batch = slots.sample(row)
            assert not batch.failures, f"{short(params)} failed: {batch.failures}"

    # Failures

    def test_nan_fails_its_row_alone(self, make: Make, seed: int) -> None:
        """Requires nothing.
        Does: puts NaN into the logits of one row among others, of greedy, drawn and masked ones.
        Must: name that row in `failures`, with a message, as poisoned; the others get what they
        get without it.
        """
        rows = logits_of(seed, 4)
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
        rows = logits_of(seed, 4)
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
