"""Bodies are read strictly, and what is wrong is said with its place."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builtin_plugins.openai_server.errors import ApiError
from builtin_plugins.openai_server.json_body import BodyDecoder, distinct
from builtin_plugins.openai_server.limits import JSON_DEPTH, JSON_ITEMS, JSON_VALUES


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


class Key(str):
    """Counts how often keys are compared."""

    comparisons = 0
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        Key.comparisons += 1
        return str.__eq__(self, other)


def test_the_search_for_a_repeated_key_is_linear() -> None:
    Key.comparisons = 0
    pairs = [(Key(number), None) for number in range(100_000)]
    with pytest.raises(ApiError, match="'99999' occurs twice"):
        distinct([*pairs, (Key(99_999), None)])
    assert Key.comparisons < 1000


@pytest.mark.parametrize(
    "many",
    [
        b"[" + b"[]," * JSON_VALUES.value + b"[]]",
        b"[" + b"{}," * JSON_VALUES.value + b"{}]",
        b"[" + b'"",' * JSON_VALUES.value + b'""]',
        b"[" + b'"\\"[",' * JSON_VALUES.value + b'""]',
        b"{" + b",".join(b'"%d":0' % n for n in range(JSON_VALUES.value)) + b"}",
        b"[" * (1 << 20),
        b'{"a":' * (1 << 18),
        b'"' * (1 << 20),
    ],
)
def test_values_are_counted_before_they_are_made(
    many: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json, "loads", None)
    error = refused(b'{"x":' + many + b"}").body.error
    assert error.code == "limit_exceeded"
    assert JSON_VALUES.name in error.message


@pytest.mark.parametrize(
    "item", [b"1", b"1.5", b"-0", b"true", b"null", b"1e400", b"12345678901234567890"]
)
@pytest.mark.parametrize("name", [b"x", b"y,", b'\\",'])
def test_items_of_arrays_are_counted_before_they_are_made(
    item: bytes, name: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json, "loads", None)
    many = b'{"%b":[' % name + (item + b",") * (JSON_ITEMS.value + 1) + b"1]}"
    error = refused(many).body.error
    assert error.code == "limit_exceeded"
    assert JSON_ITEMS.name in error.message


def test_as_many_items_as_allowed_pass_and_commas_of_strings_are_not_counted() -> None:
    data = b'{"x":[' + b"1," * (JSON_ITEMS.value - 1) + b'1],"y":"' + b'\\",' * 100_000 + b'"}'
    assert len(FREE.decode(data)["x"]) == JSON_ITEMS.value


@pytest.mark.parametrize("text", [b"-01", b"1.", b".5", b"1e", b"+1", b"0x1", b"1_0", b"--1"])
def test_numbers_are_those_of_json(text: bytes) -> None:
    for data in (b'{"new": %b}' % text, b'{"new": [%b, 12345678901234567890]}' % text):
        assert refused(data).body.error.code == "invalid_json"


@pytest.mark.parametrize(
    "text", ["," * (JSON_ITEMS.value + 1), "[{" * 100_000, '"\\' * 100_000, "a" * 1_000_000]
)
def test_what_a_string_holds_is_not_counted(text: str) -> None:
    assert FREE.decode(json.dumps({"x": text}).encode()) == {"x": text}


@pytest.mark.parametrize("end", [b"", b"\\", b'\\"', b"\\\\"])
def test_a_string_without_end_is_no_json(end: bytes) -> None:
    assert refused(b'{"x": "' + b'\\"' * 100_000 + end).body.error.code == "invalid_json"


def test_as_many_values_as_allowed_pass() -> None:
    numbers: list[list[int]] = [[]] * (JSON_VALUES.value - 3)
    assert len(FREE.decode(json.dumps({"x": numbers}).encode())["x"]) == len(numbers)


class Strict(msgspec.Struct, forbid_unknown_fields=True):
    limit: int | msgspec.UnsetType | None = msgspec.UNSET
    bias: dict[str, float] = {}


def test_unknown_fields_that_are_null_are_as_left_out() -> None:
    decoder = BodyDecoder(Strict)
    given = decoder.decode(b'{"guided": null, "limit": null, "\\u0061\\"": null}')
    assert given.limit is None
    assert decoder.decode(b'{"guided": null}').limit is msgspec.UNSET
    for data, param in [
        (b'{"guided": null, "other": 0}', "other"),
        (b'{"other": 0, "guided": null}', "other"),
        (b'{"guided": {"a": null}}', "guided"),
        (b'{"guided": null, "bias": {"a": 1e999}}', "bias[...]"),
        (b'{"guided": null, "limit": "x"}', "limit"),
        (b'{"guided": null, "bias": null}', "bias"),
    ]:
        assert refused(data, decoder).body.error.param == param


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
