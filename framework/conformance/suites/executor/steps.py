"""Steps and their futures."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

from framework.conformance.base import requires
from framework.conformance.suites.executor.base import (
    STEPS,
    ExecutorPart,
    MakeBench,
    error_of,
    is_fault,
)
from framework.conformance.worlds.executors import ExecutorBench, expected_tokens, steps, wait_for
from framework.conformance.worlds.told_worker import WorkerFault
from hookspecs.contracts.executor import ExecutorCapability
from hookspecs.types.step import ModelRunnerOutput

__all__ = ["Steps"]


class Steps(ExecutorPart):
    """Each step's futures bring its own result, or its own failure."""

    def test_a_step_gives_two_futures(self, make: MakeBench) -> None:
        """Requires nothing.
        Does: runs steps, each with execute_model and then sample_tokens.
        Must: give a concurrent.futures.Future each time, which completes with None and with the
        output of that step.
        """
        bench = make()
        bench.start()
        for scheduled in steps(STEPS):
            launched = bench.executor.execute_model(scheduled)
            sampling = bench.executor.sample_tokens(None)
            for name, future in (("execute_model", launched), ("sample_tokens", sampling)):
                assert isinstance(future, Future), (
                    f"{name} gave a {type(future).__name__}; needed is a concurrent.futures.Future"
                )
            nothing = wait_for(launched, "the future of execute_model")
            assert nothing is None, f"the future of execute_model gave {nothing!r}; it gives None"
            output = wait_for(sampling, "the future of sample_tokens")
            assert isinstance(output, ModelRunnerOutput), (
                f"the future of sample_tokens gave {output!r}, which is no ModelRunnerOutput"
            )
            given = output.num_sampled.tolist()
            assert given == [1, 1], f"a step whose two rows sample gave them {given} tokens"

    def test_each_step_gives_its_own_tokens(self, ours: MakeBench) -> None:
        """Requires workers that are made with create_worker.
        Does: runs steps whose tokens depend on all that were computed before.
        Must: run each step once on every worker, and give its tokens, not those of another step.
        """
        bench = ours()
        bench.start()
        for number, scheduled in enumerate(steps(STEPS)):
            tokens = bench.run(scheduled).token_ids.tolist()
            wanted = expected_tokens(STEPS)[number]
            assert tokens == wanted, f"step {number} gave {tokens}; the worker's are {wanted}"
        for rank in range(bench.world_size):
            for method in ("execute_model", "sample_tokens"):
                count = bench.desk.methods(rank).count(method)
                assert count == STEPS, f"{method} of rank {rank} ran {count} times in {STEPS} steps"

    def test_futures_complete_in_order(self, make: MakeBench) -> None:
        """Requires nothing.
        Does: notes the order in which the futures of several steps complete, with as many steps in
        flight as max_concurrent_batches allows.
        Must: complete the forward of a step before its tokens, and both before the next step's.
        """
        bench = make()
        bench.start()
        depth = bench.executor.max_concurrent_batches
        assert type(depth) is int and depth >= 1, f"max_concurrent_batches is {depth!r}"
        done: list[str] = []
        named: list[tuple[str, Future[Any]]] = []
        for number, scheduled in enumerate(steps(STEPS)):
            pair: list[tuple[str, Future[Any]]] = [
                (f"forward {number}", bench.executor.execute_model(scheduled)),
                (f"tokens {number}", bench.executor.sample_tokens(None)),
            ]
            named += pair
            for name, future in pair:
                future.add_done_callback(lambda _, name=name: done.append(name))  # type: ignore[misc]
            if number + 1 >= depth:
                wait_for(named[2 * (number + 1 - depth) + 1][1], f"tokens {number + 1 - depth}")
        wait_for(named[-1][1], named[-1][0])
        wanted = [name for name, _ in named]
        assert done == wanted, f"futures completed in the order {done}"

    def test_failures_of_a_step_come_out(self, ours: MakeBench) -> None:
        """Requires workers that are made with create_worker.
        Does: lets the forward, and then sampling, fail on the last rank.
        Must: give the worker's own error: in the future of that call, or from it at once.
        """
        for method in ("execute_model", "sample_tokens"):
            bench = ours()
            bench.start()
            fault = WorkerFault(f"{method} fails")
            bench.desk.faults[method, bench.world_size - 1] = fault
            scheduled = next(steps(1))

            def forward(bench: ExecutorBench = bench, scheduled: Any = scheduled) -> None:
                wait_for(bench.executor.execute_model(scheduled), "the future of execute_model")

            def sample(bench: ExecutorBench = bench) -> None:
                wait_for(bench.executor.sample_tokens(None), "the future of sample_tokens")

            raised = error_of(forward)
            if method == "sample_tokens":
                assert raised is None, f"the forward raised {raised!r}, before anything failed"
                raised = error_of(sample)
            assert raised is not None, f"the failure of {method} did not come out"
            assert is_fault(raised, fault), (
                f"{method} raised {raised!r}; the worker raised {fault!r}"
            )

    @requires(ExecutorCapability.ASYNC_STEPPING)
    def test_a_step_does_not_wait_for_the_forward(self, ours: MakeBench) -> None:
        """Requires async_stepping, and workers that are made with create_worker.
        Does: holds back the forward, and calls execute_model and sample_tokens.
        Must: return from both while the forward has not ended, with futures that complete once it
        has.
        """
        bench = ours()
        bench.start()
        gate = bench.desk.hold("execute_model")
        launched = bench.executor.execute_model(next(steps(1)))
        sampling = bench.executor.sample_tokens(None)
        assert not gate.in_own_thread and not gate.forced, (
            "execute_model or sample_tokens waits for the forward; async_stepping must not be "
            "declared then"
        )
        early = [f.done() for f in (launched, sampling)]
        assert early == [False, False], "a future was complete before the forward had ended"
        gate.open()
        wait_for(launched, "the future of execute_model")
        wait_for(sampling, "the future of sample_tokens")
