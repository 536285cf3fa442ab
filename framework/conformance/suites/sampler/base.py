"""What the parts of the suite of samplers share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from framework.conformance.subject import Subject
from framework.conformance.worlds.makers import PartMaker
from framework.conformance.worlds.sampling import Logits, Slots
from framework.conformance.worlds.tensors import TensorConformance

__all__ = ["EVERYTHING", "VOCAB", "Make", "SamplerPart", "generator_of", "logits_of", "short"]

Make = Callable[..., Slots]
VOCAB = 40
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


class SamplerPart(TensorConformance):
    """A sampler whose slots are filled by hand."""

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


def generator_of(*keys: int) -> np.random.Generator:
    # It takes no negative numbers, as a seed of the suite may be.
    return np.random.default_rng([key % 2**64 for key in keys])


def logits_of(seed: int, rows: int, vocab: int = VOCAB) -> Logits:
    """float64 [rows, vocab] whose numbers are exact in float32, no two in a row alike."""
    generator = generator_of(seed, rows, vocab)
    spread = generator.permuted(np.tile(np.linspace(-3, 3, vocab), (rows, 1)), axis=1)
    logits = (spread + generator.normal(0, 1e-3, (rows, vocab))).astype(np.float32)
    exact: Logits = logits.astype(np.float64)
    return exact


def short(params: dict[str, Any]) -> str:
    text = repr(params)
    return text if len(text) < 300 else f"{text[:300]}…"
