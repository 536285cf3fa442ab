"""What the parts of the suite of executors share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from framework.conformance.base import NOT_DECLARED, Conformance
from framework.conformance.subject import Subject
from framework.conformance.worlds.executors import ExecutorBench, makes_workers_here
from hookspecs.contracts.executor import ExecutorCapability

__all__ = ["STEPS", "TOO_LATE_S", "UNMARKED", "ExecutorPart", "MakeBench", "error_of", "is_fault"]

MakeBench = Callable[..., ExecutorBench]
STEPS = 4
UNMARKED = ("no_such_command", "unmarked", "load_model", "shutdown", "device", "__init__", "")
"""Names that are no commands of a worker, though some are its attributes."""
TOO_LATE_S = 0.05
"""Seconds that a command is given which does not answer by itself."""


class ExecutorPart(Conformance):
    """An executor of workers that do as they are told."""

    kind = "executor"

    @pytest.fixture
    def make(self, subject: Subject) -> Iterator[MakeBench]:
        """Makes executors that are not started; they are shut down after the test."""
        made: list[ExecutorBench] = []

        def make(capability: ExecutorCapability | None = None) -> ExecutorBench:
            made.append(ExecutorBench(subject, capability))
            return made[-1]

        yield make
        for bench in made:
            bench.close()

    @pytest.fixture
    def ours(self, subject: Subject, make: MakeBench) -> MakeBench:
        """The same, for a test of workers that the executor makes with `create_worker`."""
        if not makes_workers_here(subject):
            pytest.skip(
                f"{NOT_DECLARED}workers in this process: start() did not call create_worker"
            )
        return make


def error_of(call: Callable[[], Any]) -> Exception | None:
    """What it raises; a failed check of the kit comes out."""
    try:
        call()
    except AssertionError:
        raise
    except Exception as error:
        return error
    return None


def is_fault(raised: BaseException, fault: Exception) -> bool:
    """Whether it is the worker's own error, or was raised because of it."""
    cause: BaseException | None = raised
    while cause is not None:
        if type(cause) is type(fault) and cause.args == fault.args:
            return True
        cause = cause.__cause__
    return False
