"""What becomes of requests and of the configuration."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hookspecs import EngineConfig, PoolingParams, SamplingParams
from hookspecs.config import ModelConfig, SchedulerConfig
from hookspecs.errors import PluginConfigError
from hookspecs.events import ConfigResolved, RequestReceived, RequestRejected

from request_guard.options import RequestGuardOptions
from request_guard.plugin import RequestGuardPlugin

LIMITS = RequestGuardOptions(max_tokens={"acme": 8}, refuse=("ghost",), redact=("secret",))


def filtered(tenant: str, **params: Any) -> RequestReceived | RequestRejected | None:
    return RequestGuardPlugin(LIMITS).adjust_request(request(tenant, **params))


def request(tenant: str, **params: Any) -> RequestReceived:
    return RequestReceived(
        request_id="r", prompt_token_ids=[1], params=SamplingParams(**params), tenant=tenant
    )


@pytest.mark.parametrize("max_tokens", [None, 9, 1000])
def test_a_tenant_gets_no_more_tokens_than_its_limit(max_tokens: int | None) -> None:
    asked = request("acme", max_tokens=max_tokens, temperature=0.5)
    result = RequestGuardPlugin(LIMITS).adjust_request(asked)
    assert isinstance(result, RequestReceived)
    assert (result.params.max_tokens, result.params.temperature) == (8, 0.5)
    assert asked.params.max_tokens == max_tokens, "the parameters of the caller were changed"


@pytest.mark.parametrize(("tenant", "max_tokens"), [("acme", 8), ("acme", 1), ("", None)])
def test_other_requests_stay_as_they_are(tenant: str, max_tokens: int | None) -> None:
    assert filtered(tenant, max_tokens=max_tokens) is None


@pytest.mark.parametrize(
    ("tenant", "params", "reason"),
    [
        ("ghost", {}, "tenant 'ghost' may send no requests"),
        ("acme", {"min_tokens": 9}, "min_tokens is 9; an output of tenant 'acme' has at most 8"),
        ("", {"logprobs": 1}, "logprobs are not available here"),
    ],
)
def test_what_is_refused_says_why(tenant: str, params: dict[str, Any], reason: str) -> None:
    result = filtered(tenant, **params)
    assert isinstance(result, RequestRejected)
    assert reason in result.reason


def test_requests_for_vectors_have_no_tokens_to_limit() -> None:
    event = msgspec.structs.replace(request("acme"), pooling=PoolingParams())
    assert RequestGuardPlugin(LIMITS).adjust_request(event) is None


def config(policies: tuple[str, ...] = ("fcfs",), longest: int | None = None) -> ConfigResolved:
    return ConfigResolved(
        config=EngineConfig(
            model=ModelConfig(max_model_len=longest), scheduler=SchedulerConfig(policies=policies)
        )
    )


def test_a_limit_beyond_the_model_stops_the_start() -> None:
    guard = RequestGuardPlugin(LIMITS)
    for longest in (None, 8, 9):
        assert guard.adjust_config(config(longest=longest)) is None
    with pytest.raises(PluginConfigError, match=r"'acme' 8 tokens.*which is 7"):
        guard.adjust_config(config(longest=7))


def test_sharing_is_put_first_once() -> None:
    guard = RequestGuardPlugin(RequestGuardOptions(share_fairly=True))
    once = guard.adjust_config(config(("priority", "fcfs")))
    assert once is not None
    assert once.config.scheduler.policies == ("fair_share", "priority", "fcfs")
    assert guard.adjust_config(once) is None
    assert guard.adjust_config(config(("fcfs", "fair_share"))) is None


@pytest.mark.parametrize(
    "options",
    [{"max_tokens": {"acme": 0}}, {"redact": [""]}, {"redact": ["x" * 201]}, {"refused": []}],
)
def test_options_out_of_bounds_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(msgspec.ValidationError, match=r"max_tokens|redact|refused"):
        msgspec.convert(options, RequestGuardOptions)
