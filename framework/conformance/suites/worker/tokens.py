"""Tokens do not depend on how the scheduler gets to them."""

from __future__ import annotations

import random

import numpy as np

from framework.conformance.suites.worker.base import Start, WorkerPart, expect_same, generated
from framework.conformance.worlds.forced_tokens import FIRST
from framework.conformance.worlds.workers import Ask, WorkerWorld
from framework.conformance.worlds.workload import seeds
from framework.core.request import Request
from hookspecs.types.request import FinishReason
from hookspecs.types.sampling import SamplingParams
from hookspecs.types.step import ModelRunnerOutput, SchedulerOutput

__all__ = ["Tokens"]


class Tokens(WorkerPart):
    """A request's tokens are its own, whatever else runs and however its prompt is cut."""

    def test_each_row_gets_what_it_is_due(self, start: Start, world: WorkerWorld) -> None:
        """Requires nothing.
        Does: runs prompts in pieces, so that a step has rows that sample and others.
        Must: give one token to each row that samples and none to others, in int32 columns.
        """
        bench = start(max_num_batched_tokens=5)
        seen: list[tuple[SchedulerOutput, ModelRunnerOutput]] = []
        bench.kernel.on_result = lambda output, result: seen.append((output, result))
        bench.run(world.asks(2))
        assert any(not output.samples.all() for output, _ in seen), "no prompt came in pieces"
        for output, result in seen:
            for name in ("num_sampled", "token_ids"):
                column = getattr(result, name)
                kind = getattr(column, "dtype", type(column).__name__)
                assert kind == np.int32, f"{name} is of the type {kind}; needed is int32"
            given, due = result.num_sampled.tolist(), output.samples.astype(int).tolist()
            assert given == due, f"rows that sample {due} got {given} tokens"

    def test_neighbours_do_not_matter(self, start: Start, world: WorkerWorld, seed: int) -> None:
        """Requires nothing.
        Does: runs requests together, and in the opposite order.
        Must: give each the tokens that it gets alone: the result of its own row.
        """
        asks, alone = world.asks(seed), world.alone(seed)
        expect_same(start().run(asks), alone, asks, "beside others")
        backwards = start().run(asks[::-1])[::-1]
        expect_same(backwards, alone, asks, "beside others, in the opposite order")

    def test_slots_do_not_matter(self, start: Start, world: WorkerWorld, seed: int) -> None:
        """Requires nothing.
        Does: runs each request alone, but in another slot, after others were there that gave up.
        Must: give the tokens that it gets in the first slot.
        """
        asks, alone = world.asks(seed), world.alone(seed)
        bench, given = start(), []
        for number, ask in enumerate(asks):
            others = [bench.add(asks[(number + each) % len(asks)]) for each in range(1, 4)]
            request = bench.add(ask)
            bench.kernel.step()
            for other in others:
                if other.request_id in bench.kernel.requests:
                    bench.kernel.abort(other)
            bench.finish()
            given.append(request.output_token_ids)
        expect_same(given, alone, asks, "in another slot")

    def test_pieces_do_not_matter(self, start: Start, world: WorkerWorld, seed: int) -> None:
        """Requires nothing.
        Does: runs requests with so few tokens a step that prompts come in pieces of 1 to 7.
        Must: give the tokens that they get in one piece.
        """
        asks, alone = world.asks(seed), world.alone(seed)
        for budget in (1, 3, 7):
            given = start(max_num_batched_tokens=budget).run(asks)
            expect_same(given, alone, asks, f"with {budget} tokens a step")

    def test_cached_prefixes_do_not_matter(
        self, start: Start, world: WorkerWorld, seed: int
    ) -> None:
        """Requires nothing.
        Does: runs requests again, with the blocks of the first time in the prefix cache.
        Must: go on from num_computed_tokens, and give the tokens that they get without a cache.
        """
        asks, alone = world.asks(seed), world.alone(seed)
        bench = start(enable_prefix_caching=True)
        expect_same(bench.run(asks), alone, asks, "with a prefix cache")
        again = [bench.add(ask) for ask in asks]
        bench.finish()
        assert any(request.num_cached_tokens for request in again), "the prefix cache had nothing"
        given = [request.output_token_ids for request in again]
        expect_same(given, alone, asks, "with a cached prefix")

    def test_preempted_requests_go_on(self, start: Start, world: WorkerWorld, seed: int) -> None:
        """Requires nothing.
        Does: takes slots and blocks from all running requests every other step.
        Must: take the tokens of a request that resumes as it is told them, and give the same ones
        as without; nothing is left in the slots that others get then.
        """
        asks, alone = world.asks(seed), world.alone(seed)
        for caching in (False, True):
            bench = start(enable_prefix_caching=caching, num_blocks=24)
            expect_same(bench.run(asks, preempt_every=2), alone, asks, "after preemptions")

    def test_released_slots_are_forgotten(
        self, start: Start, world: WorkerWorld, seed: int
    ) -> None:
        """Requires nothing.
        Does: gives the only slot to requests with parameters of their own, which give up, and then
        to plain ones.
        Must: keep nothing of the former.
        """
        asks, alone = world.asks(seed), world.alone(seed)
        bench, given = start(max_num_seqs=1), []
        for number, ask in enumerate(asks):
            bench.add(_peculiar(asks[number - 1], number))
            bench.kernel.step()
            bench.kernel.step()
            for request in list(bench.kernel.requests.values()):
                bench.kernel.abort(request)
            given += bench.run([ask])
        expect_same(given, alone, asks, "in a slot where another was before")

    def test_seeded_draws_repeat(self, start: Start, world: WorkerWorld, seed: int) -> None:
        """Requires nothing.
        Does: draws with seeds, in batches, in pieces and after preemptions.
        Must: give the tokens that the request gets alone: a draw depends on seed and position.
        """
        asks, alone = world.asks(seed, seeded=True), world.alone(seed, seeded=True)
        expect_same(start().run(asks), alone, asks, "beside others")
        given = start(max_num_batched_tokens=6).run(asks[::-1], preempt_every=9)[::-1]
        expect_same(given, alone, asks, "in pieces, after preemptions")

    def test_a_failing_request_ends_alone(
        self, start: Start, world: WorkerWorld, seed: int
    ) -> None:
        """Requires nothing.
        Does: runs requests to which no token is allowed (the only one that is allowed may not come
        yet) among others.
        Must: end these with a RowFailure that says why, and leave the others as they are.
        """
        asks, alone = world.asks(seed), world.alone(seed)
        bench = start()
        good = []
        bad = []
        for ask in asks:
            good.append(bench.add(ask))
            bad.append(bench.add(Ask(ask.prompt, _impossible())))
        bench.finish()
        for request in bad:
            reason = bench.kernel.ended[request.request_id]
            assert reason is FinishReason.ERROR, (
                f"a request to which no token is allowed ended with {reason.name} and "
                f"{request.output_token_ids}"
            )
            failure = bench.kernel.failures[request.request_id]
            assert failure.message, "the RowFailure of a request says nothing"
        expect_same(
            [request.output_token_ids for request in good], alone, asks, "beside some that fail"
        )

    def test_random_workloads(self, start: Start, world: WorkerWorld, seed: int) -> None:
        """Requires nothing.
        Does: random arrivals, aborts, budgets, slots and preemptions, in a cache that is too small.
        Must: give every request that ends by itself the tokens that it gets alone.
        """
        for number in seeds(seed + 7, 3):
            rng = random.Random(number)
            bench = start(
                enable_prefix_caching=True,
                num_blocks=rng.randint(12, 24),
                max_num_seqs=rng.randint(1, 5),
                max_num_batched_tokens=rng.choice((2, 6, 40)),
            )
            asks, alone = world.asks(seed), world.alone(seed)
            coming = [rng.randrange(len(asks)) for _ in range(16)]
            added: list[tuple[int, Request]] = []
            for _ in range(5000):
                if not coming and not bench.kernel.requests:
                    break
                if coming and rng.random() < 0.6:
                    which = coming.pop()
                    added.append((which, bench.add(asks[which])))
                if rng.random() < 0.05 and bench.kernel.requests:
                    bench.kernel.abort(rng.choice([*bench.kernel.requests.values()]))
                if rng.random() < 0.05:
                    bench.kernel.scheduler.preempt_all()
                bench.kernel.step()
            left = sorted(bench.kernel.requests)
            assert not left, f"{left} had not ended after 5000 steps (workload seed {number})"
            done = [
                (which, request)
                for which, request in added
                if bench.kernel.ended[request.request_id] is FinishReason.LENGTH
            ]
            expect_same(
                [request.output_token_ids for _, request in done],
                [alone[which] for which, _ in done],
                [asks[which] for which, _ in done],
                f"in the random workload of seed {number}",
            )

    def test_tokens_in_an_engine(self, world: WorkerWorld, seed: int) -> None:
        """Requires nothing.
        Does: generates in a real engine with a small cache, twice.
        Must: give the tokens that each request gets alone, however it is scheduled.
        """
        asks, alone = world.asks(seed), world.alone(seed)
        with world.launch(cache={"num_blocks": 14}) as engine:
            for _ in range(2):
                expect_same(generated(engine, asks), alone, asks, "in an engine")


def _peculiar(ask: Ask, number: int) -> Ask:
    """With parameters that a worker keeps something for."""
    chosen = [
        SamplingParams(max_tokens=6, temperature=1.0, seed=number),
        SamplingParams(max_tokens=6, temperature=0, allowed_token_ids=[FIRST, FIRST + 1]),
        _impossible(),
    ]
    return Ask(ask.prompt, chosen[number % len(chosen)])


def _impossible() -> SamplingParams:
    """No token is allowed: the only one ends the output, and two others must come before."""
    return SamplingParams(
        max_tokens=4,
        temperature=0,
        allowed_token_ids=[FIRST],
        stop_token_ids=[FIRST],
        min_tokens=2,
    )
