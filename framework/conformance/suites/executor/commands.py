"""Commands to all workers."""

from __future__ import annotations

from framework.conformance.suites.executor.base import (
    TOO_LATE_S,
    UNMARKED,
    ExecutorPart,
    MakeBench,
    error_of,
)
from framework.conformance.worlds.told_worker import WorkerFault

__all__ = ["Commands"]


class Commands(ExecutorPart):
    """Answers come in rank order, in time, from what is marked as a command."""

    def test_commands_answer_in_rank_order(self, ours: MakeBench) -> None:
        """Requires workers that are made with create_worker.
        Does: runs a command on all workers several times.
        Must: run it once on each, with the arguments as given, and list the results by rank.
        """
        bench = ours()
        bench.start()
        for value in range(3):
            results = bench.executor.collective_rpc("answer", (value,))
            wanted = [[rank, value] for rank in range(bench.world_size)]
            assert results == wanted, f"answer({value}) gave {results}; by rank they are {wanted}"
        for rank in range(bench.world_size):
            count = bench.desk.methods(rank).count("answer")
            assert count == 3, f"a command given 3 times ran {count} times on rank {rank}"

    def test_only_commands_can_be_called(self, make: MakeBench) -> None:
        """Requires nothing.
        Does: calls names that are no commands, among them methods of workers.
        Must: raise KeyError, and call nothing that is not marked as a command.
        """
        bench = make()
        bench.start()
        before = len(bench.desk.calls)
        for name in UNMARKED:
            raised = error_of(lambda name=name: bench.executor.collective_rpc(name))  # type: ignore[misc]
            assert isinstance(raised, KeyError), (
                f"collective_rpc({name!r}) gave {raised!r}; for what is no command it raises "
                "KeyError"
            )
        called = [call.method for call in bench.desk.calls[before:]]
        assert not called, f"names that are no commands called {called} on a worker"

    def test_a_failing_command_names_its_rank(self, ours: MakeBench) -> None:
        """Requires workers that are made with create_worker.
        Does: lets a command fail on the last rank, with an error of its own and with KeyError.
        Must: raise the worker's own exception with a note that holds its rank.
        """
        bench = ours()
        bench.start()
        rank = bench.world_size - 1
        for fault in (WorkerFault("the command fails"), KeyError("of the worker")):
            bench.desk.faults["answer", rank] = fault
            raised = error_of(lambda: bench.executor.collective_rpc("answer", (1,)))
            assert raised is not None, "a command returned though a worker raised"
            assert type(raised) is type(fault) and raised.args == fault.args, (
                f"the command raised {raised!r}; the worker raised {fault!r}"
            )
            notes = getattr(raised, "__notes__", [])
            assert any(str(rank) in note for note in notes), (
                f"no note of the error names rank {rank}; its notes are {notes}"
            )
        bench.desk.faults = {}
        answer = bench.executor.collective_rpc("answer", (2,))[-1]
        assert answer == [rank, 2], f"after a failed command the next one answered {answer}"

    def test_a_command_has_a_time_limit(self, ours: MakeBench) -> None:
        """Requires workers that are made with create_worker.
        Does: gives a command that does not answer some hundredths of a second.
        Must: raise TimeoutError, unless it calls workers in its own thread, which can not be
        interrupted; and answer the next command.
        """
        bench = ours()
        bench.start()
        gate = bench.desk.hold("answer")
        raised = error_of(lambda: bench.executor.collective_rpc("answer", (1,), timeout=TOO_LATE_S))
        in_time = not gate.forced
        bench.desk.release()
        assert gate.in_own_thread or (in_time and isinstance(raised, TimeoutError)), (
            f"a command with a timeout of {TOO_LATE_S} s that did not answer ended with {raised!r}"
        )
        results = bench.executor.collective_rpc("answer", (2,))
        wanted = [[rank, 2] for rank in range(bench.world_size)]
        assert results == wanted, f"after a command that was too late the next gave {results}"
