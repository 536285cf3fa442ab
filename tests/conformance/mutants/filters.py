"""Broken filters."""

from __future__ import annotations

import threading
from typing import Any

import msgspec

from hookspecs import EngineHooks, PluginInfo, hookimpl
from hookspecs.events import ConfigResolved, OutputReady, RequestReceived
from hookspecs.types.outputs import RequestOutput
from tests.conformance.mutants.mutant import Mutant

__all__ = ["MUTANTS"]


class _Filter(EngineHooks):
    PLUGIN = PluginInfo(name="mutant", api=">=1.0,<2")


class DoublesTheBudget(_Filter):
    """Changes the configuration each time, not to what it wants."""

    @hookimpl
    def adjust_config(self, event: ConfigResolved) -> ConfigResolved | None:
        scheduler = event.config.scheduler
        doubled = msgspec.structs.replace(
            scheduler, max_num_batched_tokens=2 * scheduler.max_num_batched_tokens
        )
        return ConfigResolved(config=msgspec.structs.replace(event.config, scheduler=doubled))


class ForgetsPooling(_Filter):
    """Makes a new request of the fields that it knows."""

    @hookimpl
    def adjust_request(self, event: RequestReceived) -> RequestReceived | None:
        return RequestReceived(
            request_id=event.request_id,
            prompt_token_ids=event.prompt_token_ids,
            params=event.params,
        )


class RaisesForStrangers(_Filter):
    """Raises where it should reject."""

    @hookimpl
    def adjust_request(self, event: RequestReceived) -> RequestReceived | None:
        if event.tenant not in ("red", "green"):
            raise PermissionError(event.tenant)
        return None


class SharesLabels(_Filter):
    """Leaks between tenants: all requests get one dict of labels."""

    labels: dict[str, str] = {}  # noqa: RUF012

    @hookimpl
    def adjust_request(self, event: RequestReceived) -> RequestReceived | None:
        self.labels.update(event.labels)
        return msgspec.structs.replace(event, labels=self.labels)


class EndsOutputs(_Filter):
    """Says that an output has finished when it is long enough."""

    @hookimpl
    def adjust_output(self, event: OutputReady) -> OutputReady | None:
        output: RequestOutput = event.output
        if len(output.outputs[0].token_ids) > 4:
            return OutputReady(output=msgspec.structs.replace(output, finished=True))
        return None


class ReordersOutputs(_Filter):
    @hookimpl
    def adjust_output(self, event: OutputReady) -> OutputReady | None:
        event.output.outputs.reverse()
        return None


class AsksSomebody(_Filter):
    """Waits for an answer that does not come."""

    @hookimpl
    def adjust_request(self, event: RequestReceived) -> RequestReceived | None:
        threading.Event().wait()
        return None


class LosesOutputs(_Filter):
    """Fails a request whose output has no text, though tokens alone were asked for."""

    @hookimpl
    def adjust_output(self, event: OutputReady) -> OutputReady | None:
        if event.output.finished and len(event.output.outputs[0].text.split()) == 0:
            raise ValueError("no text")
        return None


def _mutant(fault: str, plugin: Any, *caught_by: str) -> Mutant:
    return Mutant("filters", fault, plugin, caught_by)


MUTANTS = [
    _mutant(
        "never done with the configuration",
        DoublesTheBudget(),
        "test_the_configuration_stays_valid",
    ),
    _mutant("drops what it does not know", ForgetsPooling(), "test_requests_are_passed_or_refused"),
    _mutant("raises to refuse", RaisesForStrangers(), "test_requests_are_passed_or_refused"),
    _mutant("leaks between tenants", SharesLabels(), "test_requests_share_nothing"),
    _mutant("ends outputs early", EndsOutputs(), "test_outputs_keep_their_frame"),
    _mutant("reorders outputs", ReordersOutputs(), "test_outputs_keep_their_frame"),
    _mutant("blocks", AsksSomebody(), "test_filters_return_promptly"),
    _mutant("fails outputs without text", LosesOutputs(), "test_every_request_ends_once"),
]
