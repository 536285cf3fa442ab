"""Stop strings, from the script of the model to what a client gets."""

from __future__ import annotations

from typing import Any

import pytest

from tests.server.asking import CHAT, Ask, says
from tests.server.process import Server


def test_nothing_of_a_stop_string_over_several_tokens_is_sent(
    scripted: Server, ids: Any, ask: Ask
) -> None:
    """The text ends before the stop string, no chunk has a part of it, and the reason is stop."""
    script = ids("abc", "DEF", "G", "HI", "J", "tail", "tail")
    choice = ask(scripted, says(script, stop="DEFGHIJ")).only
    assert choice.text == "abc"
    assert (choice.finish_reason, choice.stop_reason) == ("stop", "DEFGHIJ")
    assert not any(set(chunk) & set("DEFGHIJ") for chunk in choice.chunks)
    assert choice.token_ids == script[:5]


@pytest.mark.parametrize("ending", ["end token", "length"])
def test_text_held_back_for_a_stop_string_is_given_at_the_end(
    scripted: Server, ids: Any, ask: Ask, ending: str
) -> None:
    """An output that ends with the beginning of a stop string is given whole."""
    script = ids("abc", "DEF", "G")
    limit = 3 if ending == "length" else 20
    choice = ask(scripted, says(script, stop=["DEFGHIJ"], max_tokens=limit)).only
    assert choice.text == "abcDEFG"
    assert choice.finish_reason == ("length" if ending == "length" else "stop")
    assert choice.stop_reason is None


@pytest.mark.parametrize("chat", [False, True])
def test_text_ids_logprobs_and_usage_follow_one_cut(
    scripted: Server, ids: Any, ask: Ask, chat: bool
) -> None:
    """The text ends before the stop string; ids, logprobs and usage with the token that
    completed it."""
    script = ids("abc", "DEF", "HI", "tail", "tail")
    body = says(script, stop="FH", logprobs=2)
    if chat:
        del body["prompt"]
        body |= {"messages": [{"role": "user", "content": "hi"}], "logprobs": True}
    body |= {"stream_options": {"include_usage": True}} if ask.form.streamed else {}
    answer = ask(scripted, body, CHAT) if chat else ask(scripted, body)
    choice = answer.only
    assert choice.text == "abcDE"
    assert choice.token_ids == script[:3]
    if chat:
        named = [entry["token"] for entry in choice.logprobs["content"]]
    else:
        named = choice.logprobs["tokens"]
        assert choice.logprobs["text_offset"] == [0, 3, 5]
        assert len(choice.logprobs["token_logprobs"]) == 3
    assert named == ["abc", "DEF", "HI"]
    assert answer.usage is not None
    assert answer.usage["completion_tokens"] == 3


@pytest.mark.parametrize("include", [False, True])
@pytest.mark.parametrize(
    ("piece", "stop", "before"), [("...", "..", ""), ("stop!", "stop", ""), ("tail", "ai", "t")]
)
def test_a_stop_string_inside_a_token_cuts_inside_it(
    scripted: Server, ids: Any, ask: Ask, piece: str, stop: str, before: str, include: bool
) -> None:
    """The text ends at the first character of the match, or with `include` after its last."""
    script = ids("abc", piece, "tail")
    choice = ask(scripted, says(script, stop=stop, include_stop_str_in_output=include)).only
    assert choice.text == "abc" + before + (stop if include else "")
    assert choice.token_ids == ids("abc", piece)
    assert choice.finish_reason == "stop"


def test_a_stop_string_holds_for_a_prompt_of_token_ids(
    scripted: Server, ids: Any, ask: Ask
) -> None:
    """It is honoured where token ids are sent and asked for."""
    script = ids("abc", "stop!", "tail")
    choice = ask(scripted, says(script, prompt=ids("abc"), stop="stop")).only
    assert (choice.text, choice.token_ids) == ("abc", script[:2])


@pytest.mark.parametrize(
    "stop",
    [["x"] * 500_000, [""], "", ["a", ""], "s" * 1_000_000, ["s" * 1_000_000], [1], 7],
    ids=["500000", "[empty]", "empty", "one empty", "1 MB", "[1 MB]", "[int]", "int"],
)
def test_stop_strings_beyond_reason_are_refused(
    scripted: Server, ids: Any, ask: Ask, stop: Any
) -> None:
    """Too many, empty, too long or no text: status 400 that names the field, or, before any field
    is looked at, the limit of a whole body."""
    answer = ask(scripted, says(ids("abc"), stop=stop))
    assert "stop" in answer.refusal() or "json_values" in answer.refusal()
    assert len(answer.refusal()) < 1000


@pytest.mark.parametrize("stop", [None, []])
def test_no_stop_string_is_as_none_given(scripted: Server, ids: Any, ask: Ask, stop: Any) -> None:
    """null and an empty list stop nothing."""
    choice = ask(scripted, says(ids("abc", "tail"), stop=stop)).only
    assert (choice.text, choice.finish_reason) == ("abctail", "stop")
