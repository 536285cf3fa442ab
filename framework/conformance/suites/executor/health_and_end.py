"""Health and shutdown."""

from __future__ import annotations

import threading

from framework.conformance.suites.executor.base import TOO_LATE_S, ExecutorPart, MakeBench, error_of
from framework.conformance.worlds.executors import KV_CONFIG, steps
from framework.conformance.worlds.leftovers import Leftovers
from framework.conformance.worlds.patience import within
from hookspecs.errors import EngineDeadError

__all__ = ["HealthAndEnd"]


class HealthAndEnd(ExecutorPart):
    """An executor tells a failure, and ends at any time without leaving anything."""

    def test_health(self, make: MakeBench) -> None:
        """Requires nothing.
        Does: checks the health after the start, after a step, and after the shutdown.
        Must: return while its workers live, and raise EngineDeadError once they do not.
        """
        bench = make()
        bench.start()
        bench.executor.check_health()
        bench.run(next(steps(1)))
        bench.executor.check_health()
        bench.executor.shutdown()
        raised = error_of(bench.executor.check_health)
        assert isinstance(raised, EngineDeadError), (
            f"check_health after the shutdown gave {raised!r}, no EngineDeadError"
        )

    def test_shutdown_at_any_time(self, make: MakeBench) -> None:
        """Requires nothing.
        Does: shuts down before the start, right after it, and after a step, twice each time.
        Must: return each time, and shut down every worker that was made.
        """
        for what in ("before the start", "after the start", "after a step"):
            bench = make()
            if what != "before the start":
                bench.executor.start()
            if what == "after a step":
                bench.executor.initialize_kv_cache(KV_CONFIG)
                bench.run(next(steps(1)))
            for time in ("the first", "the second"):
                raised = error_of(lambda b=bench: within(b.executor.shutdown, "shutdown"))  # type: ignore[misc]
                assert raised is None, f"{time} shutdown {what} raised {raised!r}"
            for rank in range(len(bench.desk.workers)):
                assert "shutdown" in bench.desk.methods(rank), (
                    f"the worker of rank {rank} was not shut down, {what}"
                )

    def test_shutdown_with_a_step_in_flight(self, make: MakeBench) -> None:
        """Requires nothing.
        Does: shuts down after execute_model, without waiting for the forward, which ends soon
        after.
        Must: return, and call no worker afterwards.
        """
        bench = make()
        bench.start()
        gate = bench.desk.hold("execute_model")
        bench.executor.execute_model(next(steps(1)))
        opener = threading.Timer(TOO_LATE_S, gate.open)
        opener.start()
        within(bench.executor.shutdown, "shutdown with a step in flight")
        opener.join()
        for rank in range(len(bench.desk.workers)):
            called = bench.desk.methods(rank)
            assert called[-1] == "shutdown", f"rank {rank} was called {called[-1]} after shutdown"

    def test_nothing_is_left(self, make: MakeBench) -> None:
        """Requires nothing.
        Does: starts, runs steps, shuts down, and looks for threads and child processes.
        Must: leave none behind.
        """
        leftovers = Leftovers()
        bench = make()
        bench.start()
        for scheduled in steps(2):
            bench.run(scheduled)
        bench.executor.shutdown()
        names = leftovers.names()
        assert not names, f"these live on after the shutdown: {', '.join(names)}"

    def test_no_failure_is_told_without_one(self, make: MakeBench) -> None:
        """Requires nothing.
        Does: asks to be told of lost workers, then runs steps, commands that fail, and shuts down.
        Must: tell of none: an error that a worker raises, or a shutdown, loses no worker.
        """
        bench = make()
        told: list[str] = []
        bench.executor.on_failure(told.append)
        bench.start()
        bench.run(next(steps(1)))
        error_of(lambda: bench.executor.collective_rpc("no_such_command"))
        bench.executor.shutdown()
        assert not told, f"on_failure told of {told}, though no worker was lost"
