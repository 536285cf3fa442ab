"""`LLM`: batches and streams over an `LLMEngine`, for scripts and notebooks."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Any, Self, TypeAlias

import msgspec

from framework.frontend.batch_inputs import as_prompts, at_index, failed_output, for_each
from framework.frontend.checks import invalid
from framework.frontend.controls import Controls
from framework.frontend.interrupt import interrupts_deferred
from framework.frontend.llm_engine import LLMEngine
from framework.frontend.pooling import pooling_output
from framework.frontend.processed_request import ProcessedRequest
from framework.frontend.progress import BatchProgress
from framework.frontend.prompts import Prompt
from framework.frontend.tokenizer import Tokenizer
from hookspecs.errors import CommandError, InvalidRequestError, RequestFailedError
from hookspecs.types.commands import CommandArguments
from hookspecs.types.outputs import RequestOutput
from hookspecs.types.pooling import PoolingOutput, PoolingParams
from hookspecs.types.sampling import OutputKind, SamplingParams

__all__ = ["LLM"]

Params: TypeAlias = SamplingParams | Sequence[SamplingParams] | None
"""For all prompts, one for each, or the model's recommended ones."""
Messages: TypeAlias = list[dict[str, Any]]
Inbox: TypeAlias = deque[RequestOutput]
"""Outputs that a batch or a stream has not taken yet."""


class LLM(Controls):
    """Synchronous use of one engine. One thread; a stream may be open while others run."""

    def __init__(self, engine: LLMEngine) -> None:
        if not isinstance(engine, LLMEngine):
            raise TypeError(
                f"LLM takes an LLMEngine, not {type(engine).__name__}; "
                "framework.launch(config) makes a ready one from a configuration"
            )
        self.engine = engine
        self._ids = itertools.count()
        self._inboxes: dict[str, Inbox] = {}
        """Request id to where its outputs go."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.shutdown()

    @property
    def tokenizer(self) -> Tokenizer | None:
        """The model's tokenizer, if it has one."""
        return self.engine.input_processor.tokenizer

    def default_params(self) -> SamplingParams:
        """The sampling parameters that the model's authors recommend."""
        return self.engine.input_processor.default_params()

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        params: Params = None,
        *,
        progress: bool = False,
        priority: int | Sequence[int] = 0,
        tenant: str = "",
        deadline: float | None = None,
        cache_salt: str = "",
        labels: dict[str, str] | None = None,
    ) -> list[RequestOutput]:
        """One finished output a prompt, in the order of the prompts.

        `prompts`: one prompt or a list of them; a list of integers is one prompt. All prompts
        are checked before any is submitted: InvalidRequestError names the index of the first
        that is wrong. A request that fails, on its way or in a plugin's filter, has the finish
        reason `error` and does not disturb the others. An interrupt aborts them all. `deadline`:
        latest time to start, seconds of the monotonic clock (`time.monotonic`); only the
        scheduling policy `deadline` looks at it.
        """
        requests = self._prepare(
            as_prompts(prompts),
            params,
            priority,
            self._process_final,
            tenant=tenant,
            deadline=deadline,
            cache_salt=cache_salt,
            labels=labels,
        )
        return self._run(requests, progress=progress, what="Generating")

    def embed(
        self,
        prompts: Prompt | Sequence[Prompt],
        params: PoolingParams | Sequence[PoolingParams] | None = None,
        *,
        progress: bool = False,
        priority: int | Sequence[int] = 0,
        tenant: str = "",
        cache_salt: str = "",
        labels: dict[str, str] | None = None,
    ) -> list[PoolingOutput]:
        """One vector a prompt, in the order of the prompts, which are as in `generate`; `params`
        for all, or one for each.

        RequestFailedError for the first request that failed, once all have ended.
        UnsupportedFeatureError if the worker gives no vectors."""
        requests = self._prepare(
            as_prompts(prompts),
            params,
            priority,
            self._process_pooling,
            tenant=tenant,
            cache_salt=cache_salt,
            labels=labels,
        )
        outputs = self._run(requests, progress=progress, what="Embedding")
        return [pooling_output(output) for output in outputs]

    def chat(
        self,
        messages: Messages | Sequence[Messages],
        params: Params = None,
        *,
        add_generation_prompt: bool = True,
        progress: bool = False,
        priority: int | Sequence[int] = 0,
        tenant: str = "",
        deadline: float | None = None,
        cache_salt: str = "",
        labels: dict[str, str] | None = None,
    ) -> list[RequestOutput]:
        """`generate` for conversations: one list of messages, or a list of such lists."""
        many = isinstance(messages, (list, tuple)) and any(
            isinstance(each, list) for each in messages[:1]
        )
        conversations: list[Any] = list(messages) if many else [messages]
        prompts: list[Prompt] = []
        for index, conversation in enumerate(conversations):
            try:
                prompts.append(
                    self.chat_prompt(conversation, add_generation_prompt=add_generation_prompt)
                )
            except InvalidRequestError as error:
                raise at_index(error, index, len(conversations)) from error
        return self.generate(
            prompts,
            params,
            progress=progress,
            priority=priority,
            tenant=tenant,
            deadline=deadline,
            cache_salt=cache_salt,
            labels=labels,
        )

    def chat_prompt(
        self, messages: Messages, *, add_generation_prompt: bool = True
    ) -> dict[str, Any]:
        """The prompt of a conversation, for `stream` or `generate`."""
        return self.engine.input_processor.chat_prompt(
            messages, add_generation_prompt=add_generation_prompt
        )

    def stream(
        self,
        prompt: Prompt,
        params: SamplingParams | None = None,
        *,
        priority: int = 0,
        tenant: str = "",
        deadline: float | None = None,
        cache_salt: str = "",
        labels: dict[str, str] | None = None,
    ) -> Iterator[RequestOutput]:
        """What is new after each step, until the last output, which is `finished`.

        `deadline`: as in `generate`. The request is checked here, which is where RequestFailedError
        of a plugin's filter comes out; it is submitted at the first `next`, and aborted when the
        iterator is closed before its end."""
        request = self._process(
            prompt,
            params,
            OutputKind.DELTA,
            priority=priority,
            tenant=tenant,
            deadline=deadline,
            cache_salt=cache_salt,
            labels=labels,
        )
        return self._stream(request)

    def run_command(self, arguments: CommandArguments) -> Any:
        """Run a control command and wait for its answer; raises its failure. Open streams get
        what they output meanwhile at their next `next`."""
        with interrupts_deferred():
            return self.engine.run_command(arguments)

    def shutdown(self) -> None:
        """Stop the engine. Safe to call twice."""
        self.engine.shutdown()

    def _prepare(
        self,
        prompts: Sequence[Prompt],
        params: Any,
        priority: int | Sequence[int],
        process: Callable[..., ProcessedRequest],
        **options: Any,
    ) -> list[ProcessedRequest | RequestOutput]:
        """The checked requests; in place of one that a plugin failed, its only output."""
        count = len(prompts)
        all_params = for_each("params", params, count)
        priorities = for_each("priority", priority, count)
        requests: list[ProcessedRequest | RequestOutput] = []
        for index, prompt in enumerate(prompts):
            try:
                request = process(prompt, all_params[index], priority=priorities[index], **options)
            except InvalidRequestError as error:
                raise at_index(error, index, count) from error
            except RequestFailedError as error:
                requests.append(failed_output(error))
            else:
                requests.append(request)
        return requests

    def _process(
        self, prompt: Prompt, params: SamplingParams | None, kind: OutputKind, **options: Any
    ) -> ProcessedRequest:
        processor = self.engine.input_processor
        if params is None:
            params = processor.default_params()
        if not isinstance(params, SamplingParams):
            raise invalid("params", params, "SamplingParams or None")
        return processor.process(
            f"llm-{next(self._ids)}",
            prompt,
            msgspec.structs.replace(params, output_kind=kind),
            **options,
        )

    def _process_final(
        self, prompt: Prompt, params: SamplingParams | None, **options: Any
    ) -> ProcessedRequest:
        return self._process(prompt, params, OutputKind.FINAL_ONLY, **options)

    def _process_pooling(
        self, prompt: Prompt, params: PoolingParams | None, **options: Any
    ) -> ProcessedRequest:
        processor = self.engine.input_processor
        return processor.process_pooling(f"llm-{next(self._ids)}", prompt, params, **options)

    def _run(
        self, prepared: list[ProcessedRequest | RequestOutput], *, progress: bool, what: str
    ) -> list[RequestOutput]:
        requests = [each for each in prepared if isinstance(each, ProcessedRequest)]
        results = {each.request_id: each for each in prepared if isinstance(each, RequestOutput)}
        inbox: Inbox = deque()
        try:
            with BatchProgress(len(requests), enabled=progress, what=what) as bar:
                for request in requests:
                    self._submit(request, inbox)
                while len(results) < len(prepared):
                    self._step()
                    while inbox:
                        output = inbox.popleft()
                        del self._inboxes[output.request_id]
                        results[output.request_id] = output
                        bar.finished(output)
        except BaseException:
            self._drop([request.request_id for request in requests])
            raise
        return [results[each.request_id] for each in prepared]

    def _stream(self, request: ProcessedRequest) -> Iterator[RequestOutput]:
        inbox: Inbox = deque()
        try:
            self._submit(request, inbox)
            while True:
                while not inbox:
                    self._step()
                output = inbox.popleft()
                if output.finished:
                    del self._inboxes[request.request_id]
                yield output
                if output.finished:
                    return
        except BaseException:
            self._drop([request.request_id])
            raise

    def _submit(self, request: ProcessedRequest, inbox: Inbox) -> None:
        with interrupts_deferred():
            self._inboxes[request.request_id] = inbox
            self.engine.submit(request)

    def _step(self) -> None:
        """One step of the engine, for everyone: outputs wait in the inbox of their caller.
        CommandError if the engine is paused or asleep and nobody else can change that."""
        if self.engine.is_stuck:
            raise CommandError(
                "the engine is paused or asleep, so no request can end; call resume() or "
                "wake_up() first"
            )
        with interrupts_deferred():
            for output in self.engine.step():
                inbox = self._inboxes.get(output.request_id)
                if inbox is not None:
                    inbox.append(output)

    def _drop(self, request_ids: list[str]) -> None:
        """Abort what has not ended; nobody waits for it any more."""
        with interrupts_deferred():
            self.engine.give_up(
                [each for each in request_ids if self._inboxes.pop(each, None) is not None]
            )
