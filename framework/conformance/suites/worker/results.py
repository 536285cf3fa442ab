"""What requests may get besides tokens."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from framework.conformance.base import lacking, requires
from framework.conformance.suites.worker.base import (
    Start,
    WorkerPart,
    a_prompt,
    expect_refused,
    expect_same,
)
from framework.conformance.worlds.engines import greedy
from framework.conformance.worlds.workers import Ask, WorkerWorld
from hookspecs.contracts.worker import WorkerCapability
from hookspecs.types.pooling import PoolingParams, PoolingType
from hookspecs.types.sampling import SamplingParams
from hookspecs.types.step import LogprobColumns

__all__ = ["Results"]


class Results(WorkerPart):
    """Log-probabilities of prompts, and vectors, are right where they are declared."""

    @requires(WorkerCapability.PROMPT_LOGPROBS)
    def test_prompt_logprobs(self, start: Start, world: WorkerWorld, seed: int) -> None:
        """Requires prompt_logprobs.
        Does: asks for the logprobs of prompts, in one piece and in several.
        Must: give each position but the first its token and the most likely ones, the same ones in
        any pieces.
        """
        asks = [
            Ask(ask.prompt, SamplingParams(max_tokens=2, temperature=0, prompt_logprobs=2))
            for ask in world.asks(seed)
        ]
        found = []
        for budget in (512, 3):
            bench = start(max_num_batched_tokens=budget)
            requests = [bench.add(ask) for ask in asks]
            bench.finish()
            pieces = bench.kernel.prompt_pieces
            found.append([_joined(pieces.get(each.request_id, [])) for each in requests])
        for ask, whole, parts in zip(asks, *found, strict=True):
            counts, tokens, logprobs, ranks = whole
            wanted = [0, *[3] * (len(ask.prompt) - 1)]
            assert counts == wanted, (
                f"a prompt of {len(ask.prompt)} has counts {counts}, not {wanted}"
            )
            assert tokens[::3] == ask.prompt[1:], (
                f"the positions begin with {tokens[::3]}, not with the prompt's {ask.prompt[1:]}"
            )
            assert all(np.isfinite(logprobs)) and max(logprobs, default=0) <= 1e-5, (
                f"logprobs are {logprobs}; they are finite and at most 0"
            )
            assert all(rank >= 1 for rank in ranks), f"ranks are {ranks}; they begin with 1"
            assert parts[:2] == whole[:2] and np.allclose(parts[2], logprobs, atol=1e-3), (
                f"in pieces of 3 tokens the logprobs are {parts}, in one {whole}"
            )

    @lacking(WorkerCapability.PROMPT_LOGPROBS)
    def test_prompt_logprobs_are_refused(self, world: WorkerWorld) -> None:
        """Requires a worker that does not declare prompt_logprobs.
        Does: asks an engine for the logprobs of a prompt.
        Must: let the request be refused, not answered without them.
        """
        with world.launch() as engine:
            expect_refused(lambda: engine.generate([a_prompt(world)], greedy(2, prompt_logprobs=1)))

    @requires(WorkerCapability.POOLING)
    def test_pooling(self, start: Start, world: WorkerWorld, seed: int) -> None:
        """Requires pooling.
        Does: asks for vectors beside requests for tokens: of both types, normalized or not, cut,
        alone and in pieces.
        Must: give the same vector in any company and pieces, of the length that was asked for, and
        leave the tokens of the others as they are.
        """
        asks, alone = world.asks(seed), world.alone(seed)
        wanted = [
            PoolingParams(pooling=PoolingType.MEAN),
            PoolingParams(pooling=PoolingType.LAST, normalize=False),
            PoolingParams(pooling=PoolingType.MEAN, normalize=False, dimensions=2),
        ]
        size = world.model.info.hidden_size
        found = []
        for budget in (512, 5):
            bench = start(max_num_batched_tokens=budget)
            vectors = []
            for params in wanted:
                request = bench.add(asks[0], pooling=params)
                bench.finish()
                vectors.append(bench.kernel.vectors[request.request_id])
            pooled = [bench.add(asks[0], pooling=params) for params in wanted]
            expect_same(bench.run(asks), alone, asks, "beside pooling requests")
            vectors += [bench.kernel.vectors[request.request_id] for request in pooled]
            found += [vectors[:3], vectors[3:]]
        for vectors in found:
            for params, vector, first in zip(wanted, vectors, found[0], strict=True):
                length = params.dimensions or size or len(vector)
                assert len(vector) == length, f"{params} gave {len(vector)} elements, not {length}"
                assert np.allclose(vector, first, rtol=1e-3, atol=1e-4), (
                    f"{params} gave {vector[:4]} alone and {first[:4]} in company or in pieces"
                )
        norm = float(np.linalg.norm(found[0][0]))
        assert abs(norm - 1) < 1e-3, f"a normalized vector has the length {norm}"

    @lacking(WorkerCapability.POOLING)
    def test_pooling_is_refused(self, world: WorkerWorld) -> None:
        """Requires a worker that does not declare pooling.
        Does: asks an engine for a vector.
        Must: let that be refused.
        """
        with world.launch() as engine:
            expect_refused(lambda: engine.embed([a_prompt(world)]))


def _joined(
    pieces: Sequence[LogprobColumns],
) -> tuple[list[int], list[int], list[float], list[int]]:
    return (
        [count for piece in pieces for count in piece.counts.tolist()],
        [token for piece in pieces for token in piece.token_ids.tolist()],
        [logprob for piece in pieces for logprob in piece.logprobs.tolist()],
        [rank for piece in pieces for rank in piece.ranks.tolist()],
    )
