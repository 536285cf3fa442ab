"""The mixed load of the soak run, and the account of what the server should have counted."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

import msgspec

from framework.bench.client import Client
from framework.bench.prompts import TOKEN_IDS, WORDS

__all__ = ["Account", "Mix", "Sizes", "client"]

_HUNG_S = 300.0


@dataclass(frozen=True)
class Sizes:
    """How large requests are, in tokens."""

    prefix: int
    long_tail: int
    output: int
    context: int


@dataclass
class Account:
    """What was sent and what came back. Requests whose client goes away may have ended before, so
    of them only the most that they can count is known."""

    sent: Counter[str] = field(default_factory=Counter)
    statuses: Counter[int] = field(default_factory=Counter)
    wrong: Counter[str] = field(default_factory=Counter)
    """What should not have happened."""
    outputs: int = 0
    output_tokens: int = 0
    prompt_tokens: int = 0
    """Once for each output of a request, as the server counts."""
    gone_outputs: int = 0
    gone_output_tokens: int = 0
    gone_prompt_tokens: int = 0


@dataclass(frozen=True)
class Asked:
    """A request, and what is to come of it."""

    kind: str
    path: str
    body: Any
    status: int = 200
    leave_after: int | None = None
    """The client goes away after so many reads; 0: before the first."""


class Mix:
    """Draws requests. The same seed draws the same."""

    def __init__(self, seed: int, sizes: Sizes) -> None:
        self.draw = Random(seed)
        self._sizes = sizes
        shared = Random(0)
        self._prefixes = [
            shared.choices(TOKEN_IDS, k=sizes.prefix * (1 + at % 4) // 4) for at in range(8)
        ]
        self._kinds: dict[Callable[[], Asked], int] = {
            self._stream: 30,
            self._whole: 20,
            self._several: 8,
            self._logprobs: 8,
            self._chat: 12,
            self._long: 5,
            self._leaves: 10,
            self._bad: 7,
        }

    def next(self) -> Asked:
        """By the weights of the kinds."""
        [kind] = self.draw.choices(list(self._kinds), list(self._kinds.values()))
        return kind()

    def _stream(self) -> Asked:
        return Asked("stream", "/v1/completions", self._streamed(self._completion()))

    def _whole(self) -> Asked:
        return Asked("whole", "/v1/completions", self._completion())

    def _several(self) -> Asked:
        body = {**self._completion(), "n": self.draw.randint(2, 4), "temperature": 0.8}
        return Asked("n > 1", "/v1/completions", self._streamed(body, self.draw.random() < 0.5))

    def _logprobs(self) -> Asked:
        if self.draw.random() < 0.5:
            body = {**self._completion(), "logprobs": self.draw.randint(0, 5)}
            return Asked("logprobs", "/v1/completions", self._streamed(body))
        body = {**self._conversation(), "logprobs": True, "top_logprobs": self.draw.randint(0, 5)}
        return Asked("logprobs", "/v1/chat/completions", self._streamed(body))

    def _chat(self) -> Asked:
        body = {**self._conversation(), "stop": ["\n\n\n"]}
        streams = self.draw.random() < 0.7
        return Asked("chat", "/v1/chat/completions", self._streamed(body, streams))

    def _long(self) -> Asked:
        tail = self.draw.choices(TOKEN_IDS, k=self.draw.randint(8, self._sizes.long_tail))
        body = self._completion(tail)
        return Asked("long prompt", "/v1/completions", self._streamed(body))

    def _leaves(self) -> Asked:
        draw = self.draw
        streams = draw.random() < 0.7
        body = {**self._completion(), "max_tokens": self._sizes.output, "n": draw.choice([1, 1, 2])}
        after = draw.randint(0, 8) if streams else 0
        body["temperature"] = 0.7
        return Asked(
            "client leaves",
            "/v1/completions",
            self._streamed(body, streams),
            leave_after=after,
        )

    def _bad(self) -> Asked:
        good = self._completion()
        kinds: list[tuple[str, Any, int]] = [
            ("/v1/completions", {**good, "max_tokens": -1}, 400),
            ("/v1/completions", {**good, "prompt": []}, 400),
            ("/v1/completions", {**good, "temperature": "hot"}, 400),
            ("/v1/completions", {**good, "prompt": [2**31 - 1]}, 400),
            ("/v1/completions", {**good, "prompt": [11] * (self._sizes.context + 1)}, 400),
            ("/v1/completions", {**good, "model": "another"}, 404),
            ("/v1/completions", msgspec.Raw(b'{"prompt": '), 400),
            ("/v1/chat/completions", {"messages": [{"role": "nobody"}]}, 400),
            ("/v1/nothing", good, 404),
        ]
        path, body, status = self.draw.choice(kinds)
        return Asked("bad request", path, body, status=status)

    def _completion(self, tail: list[int] | None = None) -> dict[str, Any]:
        draw = self.draw
        if tail is None:
            tail = draw.choices(TOKEN_IDS, k=draw.randint(1, 32))
        body: dict[str, Any] = {
            "prompt": draw.choice(self._prefixes) + tail if draw.random() < 0.8 else tail,
            "max_tokens": draw.randint(1, self._sizes.output),
            "ignore_eos": draw.random() < 0.7,
        }
        if draw.random() < 0.7:
            body["temperature"] = 0
        else:
            body.update(temperature=0.9, top_p=0.95, seed=draw.randrange(2**32))
        return body

    def _conversation(self) -> dict[str, Any]:
        draw = self.draw
        words = " ".join(draw.choices(WORDS, k=draw.randint(1, 40)))
        return {
            "messages": [
                {"role": "system", "content": "You answer briefly and friendly. " * 4},
                {"role": "user", "content": words},
            ],
            "max_tokens": draw.randint(1, self._sizes.output),
            "temperature": draw.choice([0, 0.8]),
        }

    def _streamed(self, body: dict[str, Any], streams: bool = True) -> dict[str, Any]:
        if not streams:
            return body
        return {**body, "stream": True, "stream_options": {"include_usage": True}}


async def client(http: Client, mix: Mix, account: Account, stop: asyncio.Event) -> None:
    """One client: a request after the other until `stop`."""
    while not stop.is_set():
        asked = mix.next()
        account.sent[asked.kind] += 1
        reading = _Reading(asked.leave_after)
        exchange = asyncio.create_task(
            http.exchange(http.post(asked.path, asked.body), reading), name=asked.kind
        )
        try:
            if asked.leave_after is None:
                await asyncio.wait_for(exchange, _HUNG_S)
                _settle(asked, reading, account)
            else:
                await _leave(exchange, reading, mix.draw)
                account.statuses[reading.status] += 1
                _settle_gone(asked, reading, account)
        except TimeoutError:
            account.wrong[f"{asked.kind}: no answer within {_HUNG_S:g} s"] += 1
        except OSError as error:
            account.wrong[f"{asked.kind}: {error}"] += 1


async def _leave(exchange: asyncio.Task[None], reading: _Reading, draw: Random) -> None:
    """Go away after the wanted reads, or when it ends before."""
    if reading.wanted:
        left = asyncio.create_task(reading.left.wait())
        await asyncio.wait({exchange, left}, return_when=asyncio.FIRST_COMPLETED)
        left.cancel()
    else:
        await asyncio.wait({exchange}, timeout=draw.random() * 0.05)
    exchange.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await exchange


class _Reading:
    """Reads an answer; sets `left` after `wanted` pieces."""

    def __init__(self, wanted: int | None) -> None:
        self.wanted = wanted
        self.left = asyncio.Event()
        self.status = 0
        self.streams = False
        self.data = bytearray()
        self._pieces = 0

    def head(self, status: int, content_type: str) -> None:
        """See Receiver."""
        self.status = status
        self.streams = content_type.startswith("text/event-stream")

    def body(self, data: bytes) -> None:
        """See Receiver."""
        self.data += data
        self._pieces += 1
        if self._pieces == self.wanted:
            self.left.set()


class _Usage(msgspec.Struct):
    prompt_tokens: int
    completion_tokens: int


class _Part(msgspec.Struct):
    usage: _Usage | None = None
    error: Any = None


def _settle(asked: Asked, reading: _Reading, account: Account) -> None:
    """Check a complete answer, and count it."""
    account.statuses[reading.status] += 1
    if reading.status != asked.status:
        text = bytes(reading.data[:200]).decode("utf-8", "replace")
        account.wrong[f"{asked.kind}: {reading.status} for {asked.status}: {text}"] += 1
        return
    if reading.status != 200:
        return
    parts = [bytes(reading.data)]
    if reading.streams:
        lines = bytes(reading.data).split(b"\n")
        parts = [line[6:] for line in lines if line.startswith(b"data: ")]
        if parts[-1:] != [b"[DONE]"]:
            account.wrong[f"{asked.kind}: a stream without its end"] += 1
        parts = [part for part in parts if part != b"[DONE]"]
    read = [msgspec.json.decode(part, type=_Part) for part in parts]
    errors = [part.error for part in read if part.error is not None]
    if errors:
        account.wrong[f"{asked.kind}: an error within the stream: {errors[0]}"] += 1
        return
    usage = next((part.usage for part in reversed(read) if part.usage is not None), None)
    if usage is None:
        account.wrong[f"{asked.kind}: an answer without usage"] += 1
        return
    n = asked.body.get("n", 1)
    account.outputs += n
    account.output_tokens += usage.completion_tokens
    account.prompt_tokens += usage.prompt_tokens * n


def _settle_gone(asked: Asked, reading: _Reading, account: Account) -> None:
    if reading.status not in (0, 200):
        account.wrong[f"{asked.kind}: {reading.status}"] += 1
    n = asked.body["n"]
    account.gone_outputs += n
    account.gone_output_tokens += n * asked.body["max_tokens"]
    account.gone_prompt_tokens += n * len(asked.body["prompt"])
