"""What requests may bring, and models may have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from framework.conformance.base import lacking, requires
from framework.conformance.suites.worker.base import (
    Start,
    WorkerPart,
    a_prompt,
    error_of,
    expect_refused,
    expect_same,
)
from framework.conformance.worlds.engines import greedy
from framework.conformance.worlds.forced_tokens import FIRST, FORCED, OffersForcedTokens, forced
from framework.conformance.worlds.tiny_model import EMBEDDING, tiny_weights
from framework.conformance.worlds.workers import Ask, WorkerBench, WorkerWorld
from hookspecs.contracts.worker import WorkerCapability
from hookspecs.errors import InvalidRequestError
from hookspecs.types.commands import ListAdapters
from hookspecs.types.request import FinishReason
from hookspecs.types.sampling import SamplingParams
from hookspecs.types.step import GrammarOutput, SchedulerOutput

__all__ = ["Features"]


class Features(WorkerPart):
    """Embeds, logits processors, windows, grammars and adapters, where they are declared."""

    @requires(WorkerCapability.PROMPT_EMBEDS)
    def test_prompt_embeds(self, start: Start, world: WorkerWorld, seed: int) -> None:
        """Requires prompt_embeds.
        Does: gives prompts as embeddings, alone, beside others, in pieces and with preemptions, and
        the opposite ones.
        Must: give the same tokens but for the opposite ones; with the kit's tiny model those of
        the token ids whose embeddings they are.
        """
        asks, alone = world.asks(seed), world.alone(seed)
        size = world.model.info.hidden_size
        assert size > 0, "the model does not tell its hidden size, without which no embedding fits"
        rng = np.random.RandomState(seed)
        table = rng.standard_normal((world.vocab_size, size)).astype(np.float32)
        if world.is_tiny_model:
            table = tiny_weights()[EMBEDDING]
        embedded = [Ask([0] * len(ask.prompt), ask.params) for ask in asks]

        def run(
            bench: WorkerBench, together: bool, preempt_every: int = 0, sign: float = 1
        ) -> list[list[int]]:
            requests = []
            for ask, filler in zip(asks, embedded, strict=True):
                requests.append(bench.add(filler, prompt_embeds=sign * table[ask.prompt]))
                if not together:
                    bench.finish()
            bench.finish(preempt_every=preempt_every)
            return [request.output_token_ids for request in requests]

        first = run(start(), together=False)
        if world.is_tiny_model:
            expect_same(first, alone, asks, "given as embeddings")
        expect_same(run(start(), together=True), first, embedded, "as embeddings, beside others")
        other = run(start(), together=True, sign=-1)
        assert other != first, "the opposite embeddings give the same tokens to all requests"
        given = run(start(max_num_batched_tokens=6), together=True, preempt_every=9)
        expect_same(given, first, embedded, "as embeddings in pieces, after preemptions")

    @lacking(WorkerCapability.PROMPT_EMBEDS)
    def test_prompt_embeds_are_refused(self, world: WorkerWorld) -> None:
        """Requires a worker that does not declare prompt_embeds.
        Does: gives an engine a prompt as embeddings.
        Must: let the request be refused.
        """
        embeds = np.zeros((3, max(1, world.model.info.hidden_size)), np.float32)
        with world.launch() as engine:
            expect_refused(lambda: engine.generate([{"prompt_embeds": embeds}], greedy(2)))

    @requires(WorkerCapability.LOGITS_PROCESSORS)
    def test_logits_processors(self, start: Start, world: WorkerWorld, seed: int) -> None:
        """Requires logits_processors.
        Does: runs requests with a processor that decides each token by the number of those before,
        beside others without, with preemptions; one whose processor raises.
        Must: tell processors of all tokens, apply them to their own rows, and end the one that
        raises alone.
        """
        asks, alone = world.asks(seed), world.alone(seed)
        bench = start(make_processors=forced(world.subject.config()))
        count = 5

        def params(**options: Any) -> SamplingParams:
            return SamplingParams(max_tokens=count, temperature=0, extensions={FORCED: options})

        forced_ones = [bench.add(Ask(ask.prompt, params())) for ask in asks]
        failing = bench.add(Ask(asks[0].prompt, params(raise_at=2)))
        expect_same(bench.run(asks, preempt_every=3), alone, asks, "beside others with processors")
        wanted = [FIRST + number for number in range(count)]
        for request in forced_ones:
            assert request.output_token_ids == wanted, (
                f"a processor that decides {wanted} was given {request.output_token_ids}"
            )
        reason = bench.kernel.ended[failing.request_id]
        assert reason is FinishReason.ERROR, f"a processor raised; its request ended with {reason}"
        assert failing.output_token_ids == wanted[:2], (
            f"before its processor raised a request got {failing.output_token_ids}"
        )

    @lacking(WorkerCapability.LOGITS_PROCESSORS)
    def test_logits_processors_are_refused(self, world: WorkerWorld) -> None:
        """Requires a worker that does not declare logits_processors.
        Does: asks an engine for a processor.
        Must: let the request be refused, not answered without it.
        """
        with world.launch(beside=[OffersForcedTokens()]) as engine:
            params = greedy(2, extensions={FORCED: {}})
            expect_refused(lambda: engine.generate([a_prompt(world)], params))

    @requires(WorkerCapability.SLIDING_WINDOW)
    def test_windows_need_no_more(self, world: WorkerWorld, seed: int) -> None:
        """Requires sliding_window, and a model with windows; instead of the kit's tiny model the
        same one with windows. With another model that has none nothing is tested.
        Does: generates while blocks that left a window are given up, and while all are kept.
        Must: give the same tokens, and read nothing that was given up.
        """
        windowed = world.windowed()
        if windowed is None:
            return
        asks = windowed.asks(seed)
        given = []
        for windows in (False, True):
            bench = WorkerBench(windowed, windows=windows, max_num_batched_tokens=6)
            try:
                given.append(bench.run(asks, preempt_every=7))
            finally:
                bench.close()
        expect_same(given[1], given[0], asks, "when blocks that left the window are given up")

    @requires(WorkerCapability.GRAMMAR)
    def test_grammar(self, start: Start, world: WorkerWorld, seed: int) -> None:
        """Requires grammar.
        Does: allows one token to every other row of a step, by a bitmask.
        Must: give these rows that token, and the others what they get without.
        """
        asks, alone = world.asks(seed), world.alone(seed)
        bench = start()
        requests = [bench.add(ask) for ask in asks]
        bench.kernel.grammar = lambda output: _only(output, FIRST, world.vocab_size)
        bench.kernel.step()
        given = [request.output_token_ids[0] for request in requests]
        wanted = [tokens[0] if n % 2 else FIRST for n, tokens in enumerate(alone)]
        assert given == wanted, f"with a bitmask rows got {given}, not {wanted}"

    @requires(WorkerCapability.ADAPTERS)
    def test_adapters(self, world: WorkerWorld, tmp_path: Path) -> None:
        """Requires adapters.
        Does: lists adapters, forgets one that there is not, and loads an empty directory.
        Must: refuse both with InvalidRequestError, and list the same names as before.
        """
        bench = WorkerBench(world)
        try:
            worker = bench.worker
            before = worker.list_adapters()
            assert all(isinstance(name, str) for name in before), f"list_adapters gave {before}"
            for call in (
                lambda: worker.unload_adapter("conformance"),
                lambda: worker.load_adapter("conformance", str(tmp_path)),
            ):
                refused = error_of(call)
                assert isinstance(refused, InvalidRequestError), f"it gave {refused!r}"
            after = worker.list_adapters()
            assert after == before, f"after refused calls the adapters are {after}, not {before}"
        finally:
            bench.close()

    @lacking(WorkerCapability.ADAPTERS)
    def test_adapters_are_refused(self, world: WorkerWorld) -> None:
        """Requires a worker that does not declare adapters.
        Does: asks an engine for its adapters.
        Must: let that be refused.
        """
        with world.launch() as engine:
            expect_refused(lambda: engine.run_command(ListAdapters()))


def _only(output: SchedulerOutput, token: int, vocab_size: int) -> GrammarOutput:
    """A bitmask that allows one token to every other row."""
    slots = output.slots[::2]
    words = -(-vocab_size // 32)
    bitmask = np.zeros((len(slots), words), np.int32)
    bitmask[:, token // 32] = 1 << (token % 32)
    return GrammarOutput(slots=slots, bitmask=bitmask.reshape(-1))
