"""Schedulers beside faulty parts, in large crowds, and in an engine."""

from __future__ import annotations

import pytest

from framework.conformance.subject import Subject
from framework.conformance.suites.scheduler.base import SchedulerPart, spied
from framework.conformance.worlds.cost import lines_of
from framework.conformance.worlds.engines import greedy, prompts_of, run_prompts
from framework.conformance.worlds.makers import PartMaker, kernel_around
from framework.conformance.worlds.spied_cache import CacheFault
from framework.conformance.worlds.told_policy import PolicyFault, ToldPolicy
from hookspecs.config import EngineConfig

__all__ = ["Surroundings"]


class Surroundings(SchedulerPart):
    """Faults of others come out, and steps cost in proportion."""

    # Faults of others

    def test_errors_of_policies_come_out(self, make: PartMaker) -> None:
        """Requires nothing.
        Does: lets a policy raise in each of its methods.
        Must: let the exception out; the kernel names its plugin and stops the engine.
        """
        for method in ("order_key", "admit", "expire", "cap_tokens", "on_finish"):
            told = ToldPolicy()
            kernel = kernel_around(make, policies=[told])
            kernel.step()
            told.fault = method
            with pytest.raises(PolicyFault):
                kernel.add(3, 2)
                kernel.run(20)
                raise AssertionError(f"an exception of a policy's {method} was swallowed")

    def test_errors_of_the_cache_come_out(self, make: PartMaker) -> None:
        """Requires nothing.
        Does: lets the KV cache manager raise.
        Must: let the exception out; the kernel names its plugin and stops the engine.
        """
        for method in ("lookup", "allocate"):
            kernel, spy = spied(make, num_blocks=40)
            kernel.add(3, 9)
            spy.fault = method
            with pytest.raises(CacheFault):
                kernel.run(20)
                raise AssertionError(f"an exception of the cache's {method} was swallowed")

    # Cost

    def test_a_step_costs_in_proportion(self, make: PartMaker) -> None:
        """Requires nothing.
        Does: counts the lines that a step executes with 20 and with 400 requests that wait behind
        full slots.
        Must: not grow faster than their number.
        """
        costs = []
        for crowd in (20, 400):
            kernel = kernel_around(make, max_num_seqs=2, num_blocks=64, policies=())
            for _ in range(crowd):
                kernel.add(3, 40)
            kernel.step()
            kernel.view.refresh()
            costs.append(lines_of(kernel.scheduler.schedule))
        small, large = costs
        assert large <= 25 * small, (
            f"a step executes {small} lines with 20 waiting requests, {large} with 400"
        )

    # In an engine

    def test_tokens_do_not_depend_on_it(self, subject: Subject, seed: int) -> None:
        """Requires nothing.
        Does: generates in a real engine with a small cache, where two prompt tokens fit beside
        decodes, and with the default scheduler.
        Must: change when requests run, never what they get.
        """
        beside = {"prefill_beside_decode": 2}
        with subject.launch(cache={"num_blocks": 12}, scheduler=beside) as engine:
            own = run_prompts(engine, seed)
        with subject.launch(scheduler={"name": EngineConfig().scheduler.name}) as engine:
            default = run_prompts(engine, seed)
        assert own == default, "other tokens than with the default scheduler"

    def test_control_of_an_engine(self, subject: Subject, seed: int) -> None:
        """Requires nothing.
        Does: resets the cache of a real engine under running requests, pauses and resumes it.
        Must: let all requests go on, with the tokens that they would have had.
        """
        prompts, params = prompts_of(seed, count=3), greedy(12)
        with subject.launch() as engine:
            expected = [out.outputs[0].token_ids for out in engine.generate(prompts, params)]
            streams = [engine.stream(prompt, params) for prompt in prompts]
            tokens = [[*next(stream).outputs[0].token_ids] for stream in streams]
            assert engine.reset_prefix_cache(preempt_running=True), "the cache was not reset"
            engine.pause("keep")
            engine.resume()
            for own, stream in zip(tokens, streams, strict=True):
                own += [token for out in stream for token in out.outputs[0].token_ids]
        assert tokens == expected, "a reset of the cache, or a pause, changed the tokens"
