"""Characters that come in parts."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tests.byte_pieces import EOS
from tests.server.asking import CHAT, Ask, says
from tests.server.process import Server

TEXTS = {
    "emoji": "a\U0001f600b",
    "cjk": "\u4f60\u597d",
    "combining mark": "e\u0301!",
    "flag": "\U0001f1e9\U0001f1ea",
    "joined": "\U0001f468\u200d\U0001f469.",
}


@pytest.mark.parametrize("by", ["byte", "scalar"])
@pytest.mark.parametrize("name", TEXTS)
def test_a_character_is_given_whole_and_once(
    scripted: Server, ids: Any, ask: Ask, name: str, by: str
) -> None:
    """A character whose bytes, or whose parts, are tokens of their own: nothing is sent of it
    before it is complete, and the chunks joined are the text."""
    text = TEXTS[name]
    script = ids(text.encode()) if by == "byte" else ids(*text)
    choice = ask(scripted, says(script)).only
    assert choice.text == text
    assert not any("\ufffd" in chunk for chunk in choice.chunks)


@pytest.mark.parametrize("name", TEXTS)
def test_tokens_that_are_bytes_have_exact_logprobs_of_a_chat(
    scripted: Server, ids: Any, ask: Ask, name: str
) -> None:
    """With as many alternatives as allowed: `bytes` is what the token stands for, `token` is
    valid text."""
    text = TEXTS[name]
    body = says(ids(text.encode()), logprobs=True, top_logprobs=100)
    del body["prompt"]
    body["messages"] = [{"role": "user", "content": text}]
    choice = ask(scripted, body, CHAT).only
    entries = choice.logprobs["content"]
    assert choice.token_ids[-1] == EOS
    assert b"".join(bytes(entry["bytes"]) for entry in entries[:-1]) == text.encode()
    for entry in entries:
        assert len(entry["top_logprobs"]) == 100
        for named in (entry, *entry["top_logprobs"]):
            assert "\ufffd" not in named["token"]
            named["token"].encode()
            assert math.isfinite(named["logprob"])


@pytest.mark.parametrize("name", TEXTS)
def test_tokens_that_are_bytes_have_logprobs_of_a_completion(
    scripted: Server, ids: Any, ask: Ask, name: str
) -> None:
    """The names of the tokens joined are the text; every token has all its alternatives."""
    text = TEXTS[name]
    script = ids(text.encode())
    choice = ask(scripted, says(script, max_tokens=len(script), logprobs=100)).only
    assert "".join(choice.logprobs["tokens"]) == text
    assert len(choice.logprobs["tokens"]) == len(choice.token_ids) == len(script)
    assert all(len(likely) == 100 for likely in choice.logprobs["top_logprobs"])
    ends = [*choice.logprobs["text_offset"][1:], len(text)]
    for token, begin, end in zip(
        choice.logprobs["tokens"], choice.logprobs["text_offset"], ends, strict=True
    ):
        assert text[begin:end] == token
