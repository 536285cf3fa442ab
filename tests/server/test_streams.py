"""What a stream holds besides text, how it fails, and how slow its reader may be."""

from __future__ import annotations

import asyncio
import json
import socket
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.server.answers import answer_of, stream_of
from tests.server.asking import CHAT, COMPLETIONS, Ask, greedy, open_stream, says
from tests.server.conftest import VOCABULARY
from tests.server.process import Server, eventually

FORMS: dict[str, dict[str, Any]] = {
    "plain": greedy([1, 2], 6),
    "n": {
        **greedy([1, 2], 6),
        "temperature": 1,
        "n": 2,
        "extensions": {"scripted": {"logits": [[0.0] * VOCABULARY]}},
    },
    "several prompts": greedy([[1, 2], [3], [4, 5, 6]], 6),
    "stop string": says([30, 31, 32, 33], stop="@"),
}


@pytest.mark.parametrize("token_ids", [False, True])
@pytest.mark.parametrize("form", FORMS)
def test_usage_comes_in_one_last_chunk_if_asked_for(
    scripted: Server, form: str, token_ids: bool
) -> None:
    """It has no choices and the counts of all; the other chunks have null, and without asking
    there is no usage at all."""
    body = {**FORMS[form], "stream": True, "return_token_ids": token_ids}
    plain = answer_of(scripted.post(COMPLETIONS, body))
    assert not any("usage" in event for event in plain.events)
    options = {"include_usage": True}
    counted = answer_of(scripted.post(COMPLETIONS, {**body, "stream_options": options}))
    assert [event["usage"] for event in counted.events[:-1]] == [None] * (len(counted.events) - 1)
    last = counted.events[-1]
    assert last["choices"] == []
    whole = answer_of(scripted.post(COMPLETIONS, {**body, "stream": False}))
    for name in ("prompt_tokens", "completion_tokens", "total_tokens"):
        assert whole.usage is not None
        assert last["usage"][name] == whole.usage[name]


def test_a_chat_with_usage(scripted: Server) -> None:
    """As a completion."""
    body = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 5, "stream": True}
    plain = answer_of(scripted.post(CHAT, body))
    assert not any("usage" in event for event in plain.events)
    counted = answer_of(scripted.post(CHAT, {**body, "stream_options": {"include_usage": True}}))
    assert counted.events[-1]["choices"] == []
    assert counted.events[-1]["usage"]["completion_tokens"] == 5
    assert all(event["usage"] is None for event in counted.events[:-1])


@pytest.mark.parametrize("at", [0, 5])
@pytest.mark.parametrize("chat", [False, True])
def test_a_model_that_fails_is_told_once_and_counted(
    scripted: Server, ids: Any, ask: Ask, chat: bool, at: int
) -> None:
    """Before the first byte it is an error by status; later one error event, after which the
    stream ends as every stream does. The request counts as failed."""
    before = scripted.metrics()["requests_total:error"]
    body = says(ids("a", "b", "c", "d", "e", "f", "g"))
    body["extensions"]["scripted"]["fail_at"] = at
    if chat:
        del body["prompt"]
        body["messages"] = [{"role": "user", "content": "hi"}]
    answer = ask(scripted, body, CHAT if chat else COMPLETIONS, failing=True)
    assert answer.error is not None
    assert answer.error["message"]
    assert (answer.error["type"], answer.error["code"]) == ("server_error", "request_failed")
    if ask.form.streamed and at:
        assert answer.status == 200
        assert answer.choices[0].text == "abcde"
        assert answer.choices[0].finish_reason is None
        assert [set(event) == {"error"} for event in answer.events[-2:]] == [False, True]
    else:
        assert answer.status == 500
    eventually(
        lambda: scripted.metrics()["requests_total:error"] == before + 1, "it was not counted"
    )


def test_a_failing_prompt_of_several_ends_the_whole_call(scripted: Server, ids: Any) -> None:
    """One error event, and nothing of the others is left."""
    body = says(ids("a", "b", "c"), prompt=["abc", "DEF", "HI"], stream=True)
    body["extensions"]["scripted"]["fail_at"] = 2
    answer = answer_of(scripted.post(COMPLETIONS, body))
    assert answer.error is not None
    assert answer.done


def test_a_slow_reader_slows_nobody(scripted: Server, plain: Any) -> None:
    """Of a long stream with many logprobs a client reads nothing for a while: what waits for it
    is bounded, ten others are served meanwhile, and then it gets all of its answer."""
    length = 1500
    body = {**greedy([5, 6], length), "logprobs": 100, "stream": True, "return_token_ids": True}
    address = urlsplit(scripted.url)
    with socket.socket() as slow:
        # A small window: the server can put little of the answer into the connection.
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.connect((address.hostname, address.port))
        slow.settimeout(60)
        data = json.dumps(body).encode()
        head = (
            f"POST {COMPLETIONS} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
            f"connection: close\r\ncontent-length: {len(data)}\r\n\r\n"
        )
        slow.sendall(head.encode() + data)
        received = slow.recv(1)

        async def fast() -> list[list[int]]:
            bodies = [{**greedy([10 + i], 30), "return_token_ids": True} for i in range(10)]
            posted = [scripted.client.post(COMPLETIONS, json=each) for each in bodies]
            return [answer_of(r).only.token_ids for r in await asyncio.gather(*posted)]

        assert scripted.run(fast()) == [plain([10 + i], 30) for i in range(10)]
        memory = scripted.process.memory_info().rss
        # The engine is not held up by the reader, and what it made waits, merged.
        eventually(scripted.idle, "the engine waits for a reader", 60)
        assert scripted.process.memory_info().rss - memory < 256 << 20
        chunks = [received]
        while data := slow.recv(1 << 16):
            chunks.append(data)
    body_of = _dechunked(b"".join(chunks).partition(b"\r\n\r\n")[2])
    answer = stream_of([event for event in body_of.decode().split("\n\n") if event])
    assert answer.done
    assert answer.only.token_ids == plain([5, 6], length)
    assert len(answer.only.logprobs["token_logprobs"]) == length


def _dechunked(data: bytes) -> bytes:
    """The body of an answer with `transfer-encoding: chunked` (RFC 9112, section 7.1)."""
    parts = []
    while data:
        size, _, data = data.partition(b"\r\n")
        parts.append(data[: int(size, 16)])
        data = data[int(size, 16) + 2 :]
    return b"".join(parts)


def test_a_stream_begins_before_the_answer_is_there(scripted: Server, plain: Any) -> None:
    """Chunks are sent as tokens come: the first while the engine still works."""

    async def first() -> int:
        async with open_stream(scripted, greedy([5], 1500)) as events:
            return len(stream_of([await anext(events)]).only.token_ids)

    assert scripted.run(first()) < 1500
