"""Suite of tracers, alone and in a real engine."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar, cast

import msgspec
import pytest

from framework.conformance.base import Conformance
from framework.conformance.subject import Subject
from framework.conformance.worlds.descriptors import open_descriptors
from framework.conformance.worlds.detached import used_in_an_engine
from framework.conformance.worlds.growth import bytes_kept
from framework.conformance.worlds.leftovers import Leftovers
from framework.conformance.worlds.patience import within
from framework.conformance.worlds.statistics import TRACE_HEADERS, finished_request, odd_requests
from hookspecs.contracts.stats import FinishedRequest, Tracer

__all__ = ["TracerConformance"]

T = TypeVar("T")
New = Callable[..., Tracer]

REQUESTS = 100
PROMPT_S = 3.0
"""Seconds for a hundred requests: forty times what writing each to a file takes."""
CLOSE_S = 15.0
"""Seconds for the last call, which may wait for a disk or a collector."""
BYTES = 10
"""Kept of each request; less than any trace of one takes."""


class TracerConformance(Conformance):
    """Tracers take what ended, and neither change it nor hold it up."""

    kind = "tracer"

    @pytest.fixture
    def new(self, subject: Subject) -> New:
        """Makes tracers; `process_index` is of the front-end process."""
        plugins = subject.manager()

        def make(process_index: int = 0) -> Tracer:
            made = plugins.create(
                subject.kind.name, subject.provider, model="scripted", process_index=process_index
            )
            return cast("Tracer", made)

        return make

    # What it is told

    def test_every_ending_is_taken(self, new: New) -> None:
        """Requires nothing.
        Does: tells it of outputs that ended for each reason, of one and of several outputs, with
        values at the ends of their ranges.
        Must: not raise; one that raises is detached, and traces nothing more until the end.
        """

        def work(tracer: Tracer) -> None:
            several = [finished_request(9, index=index, n=3) for index in (2, 0, 1)]
            for request in [*map(finished_request, range(40)), *several, *odd_requests()]:
                _tell(tracer, request)

        _with_one(new, work)

    def test_any_trace_context_is_taken(self, new: New) -> None:
        """Requires nothing.
        Does: tells it of requests whose callers sent a trace context, none, and text that is
        none.
        Must: not raise; a caller may send what it wants.
        """

        def work(tracer: Tracer) -> None:
            for number in range(len(TRACE_HEADERS)):
                _tell(tracer, finished_request(number))

        _with_one(new, work)

    def test_requests_are_not_changed(self, new: New) -> None:
        """Requires nothing.
        Does: compares what it is told before and after.
        Must: leave it as it is, with what is in it; the next tracer gets the same object.
        """

        def work(tracer: Tracer) -> None:
            for request in [*map(finished_request, range(20)), *odd_requests()]:
                before = msgspec.msgpack.encode(request)
                tracer.on_request_finished(request)
                assert msgspec.msgpack.encode(request) == before, (
                    f"the tracer changed what it was given to {request}"
                )

        _with_one(new, work)

    # What it costs

    def test_calls_return_promptly(self, new: New) -> None:
        """Requires nothing.
        Does: tells it of a hundred requests.
        Must: be through within seconds: outputs wait for it. What takes long belongs into a
        thread.
        """
        tracer = new()
        within(
            partial(_tell_all, tracer, 0, REQUESTS),
            f"a tracer, told of {REQUESTS} requests,",
            PROMPT_S,
        )
        tracer.close()

    def test_memory_does_not_grow(self, new: New) -> None:
        """Requires nothing.
        Does: measures the memory that thousands of requests leave behind.
        Must: keep nothing of each: an engine serves millions. A bounded number of the last ones
        may be kept.
        """
        kept = _with_one(new, lambda tracer: bytes_kept(partial(_tell_all, tracer), BYTES))
        assert kept < BYTES, f"it keeps {kept:.0f} bytes of each request that ended"

    # Life cycle

    def test_close_ends_it(self, new: New) -> None:
        """Requires nothing.
        Does: closes it before it was told of anything and after requests, several times over.
        Must: return within seconds, and leave no thread, no process and no open file.
        """
        leftovers = Leftovers()
        # While they are alive, no garbage collection closes what close did not.
        alive: list[Tracer] = []

        def live(number: int) -> None:
            tracer = new(process_index=number % 2)
            alive.append(tracer)
            _tell_all(tracer, 0, 20 * (number % 2))
            tracer.close()

        within(partial(live, 0), "close before anything was traced", CLOSE_S)
        within(partial(live, 1), "close after requests", CLOSE_S)
        before = open_descriptors()
        for number in range(6):
            within(partial(live, number), "close", CLOSE_S)
        assert open_descriptors() <= before + 1, (
            f"{open_descriptors() - before} files are open after six more were closed"
        )
        left = leftovers.names()
        assert not left, f"close leaves {', '.join(left)}"

    def test_two_live_side_by_side(self, new: New) -> None:
        """Requires nothing.
        Does: makes two, closes one, and goes on with the other, as two engines in one process do.
        Must: share nothing that ends with one of them.
        """

        def work(second: Tracer) -> None:
            first = new(process_index=1)
            _tell_all(first, 0, 3)
            _tell_all(second, 0, 3)
            first.close()
            _tell_all(second, 3, 20)

        _with_one(new, work)

    # In an engine

    def test_an_engine_keeps_it(self, subject: Subject) -> None:
        """Requires nothing.
        Does: generates in a real engine with aborts, failures and several outputs of one prompt;
        once more without the tracer.
        Must: not be detached, and change no token.
        """
        with_it, failures = used_in_an_engine(subject)
        said = "; ".join(f"{each.plugin}: {each.error}" for each in failures)
        assert not failures, f"the kernel detached: {said}"
        without, _ = used_in_an_engine(subject, stats={"tracers": []})
        assert with_it == without, "tokens change when the tracer is there"


def _with_one(new: New, work: Callable[[Tracer], T]) -> T:
    """Work with a new one in one thread, as in the kernel; it is closed whatever happens."""

    def run() -> T:
        tracer = new()
        try:
            return work(tracer)
        finally:
            tracer.close()

    return within(run, "a tracer", seconds=60)


def _tell(tracer: Tracer, request: FinishedRequest) -> None:
    try:
        tracer.on_request_finished(request)
    except Exception as error:
        raise AssertionError(f"on_request_finished raised for {request}") from error


def _tell_all(tracer: Tracer, first: int, count: int) -> None:
    for number in range(first, first + count):
        tracer.on_request_finished(finished_request(number))
