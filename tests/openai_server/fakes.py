"""An engine that follows a script, and HTTP clients of a server over it.

Tokens: ids 0..255 are the bytes; every other piece of text gets the next free id when it is first
met. `tokenize` gives one token a byte; a step of a script is one token, whatever its text.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx
import msgspec
import numpy as np

from builtin_plugins.openai_server.options import OpenAIOptions
from hookspecs.config import EngineConfig, ModelConfig, ServingConfig
from hookspecs.contracts.frontend import FrontendContext, ServiceInfo
from hookspecs.contracts.stats import Exposition
from hookspecs.errors import InvalidRequestError
from hookspecs.types.control import EngineHealth
from hookspecs.types.outputs import CompletionOutput, Logprob, RequestOutput
from hookspecs.types.pooling import PoolingOutput, PoolingParams
from hookspecs.types.sampling import OutputKind, SamplingParams

__all__ = [
    "INFO",
    "FakeEngine",
    "FakeRequest",
    "Step",
    "client_for",
    "context_for",
    "serving",
    "steps",
]

INFO = ServiceInfo(
    model="fake/model",
    max_model_len=4096,
    vocab_size=100_000,
    hidden_size=8,
    version="1.2.3",
    api_version="1.0",
    started_at=1_700_000_000,
)


@dataclass
class Step:
    """One token of an output, or its end."""

    text: str | bytes = ""
    """What the token adds; no token where it is empty and `token_ids` is None."""
    token_ids: list[int] | None = None
    """Instead of one made up for the text."""
    finish: str | None = None
    """stop, length, abort, error, timeout; the last step without one ends with `stop`."""
    stop_reason: int | str | None = None
    error: str | None = None
    """Of an output with finish reason `error` or `timeout`."""
    gate: asyncio.Event | None = None
    """The step comes when this is set."""
    reached: asyncio.Event | None = None
    """Set when the request has come to this step, before its gate."""
    raises: Exception | None = None
    """Raised instead of giving the step."""


def steps(*texts: str, finish: str = "stop") -> list[Step]:
    """One step a text; the last ends the output."""
    made = [Step(text) for text in texts]
    made[-1].finish = finish
    return made


@dataclass
class FakeRequest:
    """What one call of `generate` or `embed` was given."""

    request_id: str
    prompt: Any
    params: Any
    options: dict[str, Any]
    """priority, tenant, deadline, cache_salt, labels, trace_headers."""
    prompt_token_ids: list[int]
    finished: bool = False
    closed: bool = False
    """Its iterator was closed, or its task cancelled, before it had finished."""
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once finished or closed."""


class FakeEngine:
    """Implements EngineClient. Every request follows the next of `scripts`, then `script`; with
    n > 1 each output follows it, step by step in turn."""

    def __init__(
        self,
        script: Sequence[Step] | None = None,
        *,
        scripts: Iterable[Sequence[Step]] = (),
        info: ServiceInfo = INFO,
    ) -> None:
        self.script = list(script) if script is not None else steps("Hello", " world", "!")
        self.scripts = [list(one) for one in scripts]
        self._info = info
        self.requests: list[FakeRequest] = []
        self.aborted: list[str] = []
        self.commands: list[tuple[str, dict[str, Any]]] = []
        self.chats: list[dict[str, Any]] = []
        self.results: dict[str, Any] = {}
        """Command name to its result, or an exception to raise."""
        self.refuses: Exception | None = None
        """Raised by check_admission, and at the start of every generate and embed."""
        self.admissions: list[int] = []
        """Counts that check_admission was asked for."""
        self.chat_error: Exception | None = None
        self.embedding: list[float] = [float(i + 1) for i in range(self._info.hidden_size)]
        self.embed_gate: asyncio.Event | None = None
        self.num_cached_tokens = 0
        """Of every prompt."""
        self.defaults = SamplingParams()
        self.state = EngineHealth(live=True, ready=True)
        self.metrics: list[Exposition] = []
        self.plugin_list: list[dict[str, Any]] = [{"name": "fake", "state": "active"}]
        self._vocabulary: list[bytes] = [bytes([value]) for value in range(256)]
        self._ids = {piece: number for number, piece in enumerate(self._vocabulary)}

    def token(self, text: str | bytes) -> int:
        """The id of the token that stands for this text."""
        piece = text if isinstance(text, bytes) else text.encode()
        if piece not in self._ids:
            self._ids[piece] = len(self._vocabulary)
            self._vocabulary.append(piece)
        return self._ids[piece]

    @property
    def info(self) -> ServiceInfo:
        return self._info

    def check_admission(self, count: int = 1) -> None:
        self.admissions.append(count)
        if self.refuses is not None:
            raise self.refuses

    async def generate(
        self,
        prompt: Any,
        params: SamplingParams | None = None,
        *,
        request_id: str,
        **options: Any,
    ) -> AsyncGenerator[RequestOutput, None]:
        params = params if params is not None else self.default_params()
        request = self._record(prompt, params, request_id, options)
        script = self.scripts.pop(0) if self.scripts else self.script
        outputs = [_Output(self, index, params) for index in range(params.n)]
        try:
            if self.refuses is not None:
                raise self.refuses
            limit = params.max_tokens
            for number, step in enumerate(script):
                if step.reached is not None:
                    step.reached.set()
                if step.gate is not None:
                    await step.gate.wait()
                if step.raises is not None:
                    raise step.raises
                last = number == len(script) - 1
                for output in outputs:
                    output.take(step, last, limit)
                request.finished = all(output.finish_reason for output in outputs)
                for position, output in enumerate(outputs):
                    done = request.finished and position == len(outputs) - 1
                    if params.output_kind is not OutputKind.FINAL_ONLY:
                        yield self._output(request, params, [output], finished=done)
                if request.finished:
                    break
                await asyncio.sleep(0)
            if params.output_kind is OutputKind.FINAL_ONLY:
                yield self._output(request, params, outputs, finished=True)
        finally:
            request.closed = not request.finished
            request.ended.set()

    async def embed(
        self,
        prompt: Any,
        params: PoolingParams | None = None,
        *,
        request_id: str,
        **options: Any,
    ) -> PoolingOutput:
        params = params or PoolingParams()
        request = self._record(prompt, params, request_id, options)
        try:
            if self.refuses is not None:
                raise self.refuses
            if self.embed_gate is not None:
                await self.embed_gate.wait()
            request.finished = True
        finally:
            request.closed = not request.finished
            request.ended.set()
        return PoolingOutput(
            request_id=request_id,
            prompt_token_ids=request.prompt_token_ids,
            embedding=np.array(self.embedding[: params.dimensions], dtype=np.float32),
        )

    async def abort(self, request_id: str) -> None:
        self.aborted.append(request_id)

    def default_params(self) -> SamplingParams:
        return msgspec.structs.replace(self.defaults)

    async def chat_prompt(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool = True,
        tools: Sequence[Mapping[str, Any]] = (),
        template_arguments: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        self.chats.append(
            {
                "messages": list(messages),
                "add_generation_prompt": add_generation_prompt,
                "tools": list(tools),
                "template_arguments": template_arguments,
            }
        )
        if self.chat_error is not None:
            raise self.chat_error
        text = "".join(f"{m.get('role')}: {m.get('content')}\n" for m in messages)
        text += "assistant: " if add_generation_prompt else ""
        return {"prompt": text, "prompt_token_ids": await self.tokenize(text)}

    async def tokenize(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        return list(text.encode())

    async def detokenize(self, token_ids: Sequence[int]) -> str:
        return b"".join(self.token_bytes(token) for token in token_ids).decode(errors="replace")

    def token_bytes(self, token_id: int) -> bytes:
        if not 0 <= token_id < self._info.vocab_size:
            raise InvalidRequestError(
                f"token id {token_id} is outside of the vocabulary of {self._info.vocab_size}"
            )
        return self._vocabulary[token_id] if token_id < len(self._vocabulary) else b"?"

    async def command(self, name: str, arguments: Mapping[str, Any]) -> Any:
        self.commands.append((name, dict(arguments)))
        result = self.results.get(name)
        if isinstance(result, Exception):
            raise result
        return result

    def health(self) -> EngineHealth:
        return self.state

    def plugins(self) -> list[dict[str, Any]]:
        return self.plugin_list

    def expositions(self) -> list[Exposition]:
        return self.metrics

    def _record(
        self, prompt: Any, params: Any, request_id: str, options: dict[str, Any]
    ) -> FakeRequest:
        if isinstance(prompt, str):
            token_ids = list(prompt.encode())
        elif isinstance(prompt, Mapping):
            given = prompt.get("prompt_token_ids")
            token_ids = list(given) if given is not None else list(prompt["prompt"].encode())
        else:
            token_ids = list(prompt)
        request = FakeRequest(request_id, prompt, params, options, token_ids)
        self.requests.append(request)
        return request

    def _output(
        self,
        request: FakeRequest,
        params: SamplingParams,
        outputs: Sequence[_Output],
        *,
        finished: bool,
    ) -> RequestOutput:
        prompt_logprobs: list[dict[int, Logprob] | None] | None = None
        if params.prompt_logprobs is not None:
            prompt_logprobs = [
                None if at == 0 else self.logprobs_of(token, params.prompt_logprobs)
                for at, token in enumerate(request.prompt_token_ids)
            ]
        return RequestOutput(
            request_id=request.request_id,
            prompt=request.prompt if isinstance(request.prompt, str) else None,
            prompt_token_ids=request.prompt_token_ids,
            outputs=[output.give() for output in outputs],
            finished=finished,
            prompt_logprobs=prompt_logprobs,
            num_cached_tokens=self.num_cached_tokens,
        )

    def logprobs_of(self, token: int, count: int) -> dict[int, Logprob]:
        """The token with -0.5 and rank 1, then `count - 1` others: bytes from "a" on."""
        chosen = Logprob(-0.5, 1, self.token_bytes(token).decode(errors="replace"))
        made = {token: chosen}
        other = ord("a")
        while len(made) < count:
            if other != token:
                made[other] = Logprob(-1.0 - len(made), len(made) + 1, chr(other))
            other += 1
        return made


class _Output:
    """One of the n outputs of a request."""

    def __init__(self, engine: FakeEngine, index: int, params: SamplingParams) -> None:
        self.engine = engine
        self.index = index
        self.params = params
        self.data = b""
        self.token_ids: list[int] = []
        self.logprobs: list[dict[int, Logprob]] = []
        self.finish_reason: str | None = None
        self.stop_reason: int | str | None = None
        self.error: str | None = None
        self.sent_text = self.sent_tokens = 0

    def take(self, step: Step, last: bool, limit: int | None) -> None:
        data = step.text if isinstance(step.text, bytes) else step.text.encode()
        made = step.token_ids
        if made is None:
            made = [self.engine.token(data)] if data else []
        self.data += data
        self.token_ids += made
        if self.params.logprobs is not None:
            self.logprobs += [self.engine.logprobs_of(t, self.params.logprobs) for t in made]
        self.finish_reason = step.finish or ("stop" if last else None)
        self.stop_reason, self.error = step.stop_reason, step.error
        if self.finish_reason is None and limit is not None and len(self.token_ids) >= limit:
            self.finish_reason = "length"

    def give(self) -> CompletionOutput:
        text = self.data.decode(errors="ignore")
        at_text = at_token = 0
        if self.params.output_kind is OutputKind.DELTA:
            at_text, at_token = self.sent_text, self.sent_tokens
        self.sent_text, self.sent_tokens = len(text), len(self.token_ids)
        logprobs = self.logprobs[at_token:] if self.params.logprobs is not None else None
        return CompletionOutput(
            index=self.index,
            text=text[at_text:],
            token_ids=self.token_ids[at_token:],
            cumulative_logprob=-0.5 * len(self.token_ids) if logprobs is not None else None,
            logprobs=logprobs,
            finish_reason=self.finish_reason,
            stop_reason=self.stop_reason,
            error=self.error,
        )


def context_for(
    engine: FakeEngine,
    *,
    listen_fd: int = -1,
    api_keys: tuple[str, ...] = (),
    max_body_bytes: int = 16 * 1024 * 1024,
    host: str = "127.0.0.1",
    routes: Mapping[str, Any] | None = None,
    **options: Any,
) -> FrontendContext:
    """What the kernel would give the front end; `options` are those of OpenAIOptions."""
    return FrontendContext(
        config=EngineConfig(
            model=ModelConfig(name=engine.info.model),
            serving=ServingConfig(api_keys=api_keys, max_body_bytes=max_body_bytes, host=host),
        ),
        options=OpenAIOptions(**options),
        plugin="openai-server",
        name="openai",
        engine=engine,
        listen_fd=listen_fd,
        routes=routes or {},
    )


def client_for(engine: FakeEngine, **settings: Any) -> httpx.AsyncClient:
    """A client over the ASGI app, without sockets; settings as in `context_for`. Streams come
    whole, when the response has ended: use `serving` where that, or a disconnect, matters."""
    from builtin_plugins.openai_server.app import build_app

    context = context_for(engine, **settings)
    transport = httpx.ASGITransport(build_app(context, context.options))
    return httpx.AsyncClient(transport=transport, base_url="http://localhost")


@contextlib.asynccontextmanager
async def serving(engine: FakeEngine, **settings: Any) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the real server on a free port of the loopback interface."""
    from builtin_plugins.openai_server.server import OpenAIServer

    listener = socket.create_server(("127.0.0.1", 0))
    server = OpenAIServer(context_for(engine, listen_fd=listener.fileno(), **settings))
    task = asyncio.create_task(server.serve())
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    try:
        async with httpx.AsyncClient(base_url=url, timeout=30) as client:
            yield client
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        listener.close()
