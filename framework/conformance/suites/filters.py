"""Suite of plugins that implement filter hooks (`adjust_*`)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from framework.conformance.base import Conformance
from framework.conformance.subject import PluginSubject
from framework.conformance.worlds.engines import greedy, prompts_of
from framework.conformance.worlds.patience import within
from framework.conformance.worlds.traffic import outputs, requests
from framework.plugins.calls import Calls
from hookspecs.errors import FrameworkError, InvalidRequestError, RequestFailedError
from hookspecs.events import ConfigResolved, OutputReady, RequestReceived
from hookspecs.info import ProcessRole

__all__ = ["FiltersConformance"]

PROMPT_S = 3.0
"""Seconds for all requests and outputs of a test."""


class FiltersConformance(Conformance):
    """Filters change a value on its way, or leave it."""

    kind = "filters"

    def test_the_configuration_stays_valid(self, subject: PluginSubject) -> None:
        """Requires nothing.
        Does: filters the configuration twice, the second time what came of the first.
        Must: give a valid one that loads the same plugins, and no longer change it when its
        wishes are met.
        """
        calls = _calls(subject)
        once = calls.adjust_config(ConfigResolved(config=subject.config()))
        twice = calls.adjust_config(once)
        assert once == twice, "filtering the filtered configuration changes it again"

    def test_requests_are_passed_or_refused(self, subject: PluginSubject, seed: int) -> None:
        """Requires nothing.
        Does: filters requests of all sorts: long and short, of several tenants, for vectors.
        Must: return a RequestReceived of the same request, a RequestRejected, or None; raising
        fails the request, which is for faults alone.
        """
        calls = _calls(subject)
        for event in requests(seed):
            _passes(partial(calls.adjust_request, event), event)

    def test_requests_share_nothing(self, subject: PluginSubject, seed: int) -> None:
        """Requires nothing.
        Does: filters two requests of different tenants, and looks for parts that both results
        hold.
        Must: give each its own prompt, parameters and labels: what one request changes, another
        would see.
        """
        calls = _calls(subject)
        parts: dict[int, str] = {}
        kept: list[Any] = []
        for event in requests(seed):
            result = calls.adjust_request(event)
            if not isinstance(result, RequestReceived):
                continue
            kept.append(result)
            for name in ("prompt_token_ids", "params", "labels"):
                part = getattr(result, name)
                owner = parts.setdefault(id(part), result.request_id)
                assert owner == result.request_id, (
                    f"the requests {owner} and {result.request_id} share one {name}"
                )

    def test_outputs_keep_their_frame(self, subject: PluginSubject, seed: int) -> None:
        """Requires nothing.
        Does: filters outputs of all sorts: parts of a stream, whole ones, several at once,
        failed and aborted ones.
        Must: keep request id, `finished`, and the indexes and finish reasons, on which whoever
        waits relies.
        """
        calls = _calls(subject)
        for output in outputs(seed):
            event = OutputReady(output=output)
            _passes(partial(calls.adjust_output, event), event)

    def test_filters_return_promptly(self, subject: PluginSubject, seed: int) -> None:
        """Requires nothing.
        Does: filters some dozens of requests and outputs.
        Must: be done within seconds; all requests of the process wait meanwhile.
        """
        calls = _calls(subject)

        def work() -> None:
            for event in requests(seed):
                calls.adjust_request(event)
            for output in outputs(seed):
                calls.adjust_output(OutputReady(output=output))

        within(work, "filtering requests and outputs", PROMPT_S)

    def test_every_request_ends_once(self, subject: PluginSubject, seed: int) -> None:
        """Requires nothing.
        Does: generates in a real engine, one request at a time and all together.
        Must: let every request end once, with tokens or refused with a reason, and fail none.
        """
        prompts = prompts_of(seed)
        with subject.launch() as engine:
            ended = 0
            for prompt in prompts:
                try:
                    (output,) = engine.generate([prompt], greedy(3))
                except FrameworkError as error:
                    assert isinstance(error, InvalidRequestError), f"a request fails: {error!r}"
                    ended += 1
                else:
                    reason = output.outputs[0].finish_reason
                    assert reason != "error", f"a request fails: {output.outputs[0].error}"
                    ended += output.finished
            assert ended == len(prompts), f"{ended} of {len(prompts)} requests ended"
            assert engine.engine.num_requests == 0, "requests are left in the engine"


def _passes(call: Callable[[], object], event: msgspec.Struct) -> None:
    try:
        call()
    except RequestFailedError as error:
        raise AssertionError(f"{error}; it was given {event}") from error


def _calls(subject: PluginSubject) -> Calls:
    methods = list(subject.loaded.hooks.values())
    return Calls(methods, role=ProcessRole.FRONTEND, strict=True)
