"""Stop strings: earliest end, list order, minimal hold-back, independent of the pieces."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from framework.frontend.stop_strings import StopMatcher

texts = st.text("ab.", max_size=20)
stop_lists = st.lists(st.text("ab.", min_size=1, max_size=4), min_size=1, max_size=4)


def feed(stops: list[str], pieces: list[str]) -> tuple[str, int] | None:
    """(stop, end in the whole text) of the match."""
    matcher, at = StopMatcher(stops), 0
    for piece in pieces:
        match = matcher.feed(piece)
        if match is not None:
            return match.stop, at + match.end
        at += len(piece)
    return None


def expected(stops: list[str], text: str) -> tuple[str, int] | None:
    for end in range(1, len(text) + 1):
        for stop in stops:
            if text[:end].endswith(stop):
                return stop, end
    return None


@pytest.mark.parametrize(
    ("stops", "text", "match"),
    [
        (["DEFGHIJ"], "abcDEFGHIJk", ("DEFGHIJ", 10)),
        ([".."], "x...", ("..", 3)),
        (["stop"], "stop!", ("stop", 4)),
        (["there", "he"], "over there", ("he", 8)),
        (["bc", "abc"], "abc", ("bc", 3)),
        (["abc", "bc"], "abc", ("abc", 3)),
        (["aab"], "aaab", ("aab", 4)),
        (["x"], "abc", None),
    ],
)
def test_match(stops: list[str], text: str, match: tuple[str, int] | None) -> None:
    assert feed(stops, [text]) == match
    assert feed(stops, list(text)) == match


@given(stops=stop_lists, pieces=st.lists(texts, max_size=6))
def test_any_pieces_find_the_earliest_end(stops: list[str], pieces: list[str]) -> None:
    assert feed(stops, pieces) == expected(stops, "".join(pieces))


@given(stops=stop_lists, text=texts)
def test_hold_back_is_the_longest_beginning_of_a_stop(stops: list[str], text: str) -> None:
    matcher = StopMatcher(stops)
    if matcher.feed(text) is not None:
        return
    held = max(
        size
        for size in range(len(text) + 1)
        if any(len(stop) > size and stop.startswith(text[len(text) - size :]) for stop in stops)
    )
    assert matcher.num_held == held


@given(stops=stop_lists, early=texts, late=texts)
def test_unarmed_text_can_begin_a_match_but_not_end_one(
    stops: list[str], early: str, late: str
) -> None:
    matcher = StopMatcher(stops)
    assert matcher.feed(early, armed=False) is None
    match = matcher.feed(late)
    whole = early + late
    ends = [
        (stop, end - len(early))
        for end in range(len(early) + 1, len(whole) + 1)
        for stop in stops
        if whole[:end].endswith(stop)
    ]
    assert match == (ends[0] if ends else None)
