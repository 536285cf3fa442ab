"""Answers of the text endpoints, streamed or whole, in one form."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import httpx

__all__ = ["Answer", "Choice", "answer_of", "stream_of"]

LISTS = ("tokens", "token_logprobs", "top_logprobs", "text_offset", "content")


@dataclass
class Choice:
    """One output."""

    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    logprobs: dict[str, list[Any]] = field(default_factory=dict)
    prompt_logprobs: list[Any] | None = None
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    chunks: list[str] = field(default_factory=list)
    """The text as it came; of a whole answer one."""

    def add(self, given: dict[str, Any]) -> None:
        """What an answer or a chunk has of it."""
        message = given.get("message") or given.get("delta") or {}
        text = given.get("text", message.get("content")) or ""
        self.text += text
        self.chunks.append(text)
        self.token_ids += given.get("token_ids") or []
        for name in LISTS:
            if name in (given.get("logprobs") or {}):
                self.logprobs.setdefault(name, []).extend(given["logprobs"][name])
        self.prompt_logprobs = given.get("prompt_logprobs", self.prompt_logprobs)
        self.finish_reason = given.get("finish_reason") or self.finish_reason
        self.stop_reason = given.get("stop_reason", self.stop_reason)


@dataclass
class Answer:
    """All that came of one request."""

    status: int
    headers: httpx.Headers
    choices: list[Choice] = field(default_factory=list)
    usage: dict[str, Any] | None = None
    error: dict[str, Any] | None = None
    """Of the body, or of an event in the stream."""
    events: list[dict[str, Any]] = field(default_factory=list)
    """Of a stream."""
    done: bool = False
    """Whether the stream ended as it should."""

    @property
    def only(self) -> Choice:
        """The choice of an answer that has one."""
        assert self.status == 200, self.error
        (choice,) = self.choices
        return choice

    def refusal(self) -> str:
        """The message of an answer with status 400, which is a whole error."""
        assert self.status == 400, (self.status, self.error)
        assert self.error is not None
        assert set(self.error) == {"message", "type", "param", "code"}
        message: str = self.error["message"]
        assert message
        return message


def answer_of(response: httpx.Response) -> Answer:
    """A whole answer, or a stream that has been read to its end."""
    answer = Answer(response.status_code, response.headers)
    if response.headers["content-type"].startswith("text/event-stream"):
        assert response.status_code == 200
        for event in response.text.split("\n\n"):
            _add_event(answer, event)
        return answer
    body = response.json()
    answer.error = body.get("error")
    answer.usage = body.get("usage")
    for given in body.get("choices", ()):
        _choice(answer, given).add(given)
    return answer


def stream_of(lines: list[str]) -> Answer:
    """What came of a stream in these lines."""
    answer = Answer(200, httpx.Headers())
    for line in lines:
        _add_event(answer, line)
    return answer


def _add_event(answer: Answer, event: str) -> None:
    if not event or event.startswith(":"):
        return
    assert event.startswith("data: "), event
    assert not answer.done, "an event after the end"
    data = event.removeprefix("data: ")
    if data == "[DONE]":
        answer.done = True
        return
    chunk = json.loads(data, parse_constant=_no_constant)
    answer.events.append(chunk)
    assert answer.error is None, "an event after an error"
    answer.error = chunk.get("error")
    answer.usage = chunk.get("usage") or answer.usage
    for given in chunk.get("choices", ()):
        choice = _choice(answer, given)
        assert choice.finish_reason is None, "a chunk after the last of its choice"
        choice.add(given)


def _choice(answer: Answer, given: dict[str, Any]) -> Choice:
    index: int = given["index"]
    while len(answer.choices) <= index:
        answer.choices.append(Choice())
    return answer.choices[index]


def _no_constant(name: str) -> Any:
    raise AssertionError(f"{name} is not JSON")
