"""Offsets of tokens in a text do not depend on the pieces in which text and tokens come."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from builtin_plugins.openai_server.logprobs import CompletionLogprobs, TextAligner
from hookspecs.types.outputs import Logprob
from tests.openai_server.fakes import FakeEngine

TOKENS = st.sampled_from(["a", "ab", " a", "b", "", "<end>", "\n"])


def join(parts: list[CompletionLogprobs]) -> CompletionLogprobs:
    whole = CompletionLogprobs()
    for part in parts:
        whole.tokens += part.tokens
        whole.token_logprobs += part.token_logprobs
        whole.top_logprobs += part.top_logprobs
        whole.text_offset += part.text_offset
    return whole


@given(
    tokens=st.lists(TOKENS, max_size=12),
    special=st.booleans(),
    first_space=st.booleans(),
    cut=st.integers(0, 8),
    late=st.lists(st.integers(0, 4), max_size=12),
)
def test_every_cutting_gives_the_same(
    tokens: list[str], special: bool, first_space: bool, cut: int, late: list[int]
) -> None:
    text = "".join(token for token in tokens if special or token != "<end>")
    text = text if first_space else text.removeprefix(" ")
    text = text[: max(0, len(text) - cut)]  # what a stop string has left
    positions = [{at: Logprob(-float(at), 1, token)} for at, token in enumerate(tokens)]
    engine = FakeEngine()
    whole = TextAligner(engine).push(text, positions, finished=True)
    aligner, parts, sent = TextAligner(engine), [], 0
    for at, position in enumerate(positions):
        # The text comes later than the token, as it does while it may begin a stop string.
        count = late[at] if at < len(late) else 0
        parts.append(aligner.push(text[sent : sent + count], [position], finished=False))
        sent += count
    parts.append(aligner.push(text[sent:], [], finished=True))
    assert join(parts) == whole
    assert whole.tokens == tokens
    assert whole.text_offset == sorted(whole.text_offset)
    assert all(0 <= offset <= len(text) for offset in whole.text_offset)


@given(st.lists(st.sampled_from(["a", "bc", " d", "é", "😀"]), max_size=12))
def test_offsets_are_exact(tokens: list[str]) -> None:
    positions = [{at: Logprob(-0.5, 1, token)} for at, token in enumerate(tokens)]
    text = "".join(tokens)
    found = TextAligner(FakeEngine()).push(text, positions, finished=True)
    assert found.text_offset == [len("".join(tokens[:at])) for at in range(len(tokens))]


def test_a_part_of_a_character_has_no_text_and_a_bad_one_is_passed() -> None:
    positions = [{at: Logprob(-0.5, 1, token)} for at, token in enumerate(["a", "", "b"])]
    found = TextAligner(FakeEngine()).push("a\ufffdb", positions, finished=True)
    assert found.text_offset == [0, 1, 2]
