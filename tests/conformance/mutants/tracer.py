"""Broken tracers."""

from __future__ import annotations

import os
import threading
import time
from typing import ClassVar

from hookspecs.contracts.stats import FinishedRequest, Tracer, TracerContext
from hookspecs.types.request import FinishReason
from tests.conformance.mutants.mutant import Mutant, providing

__all__ = ["MUTANTS"]


class Quiet(Tracer):
    """A right one, which traces nothing."""

    def on_request_finished(self, request: FinishedRequest) -> None:
        return


class KnowsTwoReasons(Quiet):
    def on_request_finished(self, request: FinishedRequest) -> None:
        {FinishReason.STOP: 0, FinishReason.LENGTH: 1}[request.stats.finish_reason]


class DividesByTokens(Quiet):
    def on_request_finished(self, request: FinishedRequest) -> None:
        _ = request.stats.decode_time / request.stats.num_prompt_tokens


class SplitsAnyHeader(Quiet):
    def on_request_finished(self, request: FinishedRequest) -> None:
        _version, _trace, _parent, flags = request.trace_headers.get(
            "traceparent", "00-0-0-00"
        ).split("-")
        int(flags, 16)


class AddsItsOwnHeader(Quiet):
    """Changes what the next tracer gets."""

    def on_request_finished(self, request: FinishedRequest) -> None:
        request.trace_headers["traceparent"] = "00-1-1-01"


class SendsAtOnce(Quiet):
    """Blocks in an observer."""

    def on_request_finished(self, request: FinishedRequest) -> None:
        time.sleep(0.1)


class KeepsSpans(Quiet):
    """Sends them at the end."""

    def __init__(self, context: TracerContext) -> None:
        super().__init__(context)
        self._spans: list[tuple[str, int]] = []

    def on_request_finished(self, request: FinishedRequest) -> None:
        self._spans.append((request.request_id, request.ended_at_ns))


class LeavesItsThread(Quiet):
    def __init__(self, context: TracerContext) -> None:
        super().__init__(context)
        threading.Thread(target=threading.Event().wait, args=(6.0,), daemon=True).start()


class LeavesItsFile(Quiet):
    _open: ClassVar[list[int]] = []

    def __init__(self, context: TracerContext) -> None:
        super().__init__(context)
        self._open.append(os.open(os.devnull, os.O_WRONLY))


class LetsGarbageCloseIt(Quiet):
    """Its file is closed when nobody holds it any more."""

    def __init__(self, context: TracerContext) -> None:
        super().__init__(context)
        self._file = open(os.devnull, "wb")  # noqa: SIM115


class ClosesForAll(Quiet):
    """Leaks between engines: its sink is the class's."""

    _closed: ClassVar[bool] = False

    def __init__(self, context: TracerContext) -> None:
        super().__init__(context)
        type(self)._closed = False

    def on_request_finished(self, request: FinishedRequest) -> None:
        if self._closed:
            raise RuntimeError("closed")

    def close(self) -> None:
        type(self)._closed = True


class WantsOneOutput(Quiet):
    """Raises for the second output of a request that it knows."""

    def __init__(self, context: TracerContext) -> None:
        super().__init__(context)
        self._last = ""

    def on_request_finished(self, request: FinishedRequest) -> None:
        if request.request_id == self._last and request.index:
            raise RuntimeError("it ended before")
        self._last = request.request_id


class FailsAtTheEnd(Quiet):
    def close(self) -> None:
        raise OSError("nobody takes the spans")


def _mutant(fault: str, part: type[Tracer], *caught_by: str) -> Mutant:
    return Mutant("tracer", fault, providing("tracer", part), caught_by)


MUTANTS = [
    _mutant("knows two reasons", KnowsTwoReasons, "test_every_ending_is_taken"),
    _mutant("divides by no tokens", DividesByTokens, "test_every_ending_is_taken"),
    _mutant("takes any header for a trace", SplitsAnyHeader, "test_any_trace_context_is_taken"),
    _mutant("changes headers", AddsItsOwnHeader, "test_requests_are_not_changed"),
    _mutant("blocks in an observer", SendsAtOnce, "test_calls_return_promptly"),
    _mutant("keeps spans", KeepsSpans, "test_memory_does_not_grow"),
    _mutant("leaves its thread", LeavesItsThread, "test_close_ends_it"),
    _mutant("leaves its file open", LeavesItsFile, "test_close_ends_it"),
    _mutant("leaves its file to garbage", LetsGarbageCloseIt, "test_close_ends_it"),
    _mutant("closes the sink of another", ClosesForAll, "test_two_live_side_by_side"),
    _mutant("wants one output of a request", WantsOneOutput, "test_an_engine_keeps_it"),
    _mutant("raises at the end", FailsAtTheEnd, "test_an_engine_keeps_it", "test_close_ends_it"),
]
