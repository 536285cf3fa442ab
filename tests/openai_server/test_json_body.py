"""Bodies are read strictly, and what is wrong is said with its place."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builtin_plugins.openai_server.errors import ApiError
from builtin_plugins.openai_server.json_body import BodyDecoder
from builtin_plugins.openai_server.limits import JSON_DEPTH


class Part(msgspec.Struct, forbid_unknown_fields=True):
    text: str


class Body(msgspec.Struct):
    prompt: str = ""
    parts: list[Part] = []
    bias: dict[str, float] = {}
    count: int = 0


class Refusing(msgspec.Struct):
    suffix: str | None = None

    def __post_init__(self) -> None:
        if self.suffix is not None:
            raise ApiError(400, "suffix is not supported", param="suffix", code="unsupported")


DECODER = BodyDecoder(Body)
FREE = BodyDecoder(dict[str, Any])


def refused(data: bytes, decoder: BodyDecoder[Any] = DECODER) -> ApiError:
    with pytest.raises(ApiError) as caught:
        decoder.decode(data)
    assert caught.value.status == 400
    assert str(caught.value)
    return caught.value


def test_unknown_fields_are_ignored_where_the_struct_does_not_forbid_them() -> None:
    assert DECODER.decode(b'{"prompt": "a", "new": {"x": [1]}}').prompt == "a"


@pytest.mark.parametrize(
    ("data", "param"),
    [
        (b'{"prompt": 1}', "prompt"),
        (b'{"parts": [{"text": "a"}, {"text": 2}]}', "parts[1].text"),
        (b'{"parts": [{"text": "a", "type": "b"}]}', "parts[0].type"),
        (b'{"parts": [{}]}', "parts[0].text"),
        (b'{"bias": {"5": "x"}}', "bias[...]"),
        (b'{"count": true}', "count"),
        (b'{"count": 1.5}', "count"),
        (b'{"bias": {"5": 1e999}}', "bias[...]"),
    ],
)
def test_a_wrong_value_is_named_by_its_path(data: bytes, param: str) -> None:
    error = refused(data).body.error
    assert error.param == param
    assert error.code == "invalid_value"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b'{"prompt": "a"} x',
        b'{"prompt": NaN}',
        b'{"new": NaN}',
        b'{"new": -Infinity}',
        b'{"prompt": "\\ud800"}',
        b'{"new": "\\ud800"}',
        b'{"prompt": "\\udc00\\ud800"}',
        b'{"prompt": "a\nb"}',
        b'{"prompt": "\xff"}',
        b'{"new": "\xed\xa0\x80"}',
        b'\xef\xbb\xbf{"prompt": "a"}',
        '{"prompt": "a"}'.encode("utf-16"),
        b'{"count": 36893488147419103232}',
        b'{"new": -9223372036854775809}',
        b'{"count": ' + b"9" * 100_000 + b"}",
        b'{"prompt": "a", "prompt": "a"}',
        b'{"new": {"a": 1, "b": 2, "a": 3}}',
        b'{"a": 1, "\\u0061": 2}',
    ],
)
def test_what_is_not_strict_json_is_refused(data: bytes) -> None:
    assert refused(data).body.error.code == "invalid_json"


def test_a_key_that_occurs_twice_is_named() -> None:
    assert refused(b'{"new": {"top_p": 1, "top_p": 2}}').body.error.param == "top_p"


def test_the_largest_integers_pass() -> None:
    for value in (-(2**63), 2**64 - 1):
        assert FREE.decode(b'{"x": %d}' % value) == {"x": value}
    assert FREE.decode(b'{"x": 0.12345678901234567890123}')["x"] == pytest.approx(0.123456789)


def nested(depth: int, left: bytes = b"[", right: bytes = b"]") -> bytes:
    """An object around `depth - 1` values inside each other."""
    return b'{"x":' + left * (depth - 1) + right * (depth - 1) + b"}"


def test_nesting_is_bounded() -> None:
    FREE.decode(nested(JSON_DEPTH.value))
    assert refused(nested(JSON_DEPTH.value + 1)).body.error.code == "limit_exceeded"
    refused(nested(100_000))
    refused(nested(100_000, b'{"a":[', b"]}"))
    refused(b"[" * 100_000)


def test_many_shallow_values_and_brackets_in_strings_are_not_nesting() -> None:
    FREE.decode(b'{"x": [' + b"[[{}]]," * 1000 + b"[]]}")
    text = '[{"\\' * 1000
    assert FREE.decode(json.dumps({"x": text, "y": [text]}).encode())["y"] == [text]


def test_a_struct_may_refuse_what_it_knows_and_can_not_do() -> None:
    error = refused(b'{"suffix": "a"}', BodyDecoder(Refusing)).body.error
    assert (error.param, error.code) == ("suffix", "unsupported")


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8")),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(codec="utf-8")), inner),
    max_leaves=20,
)


@settings(max_examples=50, deadline=None)
@given(st.dictionaries(st.text(st.characters(codec="utf-8")), json_values), st.booleans())
def test_every_value_of_json_passes_unchanged(value: dict[str, Any], ascii_only: bool) -> None:
    data = json.dumps(value, ensure_ascii=ascii_only).encode()
    assert FREE.decode(data) == json.loads(data)


@settings(deadline=None)
@given(st.binary())
def test_any_bytes_are_a_body_or_refused(data: bytes) -> None:
    try:
        DECODER.decode(data)
    except ApiError as error:
        assert error.status == 400
        assert str(error)
