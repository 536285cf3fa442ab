"""Options of a request for plugins: names, fields, values, size."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from hookspecs.errors import InvalidRequestError, RequestFailedError
from hookspecs.events import RequestReceived
from hookspecs.types.sampling import SamplingLimits, SamplingParams


class Bias(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    strength: float = 1.0
    words: list[str] = []
    by_token: dict[int, float] = {}

    def __post_init__(self) -> None:
        if self.strength < 0:
            raise ValueError("strength is negative")
        if self.strength == 13:
            raise LookupError("no such number")


KNOWN = {"bias": Bias, "other": Bias}


def process(rig: Any, extensions: Any) -> SamplingParams:
    params = SamplingParams(extensions=extensions)
    processed = rig.inputs.process("r", [5], params)
    assert params.extensions is extensions
    sent: SamplingParams = processed.requests[0].sampling_params
    assert processed.params.extensions == sent.extensions
    return msgspec.msgpack.decode(msgspec.msgpack.encode(sent), type=SamplingParams)


@pytest.fixture
def taking(make: Any) -> Any:
    return make(request_options=KNOWN)


@pytest.mark.parametrize(
    "given", [{"strength": 2, "words": ["a"]}, Bias(strength=2.0, words=["a"])], ids=str
)
def test_plain_values_arrive_with_defaults(taking: Any, given: Any) -> None:
    sent = process(taking, {"bias": given}).extensions
    assert sent == {"bias": {"strength": 2.0, "words": ["a"], "by_token": {}}}
    assert type(sent["bias"]) is dict


def test_keys_that_are_no_text_arrive_as_they_are(taking: Any) -> None:
    sent = process(taking, {"bias": {"by_token": {7: 1}}}).extensions
    assert sent["bias"]["by_token"] == {7: 1.0}


@pytest.mark.parametrize(
    ("extensions", "param", "words"),
    [
        ({"bais": {}}, "extensions", "bias, other. Did you mean bias?"),
        ({"bias": {"strenght": 1}}, "extensions.bias", "Did you mean strength?"),
        ({"bias": {7: 1}}, "extensions.bias", "no option 7"),
        ({"bias": {"words": ["a", 5]}}, "extensions.bias.words[1]", "got `int`"),
        ({"bias": {"strength": "2"}}, "extensions.bias.strength", "got `str`"),
        ({"bias": {"strength": -1}}, "extensions.bias", "negative"),
        ({"bias": Bias(words=[5])}, "extensions.bias.words[0]", "got `int`"),  # type: ignore[list-item]
        ({"bias": None}, "extensions.bias", "got `null`"),
        ({"bias": [1]}, "extensions.bias", "got `array`"),
        ({"bias": {}, "other": 5}, "extensions.other", "got `int`"),
        ({"x" * 5000: {}}, "extensions", "no provider"),
        ({"bias": {"x" * 5000: {}}}, "extensions.bias", "no option"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_is_wrong_is_named(taking: Any, extensions: Any, param: str, words: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        process(taking, extensions)
    assert caught.value.param == param
    assert words in str(caught.value)
    assert len(str(caught.value)) < 500
    msgspec.json.encode(caught.value.value)


def test_without_providers_every_name_is_unknown(make: Any) -> None:
    with pytest.raises(InvalidRequestError, match="there are: none"):
        process(make(), {"bias": {}})
    assert process(make(), {}).extensions == {}


def test_the_size_of_all_together_is_bounded(make: Any) -> None:
    rig = make(request_options=KNOWN, limits=SamplingLimits(max_extension_bytes=100))
    assert process(rig, {"bias": {"words": ["x" * 70]}})
    for extensions in (
        {"bias": {"words": ["x" * 100]}},
        {name: {"words": ["x" * 60]} for name in KNOWN},
    ):
        with pytest.raises(InvalidRequestError, match="at most 100"):
            process(rig, extensions)


def test_a_filter_is_given_checked_values_and_its_own_are_checked(make: Any) -> None:
    seen = []

    def adjust(event: RequestReceived) -> RequestReceived:
        seen.append(event.params.extensions)
        event.params.extensions["bias"] = {"strength": len(seen) - 2}
        return event

    rig = make(request_options=KNOWN, filters={"adjust_request": adjust})
    with pytest.raises(InvalidRequestError, match="negative"):
        process(rig, {"bias": {"strength": 3}})
    assert seen[0]["bias"] == {"strength": -1}
    assert process(rig, {}).extensions["bias"]["strength"] == 0.0


def test_a_struct_that_raises_fails_its_request(taking: Any) -> None:
    with pytest.raises(RequestFailedError, match="no such number") as caught:
        process(taking, {"bias": {"strength": 13}})
    assert caught.value.request_id == "r"
