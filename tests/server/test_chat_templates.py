"""Conversations that a template refuses are the client's error."""

from __future__ import annotations

from typing import Any

import pytest

from tests.server.asking import CHAT, Ask
from tests.server.process import Server

USER = {"role": "user", "content": "hi"}


@pytest.mark.parametrize(
    ("messages", "said"),
    [
        ([USER, USER], "must alternate"),
        ([{"role": "assistant", "content": "hi"}], "must alternate"),
        ([{"role": "system", "content": "hi"}, USER], "user and assistant only"),
        ([{"role": "wizard", "content": "hi"}], "wizard"),
        ([{"role": "user"}], "content"),
        ([{"role": "user", "content": None}], "content"),
        ([{"role": "user", "content": [{"type": "image_url"}]}], "image_url"),
        ([], "messages"),
        (None, "messages"),
        ("hi", "messages"),
        ([None], "messages"),
        ([{"content": "hi"}], "role"),
    ],
)
def test_a_conversation_that_can_not_be_rendered_is_refused(
    scripted: Server, ask: Ask, messages: Any, said: str
) -> None:
    """Status 400 with what the template, or the check before it, says; never another format."""
    answer = ask(scripted, {"messages": messages, "max_tokens": 3}, CHAT)
    assert said in answer.refusal()


def test_a_conversation_that_alternates_is_answered(scripted: Server, ids: Any, ask: Ask) -> None:
    """By what the model says after it."""
    messages = [USER, {"role": "assistant", "content": "yes"}, USER]
    body = {"messages": messages, "extensions": {"scripted": {"tokens": ids("abc", "tail")}}}
    choice = ask(scripted, body, CHAT).only
    assert (choice.text, choice.finish_reason) == ("abctail", "stop")


def test_arguments_of_the_template_can_not_break_it(scripted: Server, ask: Ask) -> None:
    """Names that the template gets anyway are refused or without effect."""
    for given in ({"messages": 7}, {"add_generation_prompt": False}, {"other": [1]}):
        body = {"messages": [USER], "chat_template_kwargs": given, "max_tokens": 2}
        answer = ask(scripted, body, CHAT)
        assert answer.status in (200, 400)
