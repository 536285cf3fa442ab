"""Masking: what is masked, and that it does not depend on how a text is cut."""

from __future__ import annotations

import pytest
from hookspecs import CompletionOutput, OutputKind, RequestOutput
from hypothesis import given
from hypothesis import strategies as st

from request_guard.redaction import MASK, Redaction
from request_guard.streams import Streams


def whole(texts: list[str], text: str) -> str:
    shown, withheld = Redaction(texts).mask(text, last=True)
    assert withheld == ""
    return shown


@pytest.mark.parametrize(
    ("texts", "text", "shown"),
    [
        ([], "a secret", "a secret"),
        (["secret"], "a Secret, SECRETS, and more", "a [redacted], [redacted]S, and more"),
        (["secret", "secretary"], "the secretary's secret", "the [redacted]'s [redacted]"),
        (["ab", "bc"], "abc", "[redacted]c"),
        (["aa"], "aaaaa", "[redacted][redacted]a"),
        (["a.c"], "abc a.c", "abc [redacted]"),
        (["straße", "ΟΔΟΣ"], "STRAßE, οδοσ", "[redacted], [redacted]"),
        (["İ"], "i̇ İ", "i̇ [redacted]"),
    ],
)
def test_what_is_masked(texts: list[str], text: str, shown: str) -> None:
    assert whole(texts, text) == shown


def test_only_what_may_begin_an_occurrence_is_withheld() -> None:
    redaction = Redaction(["secret", "sect"])
    assert redaction.mask("the se", last=False) == ("the ", "se")
    assert redaction.mask("the sea", last=False) == ("the sea", "")
    assert redaction.mask("the secret", last=False) == (f"the {MASK}", "")
    longer = Redaction(["secret", "secretary"])
    assert longer.mask("the secret", last=False) == ("the ", "secret")
    assert longer.mask("the secret", last=True) == (f"the {MASK}", "")
    assert longer.mask("the secrets", last=False) == (f"the {MASK}", "s")


ALPHABET = "abAB"


def completion(text: str, finished: bool, index: int = 0) -> CompletionOutput:
    return CompletionOutput(index=index, text=text, finish_reason="stop" if finished else None)


def output(*completions: CompletionOutput, finished: bool) -> RequestOutput:
    return RequestOutput(
        request_id="r",
        prompt=None,
        prompt_token_ids=[1],
        outputs=list(completions),
        finished=finished,
    )


@given(
    st.lists(st.text(ALPHABET, min_size=1, max_size=4), min_size=1, max_size=4),
    st.lists(st.text(ALPHABET, max_size=5), max_size=8),
)
def test_a_stream_shows_the_same_as_the_whole(texts: list[str], pieces: list[str]) -> None:
    streams = Streams(Redaction(texts))
    expected = whole(texts, "".join(pieces))
    shown = ""
    for number, piece in enumerate(["", *pieces, ""]):
        last = number == len(pieces) + 1
        masked = streams.masked(output(completion(piece, last), finished=last), OutputKind.DELTA)
        shown += masked.outputs[0].text
        assert expected.startswith(shown), "what was shown is taken back"
    assert shown == expected
    assert streams.num_open == 0


@given(
    st.lists(st.text(ALPHABET, min_size=1, max_size=4), min_size=1, max_size=4),
    st.text(ALPHABET, max_size=30),
)
def test_cumulative_outputs_only_grow(texts: list[str], text: str) -> None:
    streams = Streams(Redaction(texts))
    expected = whole(texts, text)
    for end in range(len(text) + 1):
        given_ = output(completion(text[:end], False), finished=False)
        shown = streams.masked(given_, OutputKind.CUMULATIVE).outputs[0].text
        assert expected.startswith(shown)
        assert given_.outputs[0].text == text[:end], "the output it was given was changed"
    final = output(completion(text, True), finished=True)
    assert streams.masked(final, OutputKind.FINAL_ONLY).outputs[0].text == expected


def test_outputs_of_a_request_do_not_mix() -> None:
    streams = Streams(Redaction(["secret"]))

    def step(*completions: CompletionOutput, finished: bool = False) -> list[str]:
        masked = streams.masked(output(*completions, finished=finished), OutputKind.DELTA)
        return [each.text for each in masked.outputs]

    assert step(completion("sec", False), completion("a se", False, 1)) == ["", "a "]
    assert step(completion("t", False, 1)) == ["set"]
    assert step(completion("ret", True)) == [MASK]
    assert step(completion("x", True, 1), finished=True) == ["x"]


def test_a_request_does_not_get_what_an_earlier_one_of_its_id_left() -> None:
    streams = Streams(Redaction(["secret"]))
    streams.masked(output(completion("sec", False), finished=False), OutputKind.DELTA)
    streams.begin("r")
    masked = streams.masked(output(completion("ret", False), finished=False), OutputKind.DELTA)
    assert masked.outputs[0].text == "ret"
