"""`AsyncLLM`: the asynchronous front object; implements the `EngineClient` that front ends get.

Front-end process, one event loop. One task receives the outputs of all requests; each request's
consumer takes its own from a `Collector`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping, Sequence
from contextlib import aclosing
from itertools import zip_longest
from types import TracebackType
from typing import Any, Final, Self, TypeAlias

from framework.client.asynchronous import AsyncClient
from framework.frontend.admission import Admission
from framework.frontend.checks import number
from framework.frontend.collector import Collector
from framework.frontend.control import AsyncControl
from framework.frontend.input_processor import InputProcessor
from framework.frontend.open_requests import OpenRequest, OpenRequests
from framework.frontend.output_batch import ProcessedOutputs
from framework.frontend.output_processor import OutputProcessor
from framework.frontend.pooling import pooling_output
from framework.frontend.processed_request import ProcessedRequest
from framework.frontend.prompts import Prompt
from framework.frontend.service_info import PluginView, service_info
from framework.frontend.stat_loggers import StatLoggerManager
from framework.frontend.streaming_input import PieceReader, check_session, run_session
from framework.frontend.tracers import TracerManager
from framework.frontend.validation import validate_metadata
from framework.plugins.failure import describe
from hookspecs.contracts.frontend import ServiceInfo
from hookspecs.contracts.stats import Exposition
from hookspecs.errors import (
    EngineDeadError,
    EngineGenerateError,
    EngineUnavailableError,
    FrameworkError,
)
from hookspecs.types.commands import CommandArguments
from hookspecs.types.control import EngineHealth
from hookspecs.types.outputs import EngineCoreOutputs, RequestOutput
from hookspecs.types.pooling import PoolingOutput, PoolingParams
from hookspecs.types.request import FinishReason
from hookspecs.types.sampling import OutputKind, SamplingParams
from hookspecs.types.stats import IterationStats

__all__ = ["AsyncLLM"]

logger = logging.getLogger(__name__)

AsyncPrompt: TypeAlias = Prompt | AsyncIterator[Prompt]
"""A prompt, or an iterator of its pieces (see `framework.frontend.streaming_input`)."""
_LONG_TEXT: Final = 4096
"""Characters from which a text is tokenised in a thread, so that others are not held up."""
_OUTPUTS_AT_ONCE: Final = 256
"""Outputs that are made before other tasks get their turn."""


class AsyncLLM(AsyncControl):
    """Requests in, outputs out, any number at once. Use it in the event loop that started it:
    in another, methods that need the engine raise FrameworkError."""

    def __init__(
        self,
        client: AsyncClient,
        input_processor: InputProcessor,
        output_processor: OutputProcessor,
        stat_loggers: StatLoggerManager,
        tracers: TracerManager,
        plugins: PluginView,
    ) -> None:
        self.info: ServiceInfo = service_info(input_processor)
        """Facts of what is served."""
        self.input_processor = input_processor
        self._client = client
        self._outputs = output_processor
        self._stat_loggers = stat_loggers
        self._tracers = tracers
        self._plugins = plugins
        self._admission = Admission(
            input_processor.config,
            num_engines=client.num_engines,
            rejected=stat_loggers.record_rejection,
        )
        self._requests = OpenRequests()
        self._loop: asyncio.AbstractEventLoop | None = None
        """Where it was started."""
        self._tasks: list[asyncio.Task[None]] = []
        self._failure: EngineDeadError | None = None
        self._has_failed = asyncio.Event()

    async def start(self) -> None:
        """Begin to receive outputs, in the running event loop. Does nothing the second time."""
        if self._loop is not None:
            self._check_usable()
            return
        self._loop = asyncio.get_running_loop()
        self._client.start()
        receiving = asyncio.create_task(self._receive(), name="outputs")
        reporting = asyncio.create_task(self._report(), name="statistics")
        self._tasks = [receiving, reporting]
        receiving.add_done_callback(self._receiving_ended)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.shutdown()

    # Requests

    def check_admission(self, count: int = 1) -> None:
        """See `EngineClient.check_admission`."""
        self._admit(count)

    async def generate(
        self,
        prompt: AsyncPrompt,
        params: SamplingParams | None = None,
        *,
        request_id: str,
        priority: int = 0,
        tenant: str = "",
        deadline: float | None = None,
        cache_salt: str = "",
        labels: dict[str, str] | None = None,
        trace_headers: dict[str, str] | None = None,
    ) -> AsyncGenerator[RequestOutput, None]:
        """See `EngineClient.generate`. Closing the iterator, or cancelling the task that waits
        in it, aborts the request.

        A prompt may also be an asynchronous iterator of prompts: each is answered before the
        next is asked for, and what was said before stays in its context.
        """
        options = {
            "priority": priority,
            "tenant": tenant,
            "deadline": deadline,
            "cache_salt": cache_salt,
            "labels": labels,
            "trace_headers": trace_headers,
        }
        if params is None:
            params = self.default_params()
        with self._opened(request_id, options) as request:
            if not isinstance(prompt, AsyncIterator):
                processed = await self._processed(request, prompt, params, options)
                with self._submitted(request, processed) as collector:
                    while not collector.finished:
                        yield await collector.get()
                return
            async with aclosing(self._session(request, prompt, params, options)) as outputs:
                async for output in outputs:
                    yield output

    async def embed(
        self,
        prompt: Prompt,
        params: PoolingParams | None = None,
        *,
        request_id: str,
        priority: int = 0,
        tenant: str = "",
        cache_salt: str = "",
        labels: dict[str, str] | None = None,
        trace_headers: dict[str, str] | None = None,
    ) -> PoolingOutput:
        """See `EngineClient.embed`."""
        options = {
            "priority": priority,
            "tenant": tenant,
            "cache_salt": cache_salt,
            "labels": labels,
            "trace_headers": trace_headers,
        }
        with self._opened(request_id, {**options, "deadline": None}) as request:
            arrival = time.monotonic()
            processed = self.input_processor.process_pooling(
                request_id,
                await self._tokenized(prompt),
                params,
                arrival_time=arrival,
                **options,  # type: ignore[arg-type]
            )
            with self._submitted(request, processed) as collector:
                return pooling_output(await collector.get())

    async def abort(self, request_id: str) -> None:
        """See `EngineClient.abort`. Its consumer gets a last output with that reason."""
        self._check_loop()
        self._abort([request_id])

    # Text

    def default_params(self) -> SamplingParams:
        """See `EngineClient.default_params`."""
        return self.input_processor.default_params()

    async def chat_prompt(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool = True,
        tools: Sequence[Mapping[str, Any]] = (),
        template_arguments: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """See `EngineClient.chat_prompt`. Templates are programs, so they run in a thread."""
        return await asyncio.to_thread(
            self.input_processor.chat_prompt,
            [dict(each) if isinstance(each, Mapping) else each for each in messages],
            add_generation_prompt=add_generation_prompt,
            tools=tools,
            template_arguments=template_arguments,
        )

    async def tokenize(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """See `EngineClient.tokenize`. InvalidRequestError for a text beyond the limits."""
        return await asyncio.to_thread(
            self.input_processor.tokenize, text, add_special_tokens=add_special_tokens
        )

    async def detokenize(self, token_ids: Sequence[int]) -> str:
        """See `EngineClient.detokenize`."""
        return await asyncio.to_thread(self.input_processor.detokenize, list(token_ids))

    def token_bytes(self, token_id: int) -> bytes:
        """See `EngineClient.token_bytes`."""
        tokenizer = self.input_processor.tokenizer
        return b"" if tokenizer is None else tokenizer.token_bytes(token_id)

    # Control

    async def run_command(self, arguments: CommandArguments) -> Any:
        """Run a control command; its typed result."""
        self._check_usable()
        return await self._client.command(arguments)

    async def check_health(self) -> None:
        """EngineDeadError when an engine core is gone, or the front end itself has failed."""
        self._check_usable()

    async def failed(self) -> BaseException:
        """Returns, with the reason, when the engine is dead or was shut down."""
        await self._has_failed.wait()
        assert self._failure is not None
        return self._failure

    def health(self) -> EngineHealth:
        """See `EngineClient.health`."""
        if self._failure is not None:
            return EngineHealth(live=False, ready=False, reason=str(self._failure))
        health = self._client.health()
        if health.ready and self._admission.draining:
            return EngineHealth(live=True, ready=False, reason="the server is being stopped")
        return health

    def plugins(self) -> list[dict[str, Any]]:
        """See `EngineClient.plugins`."""
        return self._plugins(self._client.plugin_calls())

    def expositions(self) -> list[Exposition]:
        """See `EngineClient.expositions`."""
        return self._stat_loggers.expositions()

    @property
    def num_requests(self) -> int:
        """Requests that have not ended."""
        return len(self._requests)

    async def drain(self, timeout_s: float) -> None:
        """Refuse new requests and let the others end; those that have not after `timeout_s`
        are aborted. A prompt that comes in pieces may go on until then. Safe to call twice."""
        number("timeout_s", timeout_s, 0.0, float("inf"))
        self._check_loop()
        self._admission.draining = True
        await self._requests.wait_idle(timeout_s)
        self._abort(self._requests.ids)

    async def shutdown(self) -> None:
        """End everything: open requests get EngineDeadError. Safe to call twice, before start,
        and after the event loop that it was used in is closed; in another, while that one is
        open, it raises FrameworkError and changes nothing."""
        self._check_may_end()
        tasks, self._tasks = self._tasks, []
        if self._loop is None or self._loop.is_closed():
            tasks = []
        for task in tasks:
            task.cancel()
        try:
            await asyncio.gather(*tasks, return_exceptions=True)
        finally:
            self._fail_all(EngineDeadError("the engine was shut down"))
            self._stat_loggers.close()
            self._tracers.close()
            self._client.close()

    # Behind the requests

    @contextlib.contextmanager
    def _opened(self, request_id: str, options: dict[str, Any]) -> Iterator[OpenRequest]:
        """Its id is in use until its last output, or until its consumer leaves."""
        validate_metadata(request_id, **options)
        self._admit(1)
        request = self._requests.open(request_id)
        try:
            yield request
        finally:
            self._requests.close(request)

    def _admit(self, count: int, *, draining: bool = False) -> None:
        """`draining`: also while requests are only let end."""
        self._check_usable()
        self._admission.check(
            self._client.num_unfinished, count, self._client.states, draining=draining
        )

    async def _processed(
        self,
        request: OpenRequest,
        prompt: Prompt,
        params: SamplingParams,
        options: dict[str, Any],
    ) -> ProcessedRequest:
        arrival = time.monotonic()
        return self.input_processor.process(
            request.request_id,
            await self._tokenized(prompt),
            params,
            arrival_time=arrival,
            **options,
        )

    async def _session(
        self,
        request: OpenRequest,
        pieces: AsyncIterator[Prompt],
        params: SamplingParams,
        options: dict[str, Any],
    ) -> AsyncGenerator[RequestOutput, None]:
        check_session(params)
        later = {**options, "deadline": None}  # the latest time to start

        async def tokenize(piece: Prompt, first: bool) -> list[int]:
            return await asyncio.to_thread(self.input_processor.piece_ids, piece, first=first)

        async def generate(ids: list[int], first: bool) -> AsyncGenerator[RequestOutput, None]:
            processed = await self._processed(request, ids, params, options if first else later)
            with self._submitted(request, processed) as collector:
                while not collector.finished:
                    yield await collector.get()

        request.pieces = PieceReader(pieces)
        outputs = run_session(
            request.pieces,
            request_id=request.request_id,
            tokenize=tokenize,
            generate=generate,
        )
        try:
            async with aclosing(outputs):
                async for output in outputs:
                    if output.finished:
                        self._requests.close(request)
                    yield output
        finally:
            await request.pieces.close()

    async def _tokenized(self, prompt: Prompt) -> Prompt:
        """A long text as text and token ids, so that only short work is left."""
        form = prompt if isinstance(prompt, Mapping) else {"prompt": prompt}
        text = form.get("prompt")
        tokenized = "prompt_token_ids" in form or "prompt_embeds" in form
        if tokenized or not isinstance(text, str) or len(text) < _LONG_TEXT:
            return prompt
        ids = await asyncio.to_thread(self.input_processor.tokenize, text)
        return {**form, "prompt_token_ids": ids}

    @contextlib.contextmanager
    def _submitted(self, request: OpenRequest, processed: ProcessedRequest) -> Iterator[Collector]:
        """Hand a request over; its outputs come from the collector. Who leaves before the last
        of them ends it."""
        collector = Collector(delta=processed.params.output_kind is OutputKind.DELTA)
        try:
            self._submit(request, processed, collector)
            yield collector
        except FrameworkError:
            raise
        except Exception as error:
            raise EngineGenerateError(f"request {request.request_id!r} failed: {error}") from error
        finally:
            if not collector.finished and request in self._requests:
                self._end_requests([request.request_id])

    def _submit(
        self, request: OpenRequest, processed: ProcessedRequest, collector: Collector
    ) -> None:
        """All of a request's n outputs, or none."""
        # Again, for how many they really are, and since time has passed.
        self._admit(len(processed.requests), draining=request.pieces is not None)
        self._outputs.add(processed)
        request.collector = collector
        self._client.add_requests(processed.requests)
        if request.aborted:
            self._end_requests([request.request_id])

    def _abort(self, request_ids: Sequence[str]) -> None:
        self._requests.abort(request_ids)
        self._end_requests(request_ids)

    def _end_requests(self, request_ids: Sequence[str]) -> None:
        """End what was handed over."""
        processed = self._outputs.abort(request_ids)
        self._deliver(processed)
        if processed.iteration.finished:
            self._stat_loggers.record(None, processed.iteration)

    async def _receive(self) -> None:
        """Process bundles as they come. EngineDeadError once an engine core is gone."""
        while True:
            await self._process(await self._client.get_outputs())

    def _receiving_ended(self, task: asyncio.Task[None]) -> None:
        """However it came about, unless by `shutdown`: every request would wait for ever."""
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        if task not in self._tasks:
            return
        if isinstance(error, EngineDeadError):
            self._fail_all(error)
            return
        what = "its task was cancelled" if error is None or task.cancelled() else describe(error)
        logger.error("the front end can not process outputs any more: %s", what, exc_info=error)
        self._fail_all(EngineDeadError(f"the front end failed: {what}"))
        self._client.close()  # the commands that wait, too

    async def _process(self, bundles: Sequence[EngineCoreOutputs]) -> None:
        """All bundles that are there, in parts, after each of which other tasks get their turn;
        the statistics of each are one record."""
        iterations: Sequence[IterationStats] = ()
        try:
            for number, part in enumerate(self._outputs.process_parts(bundles, _OUTPUTS_AT_ONCE)):
                if number:
                    await asyncio.sleep(0)
                iterations = part.iterations
                self._deliver(part)
        finally:
            for outputs, iteration in zip_longest(bundles, iterations):
                self._stat_loggers.record(outputs.scheduler_stats, iteration, outputs.engine_index)

    def _deliver(self, processed: ProcessedOutputs) -> None:
        refused, outputs = processed.refused, processed.request_outputs
        if refused:
            for request_id, why in refused.items():
                self._requests.refuse(request_id, EngineUnavailableError(why))
            outputs = [each for each in outputs if each.request_id not in refused]
        self._requests.deliver(outputs)
        self._tracers.on_requests_finished(processed.traces)
        self._tell_ends(processed.ended_here)

    def _tell_ends(self, ended_here: Mapping[FinishReason, Sequence[int]]) -> None:
        """An engine core that is dead need not be told."""
        with contextlib.suppress(EngineDeadError):
            for reason, handles in ended_here.items():
                self._client.abort_requests(handles, reason)

    def _fail_all(self, error: EngineDeadError) -> None:
        """Nothing more will come: every consumer gets the error, and so do new requests."""
        self._failure = self._failure or error
        self._has_failed.set()
        request_ids = self._requests.ids
        self._requests.fail_all(error)
        processed = self._outputs.abort(request_ids)
        self._stat_loggers.record(None, processed.iteration)
        self._tracers.on_requests_finished(processed.traces)

    def _check_usable(self) -> None:
        """EngineDeadError, or FrameworkError in a wrong event loop."""
        if self._failure is not None:
            raise EngineDeadError(str(self._failure)) from self._failure
        self._check_loop()
        self._client.check_alive()

    def _check_may_end(self) -> None:
        if self._loop is not None and not self._loop.is_closed():
            self._check_loop()

    def _check_loop(self) -> None:
        if self._loop is None:
            raise FrameworkError("the engine was not started; await its start() first")
        if self._loop is not asyncio.get_running_loop():
            raise FrameworkError(
                "the engine is used in another event loop than the one that started it; start "
                "one engine for each event loop, or hand the work over with "
                "asyncio.run_coroutine_threadsafe"
            )

    async def _report(self) -> None:
        """Statistics are due also while nothing comes."""
        while True:
            await asyncio.sleep(self._stat_loggers.due_in_s)
            self._stat_loggers.report_if_due()
