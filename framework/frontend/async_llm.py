"""`AsyncLLM`: the asynchronous front object; implements the `EngineClient` that front ends get.

Front-end process, one event loop. One task receives the outputs of all requests; each request's
consumer takes its own from a `Collector`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from types import TracebackType
from typing import Any, Self, TypeAlias

import msgspec

from framework.client.asynchronous import AsyncClient
from framework.core.commands import COMMANDS
from framework.frontend.admission import Admission
from framework.frontend.collector import Collector
from framework.frontend.control import AsyncControl
from framework.frontend.input_processor import InputProcessor
from framework.frontend.output_batch import ProcessedOutputs
from framework.frontend.output_processor import OutputProcessor
from framework.frontend.processed_request import ProcessedRequest
from framework.frontend.prompts import Prompt
from framework.frontend.service_info import PluginView, service_info
from framework.frontend.stat_loggers import StatLoggerManager
from framework.frontend.streaming_input import check_session, run_session
from framework.frontend.tracers import TracerManager
from hookspecs.contracts.frontend import Exposition, ServiceInfo
from hookspecs.errors import (
    EngineDeadError,
    EngineGenerateError,
    FrameworkError,
    InvalidRequestError,
    RequestFailedError,
)
from hookspecs.types.commands import CommandArguments
from hookspecs.types.control import EngineHealth
from hookspecs.types.outputs import EngineCoreOutputs, RequestOutput
from hookspecs.types.pooling import PoolingOutput, PoolingParams
from hookspecs.types.request import FinishReason
from hookspecs.types.sampling import OutputKind, SamplingParams

__all__ = ["AsyncLLM"]

logger = logging.getLogger(__name__)

AsyncPrompt: TypeAlias = Prompt | AsyncIterator[Prompt]
"""A prompt, or an iterator of its pieces (see `framework.frontend.streaming_input`)."""
_LONG_TEXT = 4096
"""Characters from which a text is tokenised in a thread, so that others are not held up."""


class AsyncLLM(AsyncControl):
    """Requests in, outputs out, any number at once. Use it in the event loop that started it."""

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
        self._collectors: dict[str, Collector] = {}
        """By the user's request id."""
        self._tasks: list[asyncio.Task[None]] = []
        self._idle = asyncio.Event()
        self._failure: BaseException | None = None
        self._has_failed = asyncio.Event()

    async def start(self) -> None:
        """Begin to receive outputs, in the running event loop."""
        self._client.start()
        self._idle.set()
        self._tasks = [
            asyncio.create_task(self._receive(), name="outputs"),
            asyncio.create_task(self._report(), name="statistics"),
        ]

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
        if params is None:
            params = self.default_params()
        options = {
            "priority": priority,
            "tenant": tenant,
            "deadline": deadline,
            "cache_salt": cache_salt,
            "labels": labels,
            "trace_headers": trace_headers,
        }
        if isinstance(prompt, AsyncIterator):
            outputs = self._session(prompt, params, request_id, options)
        else:
            outputs = self._generate(prompt, params, request_id, options)
        async with aclosing(outputs):
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
        self._admit(1)
        request = self.input_processor.process_pooling(
            request_id,
            await self._tokenized(prompt),
            params,
            priority=priority,
            tenant=tenant,
            cache_salt=cache_salt,
            labels=labels,
            trace_headers=trace_headers,
        )
        async with aclosing(self._run(request, OutputKind.FINAL_ONLY)) as outputs:
            async for output in outputs:
                if output.embedding is None:
                    end = output.outputs[0]
                    raise RequestFailedError(
                        end.error or f"the request ended by {end.finish_reason}",
                        request_id=request_id,
                    )
                return PoolingOutput(
                    request_id=request_id,
                    prompt_token_ids=output.prompt_token_ids,
                    embedding=output.embedding,
                )
        raise AssertionError("a request ends with an output")

    async def abort(self, request_id: str) -> None:
        """See `EngineClient.abort`. Its consumer gets a last output with that reason."""
        self._end_requests([request_id])

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
            [dict(message) for message in messages],
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

    async def command(self, name: str, arguments: Mapping[str, Any]) -> Any:
        """See `EngineClient.command`."""
        known = COMMANDS.get(name)
        if known is None:
            raise InvalidRequestError(
                f"there is no command {name!r}; there are {', '.join(sorted(COMMANDS))}",
                param="name",
                value=name,
            )
        try:
            typed = msgspec.convert(dict(arguments), known.arguments)
        except msgspec.ValidationError as error:
            raise InvalidRequestError(f"{name}: {error}", param="arguments") from error
        return msgspec.to_builtins(await self.run_command(typed))

    async def run_command(self, arguments: CommandArguments) -> Any:
        """Run a control command; its typed result."""
        self._raise_failure()
        return await self._client.command(arguments)

    async def check_health(self) -> None:
        """EngineDeadError when an engine core is gone, or the front end itself has failed."""
        self._raise_failure()
        self._client.check_alive()

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
        return self._outputs.num_requests

    async def drain(self, timeout_s: float) -> None:
        """Refuse new requests and let the others end; those that have not after `timeout_s`
        are aborted. Safe to call twice."""
        self._admission.draining = True
        if self._outputs.num_requests:
            self._idle.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._idle.wait(), timeout_s)
        self._end_requests(list(self._collectors))

    async def shutdown(self) -> None:
        """End everything: open requests get EngineDeadError. Safe to call twice."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []
        self._fail_all(EngineDeadError("the engine was shut down"))
        self._stat_loggers.close()
        self._tracers.close()
        self._client.close()

    # Behind the requests

    async def _generate(
        self, prompt: Prompt, params: SamplingParams, request_id: str, options: dict[str, Any]
    ) -> AsyncGenerator[RequestOutput, None]:
        self._admit(params.n if isinstance(params, SamplingParams) else 1)
        request = self.input_processor.process(
            request_id, await self._tokenized(prompt), params, **options
        )
        async with aclosing(self._run(request, request.params.output_kind)) as outputs:
            async for output in outputs:
                yield output

    def _session(
        self,
        pieces: AsyncIterator[Prompt],
        params: SamplingParams,
        request_id: str,
        options: dict[str, Any],
    ) -> AsyncGenerator[RequestOutput, None]:
        check_session(params)

        async def tokenize(piece: Prompt, first: bool) -> list[int]:
            return await asyncio.to_thread(self.input_processor.piece_ids, piece, first=first)

        return run_session(
            pieces,
            request_id=request_id,
            tokenize=tokenize,
            generate=lambda ids, own_id: self._generate(ids, params, own_id, options),
        )

    def _admit(self, count: int) -> None:
        self._raise_failure()
        self._client.check_alive()
        self._admission.check(self._client.num_unfinished, count, self._client.states)

    async def _tokenized(self, prompt: Prompt) -> Prompt:
        """A long text as text and token ids, so that only short work is left."""
        if not isinstance(prompt, str) or len(prompt) < _LONG_TEXT:
            return prompt
        ids = await asyncio.to_thread(self.input_processor.tokenize, prompt)
        return {"prompt": prompt, "prompt_token_ids": ids}

    async def _run(
        self, request: ProcessedRequest, kind: OutputKind
    ) -> AsyncGenerator[RequestOutput, None]:
        collector = Collector(delta=kind is OutputKind.DELTA)
        finished = False
        self._submit(request, collector)
        try:
            while not finished:
                output = await collector.get()
                finished = output.finished
                yield output
        except (FrameworkError, GeneratorExit, asyncio.CancelledError):
            raise
        except Exception as error:
            raise EngineGenerateError(f"request {request.request_id!r} failed: {error}") from error
        finally:
            if not finished and self._collectors.get(request.request_id) is collector:
                self._end_requests([request.request_id])

    def _submit(self, request: ProcessedRequest, collector: Collector) -> None:
        """All of a request's n outputs, or none."""
        self._outputs.add(request)
        self._collectors[request.request_id] = collector
        try:
            self._client.add_requests(request.requests)
        except BaseException:
            self._end_requests([request.request_id])
            raise

    def _end_requests(self, request_ids: Sequence[str]) -> None:
        processed = self._outputs.abort(request_ids)
        self._deliver(processed)
        self._stat_loggers.record(None, processed.iteration)

    async def _receive(self) -> None:
        """Process bundles as they come; between two of them other tasks get their turn."""
        try:
            while True:
                outputs = await self._client.get_outputs()
                self._process(outputs)
                await asyncio.sleep(0)
        except EngineDeadError as error:
            self._fail_all(error)
        except Exception as error:
            logger.exception("the front end can not process outputs any more")
            self._fail_all(EngineDeadError(f"the front end failed: {error}"))

    def _process(self, outputs: EngineCoreOutputs) -> None:
        processed = self._outputs.process(outputs)
        self._deliver(processed)
        self._stat_loggers.record(
            outputs.scheduler_stats, processed.iteration, outputs.engine_index
        )

    def _deliver(self, processed: ProcessedOutputs) -> None:
        for output in processed.request_outputs:
            collector = self._collectors.get(output.request_id)
            if collector is None:
                continue
            if output.finished:
                del self._collectors[output.request_id]
            collector.put(output)
        self._tracers.on_requests_finished(processed.traces)
        self._tell_ends(processed.ended_here)
        if not self._outputs.num_requests:
            self._idle.set()

    def _tell_ends(self, ended_here: Mapping[FinishReason, Sequence[int]]) -> None:
        """An engine core that is dead need not be told."""
        with contextlib.suppress(EngineDeadError):
            for reason, handles in ended_here.items():
                self._client.abort_requests(handles, reason)

    def _fail_all(self, error: BaseException) -> None:
        """Nothing more will come: every consumer gets the error, and so do new requests."""
        self._failure = self._failure or error
        self._has_failed.set()
        collectors, self._collectors = self._collectors, {}
        processed = self._outputs.abort(list(collectors))
        self._stat_loggers.record(None, processed.iteration)
        self._tracers.on_requests_finished(processed.traces)
        for collector in collectors.values():
            collector.fail(error)
        self._idle.set()

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise EngineDeadError(str(self._failure)) from self._failure

    async def _report(self) -> None:
        """Statistics are due also while nothing comes."""
        while True:
            await asyncio.sleep(self.input_processor.config.stats.interval_s)
            self._stat_loggers.report_if_due()
