"""Stop strings, from the script of the model to what the user gets."""

from __future__ import annotations

from typing import Any

import pytest

from framework import SamplingParams
from hookspecs.errors import InvalidRequestError


def says(tokens: list[int], **fields: Any) -> SamplingParams:
    return SamplingParams(temperature=0, extensions={"scripted": {"tokens": tokens}}, **fields)


def test_nothing_of_a_stop_string_over_several_tokens_is_sent(
    launch: Any, ids: Any, ask: Any, watcher: Any
) -> None:
    engine = launch(text=True)
    script = ids("abc", "DEF", "G", "HI", "J", "tail", "tail")
    answer = ask(engine, "abc", says(script, stop="DEFGHIJ"))
    assert answer.text == "abc"
    assert (answer.finish_reason, answer.stop_reason) == ("stop", "DEFGHIJ")
    assert not any(set(chunk) & set("DEFGHIJ") for chunk in answer.chunks)
    assert answer.token_ids == script[:5]
    # The engine was told at once: it computed no token more.
    (event,) = (e for e in watcher.finished if e.request_id.startswith("asked"))
    assert event.num_output_tokens == 5


@pytest.mark.parametrize("ending", ["end token", "length"])
def test_text_held_back_for_a_stop_string_is_given_at_the_end(
    launch: Any, ids: Any, ask: Any, ending: str
) -> None:
    engine = launch(text=True)
    script = ids("abc", "DEF", "G")
    limit = 3 if ending == "length" else 20
    answer = ask(engine, "abc", says(script, stop=["DEFGHIJ"], max_tokens=limit))
    assert answer.text == "abcDEFG"
    assert answer.finish_reason == ("length" if ending == "length" else "stop")
    assert answer.stop_reason is None


def test_text_ids_logprobs_and_usage_follow_one_cut(
    launch: Any, ids: Any, ask: Any, watcher: Any
) -> None:
    engine = launch(text=True)
    script = ids("abc", "DEF", "HI", "tail", "tail")
    answer = ask(engine, "abc", says(script, stop="FH", logprobs=2))
    assert answer.text == "abcDE"
    assert answer.token_ids == script[:3]
    assert [next(iter(position)) for position in answer.logprobs] == script[:3]
    (event,) = (e for e in watcher.finished if e.request_id.startswith("asked"))
    assert event.num_output_tokens == len(answer.token_ids)


@pytest.mark.parametrize("include", [False, True])
@pytest.mark.parametrize(
    ("piece", "stop", "before"), [("...", "..", ""), ("stop!", "stop", ""), ("tail", "ai", "t")]
)
def test_a_stop_string_inside_a_token_cuts_inside_it(
    launch: Any, ids: Any, ask: Any, piece: str, stop: str, before: str, include: bool
) -> None:
    engine = launch(text=True)
    params = says(ids("abc", piece, "tail"), stop=stop, include_stop_str_in_output=include)
    answer = ask(engine, "abc", params)
    assert answer.text == "abc" + before + (stop if include else "")
    assert answer.token_ids == ids("abc", piece)
    assert answer.finish_reason == "stop"


def test_stop_strings_hold_for_token_prompts_or_are_refused(
    launch: Any, ids: Any, ask: Any
) -> None:
    engine = launch(text=True)
    script = ids("abc", "stop!", "tail")
    answer = ask(engine, ids("abc"), says(script, stop="stop"))
    assert (answer.text, answer.token_ids) == ("abc", script[:2])
    with pytest.raises(InvalidRequestError, match="detokenize is false"):
        ask(engine, ids("abc"), says(script, stop="stop", detokenize=False))
    engine.engine.abort_request([f"neighbour {i}" for i in range(3)])


def test_a_stop_string_without_a_tokenizer_is_refused(launch: Any) -> None:
    engine = launch()
    with pytest.raises(InvalidRequestError, match="no tokenizer"):
        engine.generate([[1, 2]], says([5, 6], stop="x"))


def test_a_stop_string_that_the_prompt_begins_does_not_count(
    launch: Any, ids: Any, ask: Any
) -> None:
    engine = launch(text=True)
    answer = ask(engine, "DEFG", says(ids("HI", "J"), stop="DEFGHI"))
    assert answer.text == "HIJ"


def test_no_string_stops_before_min_tokens(launch: Any, ids: Any, ask: Any) -> None:
    engine = launch(text=True)
    script = ids("abc", "stop!", "abc", "stop!", "tail")
    answer = ask(engine, "abc", says(script, stop="stop", min_tokens=3))
    assert answer.text == "abcstop!abc"
    assert answer.token_ids == script[:4]
