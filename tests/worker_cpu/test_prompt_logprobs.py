"""Prompt logprobs equal those of plain transformers, wherever the prompt is cut."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from hookspecs.contracts.model import ResolvedModel
from hookspecs.types.sampling import SamplingParams
from tests.worker_cpu.driver import Driver, Request, random_prompt
from tests.worker_cpu.families import Reference


@pytest.mark.parametrize("family", ["llama", "gemma2", "gpt2"])
@pytest.mark.parametrize("chunk", [1, 5, 1000])
def test_equal_log_softmax(
    family: str,
    chunk: int,
    checkpoint: Callable[[str], ResolvedModel],
    reference: Callable[[str], Reference],
) -> None:
    requests = [
        Request(random_prompt(17), 3, params=SamplingParams(prompt_logprobs=2)),
        Request(random_prompt(9), 3, start_step=1),
        Request(random_prompt(1), 3, start_step=1, params=SamplingParams(prompt_logprobs=0)),
        Request(random_prompt(11), 3, start_step=2, params=SamplingParams(prompt_logprobs=0)),
    ]
    Driver(checkpoint(family)).run(*requests, chunk=chunk)
    for request in requests:
        wanted = request.params.prompt_logprobs
        if wanted is None:
            assert not request.prompt_pieces
            continue
        counts = np.concatenate([piece.counts for piece in request.prompt_pieces])
        assert counts.tolist() == [0] + [wanted + 1] * (len(request.prompt) - 1)
        ids = np.concatenate([piece.token_ids for piece in request.prompt_pieces])
        values = np.concatenate([piece.logprobs for piece in request.prompt_pieces])
        table = reference(family).logprobs(request.prompt).numpy()[:-1]
        ids, values = ids.reshape(-1, wanted + 1), values.reshape(-1, wanted + 1)
        assert ids[:, 0].tolist() == request.prompt[1:]
        expected = np.take_along_axis(table, ids.astype(np.int64), 1)
        np.testing.assert_allclose(values, expected, atol=1e-4)
        best = np.sort(table, 1)[:, ::-1][:, :wanted]
        np.testing.assert_allclose(values[:, 1:], best, atol=1e-4)
        assert request.output == reference(family).greedy(request.prompt, 3)


@pytest.mark.parametrize("preempt_at", [1, 2, 3, 4])
def test_a_resumed_request_does_not_give_them_again(
    preempt_at: int, checkpoint: Callable[[str], ResolvedModel]
) -> None:
    request = Request(random_prompt(9), 4, params=SamplingParams(prompt_logprobs=1))
    Driver(checkpoint("llama")).run(request, chunk=5, preempt_at=preempt_at)
    sizes = [len(piece.counts) for piece in request.prompt_pieces]
    # The first output comes with the second step; until then all is computed anew.
    assert sizes == ([6, 6, 3] if preempt_at == 1 else [6, 3])
