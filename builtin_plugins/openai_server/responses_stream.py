"""A streamed answer of `POST /v1/responses`, event by event."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, TypeVar

from builtin_plugins.openai_server.errors import ApiError
from builtin_plugins.openai_server.generation import Outputs
from builtin_plugins.openai_server.logprobs import TokenLogprob
from builtin_plugins.openai_server.responses_answer import (
    failed_response,
    finished_response,
    item_id,
    message_item,
    text_logprobs,
)
from builtin_plugins.openai_server.responses_events import (
    ItemAdded,
    ItemDone,
    PartAdded,
    PartDone,
    ResponseCompleted,
    ResponseCreated,
    ResponseFailed,
    ResponseIncomplete,
    ResponseInProgress,
    StreamEvent,
    TextAppended,
    TextDone,
)
from builtin_plugins.openai_server.responses_types import (
    OutputMessage,
    OutputText,
    ResponseObject,
)
from builtin_plugins.openai_server.sse import Event
from hookspecs.contracts.frontend import EngineClient
from hookspecs.types.outputs import RequestOutput

__all__ = ["ResponseStream"]

E = TypeVar("E", bound=StreamEvent)


class ResponseStream:
    """Turns the outputs of one request into events; see `responses_events` for their order.

    `response`: without output, in progress."""

    def __init__(self, engine: EngineClient, response: ResponseObject) -> None:
        self._engine = engine
        self._response = response
        self._part = {"item_id": item_id(response)}
        self._num_events = 0
        self._num_tokens = 0
        self._texts: list[str] = []
        self._logprobs: list[TokenLogprob] = []

    async def events(self, outputs: Outputs) -> AsyncGenerator[Event, None]:
        """All events of a request whose outputs hold what is new (OutputKind.DELTA). Nothing
        comes before the first output, so that a request which is refused has no events.
        `outputs` is closed at the end."""
        async with aclosing(outputs):
            async for _, output in outputs:
                for event in self._news(output):
                    yield event

    def failed(self, error: ApiError) -> Event:
        """The last event of a stream that fails."""
        response = failed_response(self._response, error, self._text())
        return self._event(ResponseFailed, response=response)

    def _news(self, output: RequestOutput) -> list[Event]:
        events = [] if self._num_events else self._opening()
        (part,) = output.outputs
        logprobs = text_logprobs(self._engine, part, self._response.top_logprobs)
        self._num_tokens += len(part.token_ids)
        self._texts.append(part.text)
        self._logprobs += logprobs
        if part.text or logprobs:
            members = {**self._part, "delta": part.text, "logprobs": logprobs}
            events.append(self._event(TextAppended, **members))
        return events + self._closing(output) if output.finished else events

    def _opening(self) -> list[Event]:
        item = OutputMessage(id=item_id(self._response), status="in_progress", content=[])
        return [
            self._event(ResponseCreated, response=self._response),
            self._event(ResponseInProgress, response=self._response),
            self._event(ItemAdded, item=item),
            self._event(PartAdded, **self._part, part=OutputText()),
        ]

    def _closing(self, output: RequestOutput) -> list[Event]:
        text = self._text()
        item = message_item(self._response, output.outputs[0], text)
        response = finished_response(self._response, output, item, self._num_tokens)
        last = ResponseCompleted if response.status == "completed" else ResponseIncomplete
        return [
            self._event(TextDone, **self._part, text=text.text, logprobs=text.logprobs),
            self._event(PartDone, **self._part, part=text),
            self._event(ItemDone, item=item),
            self._event(last, response=response),
        ]

    def _text(self) -> OutputText:
        return OutputText(text="".join(self._texts), logprobs=self._logprobs)

    def _event(self, kind: type[E], **members: Any) -> Event:
        event = kind(sequence_number=self._num_events, **members)
        self._num_events += 1
        return str(kind.__struct_config__.tag), event
