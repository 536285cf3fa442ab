"""How workers start, and what their caches hold."""

from __future__ import annotations

from framework.conformance.base import requires
from framework.conformance.suites.executor.base import (
    STEPS,
    ExecutorPart,
    MakeBench,
    error_of,
    is_fault,
)
from framework.conformance.worlds.executors import KV_CONFIG, steps
from framework.conformance.worlds.patience import within
from framework.conformance.worlds.told_worker import WorkerFault, kv_bytes_of, layers_of
from hookspecs.contracts.executor import ExecutorCapability

__all__ = ["Start"]


class Start(ExecutorPart):
    """Workers are started in the order of the contract, each in one thread."""

    # Start

    def test_workers_start_in_order(self, ours: MakeBench) -> None:
        """Requires workers that are made with create_worker.
        Does: starts the executor and runs a step.
        Must: make the ranks from 0 on, each once, and call each worker in the order of its
        contract.
        """
        bench = ours()
        bench.start()
        bench.run(next(steps(1)))
        size = bench.world_size
        ranks = sorted((rank, world_size) for rank, _, world_size in bench.desk.made)
        assert ranks == [(rank, size) for rank in range(size)], (
            f"workers were made as (rank, local rank, world size) {bench.desk.made}; needed are "
            f"the ranks below {size}, each once"
        )
        for rank in range(size):
            called = bench.desk.methods(rank)
            once = list(dict.fromkeys(called))
            order = [method for method in _ORDER if method in called]
            lost = [method for method in _NEEDED if method not in called]
            assert not lost, f"{', '.join(lost)} of the worker of rank {rank} was never called"
            assert once == order, f"rank {rank} was called {called}; the order is {order}"
            repeated = [method for method in _NEEDED if called.count(method) > 1]
            assert not repeated, f"{repeated} of rank {rank} was called more than once: {called}"

    def test_a_worker_has_one_thread(self, ours: MakeBench) -> None:
        """Requires workers that are made with create_worker.
        Does: starts, runs steps and a command, shuts down, and looks in which threads the worker
        was called.
        Must: make each worker and call it in one thread, since devices are bound to threads.
        """
        bench = ours()
        bench.start()
        for scheduled in steps(STEPS):
            bench.run(scheduled)
        bench.executor.collective_rpc("answer", (1,))
        bench.executor.shutdown()
        for rank in range(bench.world_size):
            threads = {call.thread for call in bench.desk.calls if call.rank == rank}
            assert len(threads) == 1, f"rank {rank} was called in {len(threads)} threads"

    def test_a_failing_start_comes_out(self, ours: MakeBench) -> None:
        """Requires workers that are made with create_worker.
        Does: lets the last rank fail in its constructor, in init_device and in load_model.
        Must: raise the worker's own error from start, and be shut down like any other, with the
        workers that were made.
        """
        for method in ("construct", "init_device", "load_model"):
            bench = ours()
            fault = WorkerFault(f"{method} fails")
            bench.desk.faults[method, bench.world_size - 1] = fault
            raised = error_of(bench.executor.start)
            assert raised is not None, f"start returned though {method} of a worker raised"
            assert is_fault(raised, fault), f"start raised {raised!r}; the worker raised {fault!r}"
            within(bench.executor.shutdown, f"shutdown after a failure of {method}")
            for worker in bench.desk.workers:
                rank = worker.context.rank
                assert "shutdown" in bench.desk.methods(rank), (
                    f"rank {rank} was not shut down after a start that failed in {method}"
                )

    # Cache

    def test_cache_facts_come_from_workers(self, ours: MakeBench) -> None:
        """Requires workers that are made with create_worker.
        Does: asks for layers and bytes, and gives the shape of the cache.
        Must: give the layers of a worker, the bytes of the one that has fewest, and hand the shape
        to every worker.
        """
        bench = ours()
        bench.executor.start()
        size = bench.world_size
        specs = bench.executor.kv_layer_specs()
        wanted = layers_of(0)
        assert specs[: len(wanted)] == wanted, f"kv_layer_specs gave {specs}, the worker {wanted}"
        fewest = min(map(kv_bytes_of, range(size)))
        available = bench.executor.available_kv_bytes()
        assert available == fewest, f"available_kv_bytes is {available}; the smallest has {fewest}"
        bench.executor.initialize_kv_cache(KV_CONFIG)
        for worker in bench.desk.workers:
            assert worker.kv_config == KV_CONFIG, (
                f"rank {worker.context.rank} got the cache shape {worker.kv_config}"
            )

    @requires(ExecutorCapability.PIPELINE_PARALLEL)
    def test_every_stage_tells_its_layers(self, ours: MakeBench) -> None:
        """Requires pipeline_parallel, and workers that are made with create_worker.
        Does: asks for the layers of two pipeline stages.
        Must: give those of one rank of each stage, in the order of the stages.
        """
        bench = ours(ExecutorCapability.PIPELINE_PARALLEL)
        bench.executor.start()
        specs = bench.executor.kv_layer_specs()
        wanted = [*layers_of(0), *layers_of(1)]
        assert specs == wanted, f"kv_layer_specs gave {specs}; the stages have {wanted}"


_ORDER = (
    "construct",
    "init_device",
    "load_model",
    "kv_layer_specs",
    "available_kv_bytes",
    "initialize_kv_cache",
    "execute_model",
    "sample_tokens",
)
_NEEDED = ("init_device", "load_model", "initialize_kv_cache", "execute_model", "sample_tokens")
"""Of every rank; the others may be asked of some."""
