"""Every field of the sampling parameters is checked before anything else happens."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from framework.frontend.validation import validate_metadata, validate_params
from hookspecs.errors import InvalidRequestError
from hookspecs.types.sampling import OutputKind, SamplingLimits, SamplingParams

VOCAB = 100


def check(limits: SamplingLimits | None = None, *, tokenizer: bool = True, **fields: Any) -> None:
    validate_params(
        SamplingParams(**fields),
        limits=limits or SamplingLimits(),
        vocab_size=VOCAB,
        has_tokenizer=tokenizer,
    )


GOOD: list[dict[str, Any]] = [
    {"temperature": 0},
    {"temperature": 2},
    {"temperature": 1e-12},
    {"top_p": 1e-9},
    {"top_p": 1},
    {"top_k": 0},
    {"top_k": -1},
    {"top_k": 1},
    {"top_k": 10**9},
    {"min_p": 0.0},
    {"min_p": 1},
    {"presence_penalty": -2},
    {"frequency_penalty": 2},
    {"repetition_penalty": 2.0},
    {"seed": 2**64 - 1},
    {"seed": -(2**63)},
    {"seed": -1},
    {"n": 128},
    {"max_tokens": None},
    {"max_tokens": 1},
    {"min_tokens": 3, "max_tokens": 3},
    {"stop": None},
    {"stop": []},
    {"stop": "x"},
    {"stop": ["x", "yy"]},
    {"stop_token_ids": [0, VOCAB - 1]},
    {"stop_token_ids": []},
    {"allowed_token_ids": [5]},
    {"logit_bias": {3: -100.0, 4: 100}},
    {"logit_bias": {}},
    {"logprobs": 0},
    {"logprobs": VOCAB},
    {"logprobs": -1},
    {"prompt_logprobs": 5},
    {"bad_words": ["x"]},
    {"bad_words_token_ids": [[1, 2]]},
    {"extensions": {"plugin": {"a": [1, 2.5, "x"]}}},
    {"output_kind": OutputKind.DELTA},
]


@pytest.mark.parametrize("fields", GOOD, ids=str)
def test_accepts(fields: dict[str, Any]) -> None:
    check(**fields)


NOT_NUMBERS: list[Any] = [math.nan, math.inf, -math.inf, "1", "nan", None, True, [1.0]]
BAD: list[tuple[str, Any]] = [
    *((name, value) for name in ("temperature", "top_p", "min_p") for value in NOT_NUMBERS),
    *((name, value) for name in ("presence_penalty", "frequency_penalty") for value in NOT_NUMBERS),
    *(("repetition_penalty", value) for value in [*NOT_NUMBERS, 0, -1, 2.01]),
    ("temperature", -0.01),
    ("temperature", 2.01),
    ("temperature", 10**5000),
    ("top_p", 0),
    ("top_p", 1.01),
    ("top_k", -2),
    ("top_k", 1.0),
    ("top_k", 2**40),
    ("min_p", 1.01),
    ("presence_penalty", -2.1),
    ("frequency_penalty", 2.1),
    ("seed", 2**64),
    ("seed", -(2**63) - 1),
    ("seed", True),
    ("seed", 1.0),
    ("n", 0),
    ("n", -1),
    ("n", 129),
    ("n", 5_000_000),
    ("n", True),
    ("n", None),
    ("max_tokens", 0),
    ("max_tokens", -1),
    ("max_tokens", 2**63),
    ("max_tokens", 1e3),
    ("max_tokens", True),
    ("max_tokens", "5"),
    ("min_tokens", -1),
    ("min_tokens", None),
    ("stop", ""),
    ("stop", [""]),
    ("stop", ["ok", ""]),
    ("stop", [5]),
    ("stop", 5),
    ("stop", ("a",)),
    ("stop", "x" * (1 << 20)),
    ("stop", ["x"] * 500_000),
    ("stop", "\ud800"),
    ("stop_token_ids", [VOCAB + 5]),
    ("stop_token_ids", [-1]),
    ("stop_token_ids", [True]),
    ("stop_token_ids", [1.0]),
    ("stop_token_ids", 5),
    ("stop_token_ids", [1] * 2000),
    ("allowed_token_ids", []),
    ("allowed_token_ids", [VOCAB]),
    ("allowed_token_ids", "abc"),
    ("logit_bias", {VOCAB: 1.0}),
    ("logit_bias", {"3": 1.0}),
    ("logit_bias", {True: 1.0}),
    ("logit_bias", {3: 101}),
    ("logit_bias", {3: math.nan}),
    ("logit_bias", {3: -math.inf}),
    ("logit_bias", [3]),
    ("logit_bias", dict.fromkeys(range(5000), 1.0)),
    ("logprobs", -2),
    ("logprobs", VOCAB + 1),
    ("logprobs", 1_000_000),
    ("logprobs", True),
    ("logprobs", 1.0),
    ("prompt_logprobs", -2),
    ("prompt_logprobs", VOCAB + 1),
    ("bad_words", [""]),
    ("bad_words", "word"),
    ("bad_words", [1]),
    ("bad_words", ["x"] * 2000),
    ("bad_words_token_ids", [[]]),
    ("bad_words_token_ids", [[VOCAB]]),
    ("bad_words_token_ids", [5]),
    ("ignore_eos", 1),
    ("detokenize", None),
    ("skip_special_tokens", "yes"),
    ("output_kind", 1),
    ("extensions", {5: {}}),
    ("extensions", {"p": 1j}),
    ("extensions", {"p": 2**80}),
    ("extensions", None),
]


def shown(value: Any) -> str:
    """A test's id; Python writes no huge integers."""
    return "huge" if isinstance(value, int) and value.bit_length() > 99 else str(value)[:30]


@pytest.mark.parametrize(("param", "value"), BAD, ids=shown)
def test_refuses_and_names_the_field(param: str, value: Any) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        check(**{param: value})
    assert caught.value.param == param
    assert param in str(caught.value)
    assert len(str(caught.value)) < 500
    # The error can be sent as it is: no NaN, no integers that JSON encoders refuse.
    msgspec.json.encode(caught.value.value)
    assert not (isinstance(caught.value.value, float) and not math.isfinite(caught.value.value))


@pytest.mark.parametrize(
    ("param", "fields"),
    [
        ("min_tokens", {"min_tokens": 4, "max_tokens": 3}),
        ("n", {"n": 2, "temperature": 0}),
        ("n", {"n": 2, "temperature": 1e-6}),
        ("stop", {"stop": ["x"], "detokenize": False}),
    ],
)
def test_refuses_combinations(param: str, fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        check(**fields)
    assert caught.value.param == param


def test_limits_bound_logprobs_below_the_vocabulary() -> None:
    limits = SamplingLimits(max_logprobs=20)
    check(limits, logprobs=20)
    for value in (21, VOCAB, VOCAB + 1, -1):
        with pytest.raises(InvalidRequestError, match="20"):
            check(limits, logprobs=value)


def test_without_tokenizer_text_parameters_are_refused() -> None:
    check(tokenizer=False, stop=[], bad_words=[])
    for fields in ({"stop": "x"}, {"bad_words": ["x"]}):
        with pytest.raises(InvalidRequestError, match="tokenizer"):
            check(tokenizer=False, **fields)


@given(
    field=st.sampled_from(SamplingParams.__struct_fields__),
    value=st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(),
        st.text(max_size=5),
        st.lists(st.one_of(st.integers(), st.text(max_size=3), st.floats()), max_size=3),
        st.dictionaries(st.integers(), st.floats(), max_size=2),
    ),
)
def test_any_value_is_accepted_or_refused_cleanly(field: str, value: Any) -> None:
    try:
        check(**{field: value})
    except InvalidRequestError as error:
        msgspec.json.encode(error.value)
    else:
        params = SamplingParams(**{field: value})
        assert msgspec.msgpack.decode(msgspec.msgpack.encode(params), type=SamplingParams) == params


def test_extensions_are_bounded() -> None:
    check(SamplingLimits(max_extension_bytes=20), extensions={"p": "x" * 10})
    with pytest.raises(InvalidRequestError, match="20 are allowed") as caught:
        check(SamplingLimits(max_extension_bytes=20), extensions={"p": "x" * 20})
    assert caught.value.param == "extensions"


def metadata(**fields: Any) -> None:
    given_fields: dict[str, Any] = {
        "request_id": "a",
        "priority": 0,
        "tenant": "",
        "deadline": None,
        "cache_salt": "",
        "labels": None,
        **fields,
    }
    validate_metadata(given_fields.pop("request_id"), **given_fields)


@pytest.mark.parametrize(
    ("param", "value"),
    [
        ("request_id", ""),
        ("request_id", 5),
        ("request_id", "x" * 1000),
        ("request_id", "\udc00"),
        ("priority", 2**70),
        ("priority", "high"),
        ("priority", None),
        ("priority", True),
        ("tenant", None),
        ("cache_salt", 3),
        ("deadline", math.nan),
        ("deadline", -1.0),
        ("labels", {"a": 1}),
        ("labels", {str(i): "" for i in range(50)}),
        ("trace_headers", ["traceparent"]),
        ("trace_headers", {"traceparent": 5}),
        ("trace_headers", {"": "x"}),
        ("trace_headers", {"baggage": "x" * 10_000}),
        ("trace_headers", {str(i): "" for i in range(50)}),
        ("arrival_time", math.nan),
        ("arrival_time", math.inf),
        ("arrival_time", "now"),
        ("arrival_time", True),
    ],
)
def test_refuses_metadata(param: str, value: Any) -> None:
    metadata()
    with pytest.raises(InvalidRequestError) as caught:
        metadata(**{param: value})
    assert caught.value.param == param
