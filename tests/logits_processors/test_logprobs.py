"""Logprobs are of the model's logits, whatever processors made of them."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from framework import SamplingParams
from hookspecs.types.outputs import Logprob
from tests.core.scripted import launch_scripted
from tests.logits_processors.rules import plugin

LOGITS = [0.5, 3.0, -1.0, 2.0, 1.0]
RAW = torch.tensor(LOGITS).log_softmax(-1).tolist()


def ask(logprobs: int | None, extensions: dict[str, Any]) -> SamplingParams:
    return SamplingParams(
        temperature=0,
        max_tokens=2,
        logprobs=logprobs,
        ignore_eos=True,
        detokenize=False,
        extensions={"scripted": {"logits": [LOGITS]}, **extensions},
    )


def values(positions: list[dict[int, Logprob]] | None) -> list[dict[int, tuple[float, int]]]:
    assert positions is not None
    return [{t: (p.logprob, p.rank) for t, p in position.items()} for position in positions]


def raw(*ids: int) -> dict[int, Any]:
    ranks = sorted(range(5), key=lambda i: -LOGITS[i])
    return {i: (pytest.approx(RAW[i], abs=1e-5), ranks.index(i) + 1) for i in ids}


def test_they_are_raw_beside_others_that_have_no_processor_or_no_logprobs() -> None:
    force = {"affine-a": {"token": 2, "bonus": 100.0}}
    with launch_scripted(plugins=[plugin], scripted={"vocab_size": 5}) as engine:
        outputs = engine.generate(
            [[3]] * 6,
            [
                ask(1, {}),
                ask(2, force),
                ask(None, force),
                ask(0, force),
                ask(3, {"faulty": {"fault": "mask", "at": 1}}),
                ask(-1, force),
            ],
        )
    plain, two, none, chosen, failed, every = (output.outputs[0] for output in outputs)
    assert [list(o.token_ids) for o in (plain, two, none, chosen, every)] == [
        [1, 1],
        *[[2, 2]] * 4,
    ]
    assert values(plain.logprobs) == [raw(1)] * 2
    assert values(two.logprobs) == [raw(2, 1, 3)] * 2
    assert none.logprobs is None
    assert values(chosen.logprobs) == [raw(2)] * 2
    assert (failed.finish_reason, values(failed.logprobs)) == ("error", [raw(1, 3, 4)])
    assert values(every.logprobs) == [raw(0, 1, 2, 3, 4)] * 2
