"""`PretendedEngine`: an `EngineClient` whose engine is well, or in trouble of a chosen kind."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import Enum
from typing import Any, Final

import msgspec
import numpy as np

from framework.launcher import Engine
from hookspecs.contracts.frontend import ServiceInfo
from hookspecs.contracts.stats import Exposition
from hookspecs.errors import (
    CommandError,
    EngineDeadError,
    EngineGenerateError,
    EngineUnavailableError,
    InvalidRequestError,
    QueueFullError,
)
from hookspecs.types.control import EngineHealth
from hookspecs.types.outputs import CompletionOutput, RequestOutput
from hookspecs.types.pooling import PoolingOutput, PoolingParams
from hookspecs.types.sampling import OutputKind, SamplingParams
from hookspecs.version import API_VERSION

__all__ = ["TROUBLES", "Mood", "PretendedEngine"]

_TURNS = 20
"""Turns of the event loop that a slow engine takes for an answer."""
_MAX_TOKENS = 6


class Mood(Enum):
    """How the engine does."""

    WELL = "well"
    SLOW = "slow"
    """Answers after other tasks had their turns, and later calls before earlier ones."""
    SILENT = "silent"
    """Never answers."""
    DEAD = "dead"
    UNAVAILABLE = "unavailable"
    FULL = "full"
    REFUSES = "refuses"
    """Every command, and every prompt."""
    FAILS = "fails"
    """Requests fail after their first output."""


TROUBLES: Final = (Mood.DEAD, Mood.UNAVAILABLE, Mood.FULL, Mood.REFUSES, Mood.FAILS)
"""Moods in which callers are told that something is wrong."""


class PretendedEngine:
    """Implements `EngineClient`. One token is one byte. Event loop, one thread.

    Commands are those of a real engine in this process, if one is given: also those of plugins.
    """

    def __init__(self, engine: Engine | None = None, mood: Mood = Mood.WELL) -> None:
        self.mood = mood
        self.calls: Counter[str] = Counter()
        """By method."""
        self.open: set[str] = set()
        """Calls that wait, and requests that run."""
        self._engine = engine
        self._numbers = 0

    @property
    def info(self) -> ServiceInfo:
        return ServiceInfo(
            model="scripted",
            max_model_len=1024,
            vocab_size=256,
            hidden_size=4,
            version="0.0.0",
            api_version=".".join(map(str, API_VERSION)),
            started_at=int(time.time()),
        )

    # Requests

    def check_admission(self, count: int = 1) -> None:
        self.calls["check_admission"] += 1
        self._refuse_if_told(InvalidRequestError, only=(Mood.DEAD, Mood.UNAVAILABLE, Mood.FULL))

    async def generate(
        self,
        prompt: Any,
        params: SamplingParams | None = None,
        *,
        request_id: str,
        **options: Any,
    ) -> AsyncGenerator[RequestOutput, None]:
        params = params or self.default_params()
        with self._call("generate"):
            await self._reach(InvalidRequestError)
            texts = ["" for _ in range(params.n)]
            tokens = min(params.max_tokens or 1, _MAX_TOKENS)
            for number in range(tokens):
                await asyncio.sleep(0)
                if number and self.mood is Mood.FAILS:
                    raise EngineGenerateError(f"request {request_id!r} failed: no more today")
                last = number == tokens - 1
                texts = [text + "a" for text in texts]
                if params.output_kind is not OutputKind.FINAL_ONLY or last:
                    kind = params.output_kind
                    shown = ["a" for _ in texts] if kind is OutputKind.DELTA else texts
                    yield _output(request_id, prompt, shown, last=last)

    async def embed(
        self,
        prompt: Any,
        params: PoolingParams | None = None,
        *,
        request_id: str,
        **options: Any,
    ) -> PoolingOutput:
        with self._call("embed"):
            await self._reach(InvalidRequestError)
        vector = np.ones(self.info.hidden_size, dtype=np.float32)
        return PoolingOutput(request_id=request_id, prompt_token_ids=[97], embedding=vector)

    async def abort(self, request_id: str) -> None:
        self.calls["abort"] += 1

    def default_params(self) -> SamplingParams:
        return SamplingParams()

    # Text

    async def chat_prompt(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool = True,
        tools: Sequence[Mapping[str, Any]] = (),
        template_arguments: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        text = "\n".join(str(message.get("content")) for message in messages)
        return {"prompt": text, "prompt_token_ids": list(text.encode(errors="replace"))}

    async def tokenize(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        return list(text.encode(errors="replace"))

    async def detokenize(self, token_ids: Sequence[int]) -> str:
        return b"".join(map(self.token_bytes, token_ids)).decode(errors="replace")

    def token_bytes(self, token_id: int) -> bytes:
        if not 0 <= token_id < self.info.vocab_size:
            raise InvalidRequestError(f"there is no token {token_id}", param="token_ids")
        return bytes([token_id])

    # Control

    async def command(self, name: str, arguments: Mapping[str, Any]) -> Any:
        with self._call("command"):
            await self._reach(CommandError)
            if self._engine is None:
                raise InvalidRequestError(f"there is no command {name!r}", param="name")
            return msgspec.to_builtins(self._engine.command(name, arguments))

    def health(self) -> EngineHealth:
        if self.mood is Mood.DEAD:
            return EngineHealth(live=False, ready=False, reason="the engine is dead")
        if self.mood in (Mood.UNAVAILABLE, Mood.SILENT):
            return EngineHealth(live=True, ready=False, reason="the engine sleeps")
        return EngineHealth(live=True, ready=True)

    def plugins(self) -> list[dict[str, Any]]:
        if self._engine is None:
            return []
        return [msgspec.to_builtins(report) for report in self._engine.plugins()]

    def expositions(self) -> list[Exposition]:
        body = b"# TYPE conformance_up gauge\nconformance_up 1\n"
        return [Exposition(content_type="text/plain; version=0.0.4; charset=utf-8", body=body)]

    # Behind them

    @contextmanager
    def _call(self, method: str) -> Iterator[None]:
        self.calls[method] += 1
        self._numbers += 1
        key = f"{method} {self._numbers}"
        self.open.add(key)
        try:
            yield
        finally:
            self.open.discard(key)

    async def _reach(self, refusal: type[Exception]) -> None:
        """What comes before every answer."""
        if self.mood is Mood.SILENT:
            await asyncio.get_running_loop().create_future()
        if self.mood is Mood.SLOW:
            for _ in range(_TURNS + 40 // self._numbers):
                await asyncio.sleep(0)
        self._refuse_if_told(refusal)

    def _refuse_if_told(self, refusal: type[Exception], only: Sequence[Mood] = tuple(Mood)) -> None:
        mood = self.mood if self.mood in only else Mood.WELL
        if mood is Mood.DEAD:
            raise EngineDeadError("the engine is dead")
        if mood is Mood.UNAVAILABLE:
            raise EngineUnavailableError("the engine sleeps")
        if mood is Mood.FULL:
            raise QueueFullError("too many requests wait")
        if mood is Mood.REFUSES:
            raise refusal("not today")


def _output(request_id: str, prompt: Any, texts: list[str], *, last: bool) -> RequestOutput:
    completions = [
        CompletionOutput(
            index=index,
            text=text,
            token_ids=list(text.encode()),
            finish_reason="length" if last else None,
        )
        for index, text in enumerate(texts)
    ]
    return RequestOutput(
        request_id=request_id,
        prompt=prompt if isinstance(prompt, str) else None,
        prompt_token_ids=[97],
        outputs=completions,
        finished=last,
    )
