"""The tracer `otlp`: the spans that a collector gets, and collectors that fail."""

from __future__ import annotations

import logging
import socket
import time
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry import trace

from builtin_plugins.tracer_otlp.options import OtlpOptions
from builtin_plugins.tracer_otlp.otlp import OtlpTracer
from builtin_plugins.tracer_otlp.phases import phases_of, started_at_ns
from builtin_plugins.tracer_otlp.plugin import plugin
from framework.launcher import Engine
from hookspecs import EngineConfig, FinishReason, SamplingParams
from hookspecs.contracts.stats import FinishedRequest, TracerContext
from hookspecs.types.stats import FinishedRequestStats
from tests.core.scripted import greedy, launch_scripted
from tests.tracing.conftest import Collector

TRACE_ID, SPAN_ID = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
NOW = 1_700_000_000_000_000_000
S = 1_000_000_000
ERROR = 2


def launch(collector: Collector, **options: Any) -> Engine:
    return launch_scripted(
        stats={"loggers": [], "tracers": ["otlp"]},
        plugins_options={"otlp": {"endpoint": collector.url, **options}},
    )


def make(collector: Collector | str, **options: Any) -> OtlpTracer:
    endpoint = collector if isinstance(collector, str) else collector.url
    return OtlpTracer(
        TracerContext(
            config=EngineConfig(), options=OtlpOptions(endpoint=endpoint, **options), model="m"
        )
    )


def request(
    reason: FinishReason = FinishReason.STOP,
    headers: dict[str, str] | None = None,
    params: SamplingParams | None = None,
    **stats: Any,
) -> FinishedRequest:
    fields: dict[str, Any] = {
        "num_prompt_tokens": 5,
        "num_generation_tokens": 3,
        "prefilled": True,
        "e2e_latency": 10.0,
        "queue_time": 1.0,
        "prefill_time": 2.0,
        "time_to_first_token": 4.0,
        "decode_time": 5.0,
        **stats,
    }
    return FinishedRequest(
        request_id="chat-1",
        stats=FinishedRequestStats(request_id="chat-1-0", finish_reason=reason, **fields),
        index=0,
        params=params or SamplingParams(),
        trace_headers=headers or {},
        ended_at_ns=NOW,
    )


def send(collector: Collector, *requests: FinishedRequest, **options: Any) -> OtlpTracer:
    tracer = make(collector, **options)
    for each in requests:
        tracer.on_request_finished(each)
    tracer.close()
    return tracer


def test_a_request_becomes_a_span_with_its_phases(collector: Collector) -> None:
    send(collector, request())
    (span,) = collector.requests()
    assert (span.begin, span.end) == (NOW - 10 * S, NOW)
    assert span.kind == trace.SpanKind.SERVER.value + 1  # the wire has one more: unspecified
    assert span.parent_id == ""
    times = {
        name: ((child.begin - NOW) // S, (child.end - NOW) // S)
        for name, child in collector.children(span).items()
    }
    assert times == {"queue": (-9, -8), "prefill": (-8, -6), "decode": (-6, -1)}
    assert {child.trace_id for child in collector.spans[1:]} == {span.trace_id}


def test_attributes_have_the_names_of_the_conventions(collector: Collector) -> None:
    params = SamplingParams(temperature=0.5, top_p=0.9, n=2, top_k=7, seed=2**64 - 1)
    send(
        collector,
        request(
            FinishReason.LENGTH,
            params=params,
            n=2,
            max_tokens=3,
            num_cached_tokens=4,
            num_preemptions=1,
            tenant="t",
            labels={"team": "a"},
        ),
        service_name="chat-service",
    )
    (span,) = collector.requests()
    assert span.name == "text_completion m"
    assert span.resource == {"service.name": "chat-service"}
    assert span.status == 0
    assert span.attributes == {
        "gen_ai.operation.name": "text_completion",
        "gen_ai.provider.name": "engine-framework",
        "gen_ai.request.model": "m",
        "gen_ai.request.temperature": 0.5,
        "gen_ai.request.top_p": 0.9,
        "gen_ai.request.top_k": 7,
        "gen_ai.request.seed": -1,
        "gen_ai.request.max_tokens": 3,
        "gen_ai.request.choice.count": 2,
        "gen_ai.response.id": "chat-1",
        "gen_ai.response.model": "m",
        "gen_ai.response.finish_reasons": ["length"],
        "gen_ai.response.time_to_first_chunk": 4.0,
        "gen_ai.usage.input_tokens": 5,
        "gen_ai.usage.output_tokens": 3,
        "gen_ai.usage.cache_read.input_tokens": 4,
        "framework.output_index": 0,
        "framework.num_preemptions": 1,
        "framework.tenant": "t",
        "framework.label.team": "a",
    }


@pytest.mark.parametrize("reason", FinishReason)
def test_errors_and_timeouts_are_failures_and_aborts_are_not(
    collector: Collector, reason: FinishReason
) -> None:
    send(collector, request(reason))
    (span,) = collector.requests()
    failed = reason in (FinishReason.ERROR, FinishReason.TIMEOUT)
    assert (span.status == ERROR) == failed
    assert span.attributes.get("error.type") == (str(reason) if failed else None)


def test_a_request_that_never_started_has_no_phases(collector: Collector) -> None:
    send(collector, request(FinishReason.ABORT, prefilled=False, num_generation_tokens=0))
    (span,) = collector.requests()
    assert collector.children(span) == {}
    assert span.begin == NOW - 10 * S


def test_a_pooled_request_is_an_embedding_and_generates_nothing(collector: Collector) -> None:
    send(collector, request(num_generation_tokens=0, pooling=True))
    (span,) = collector.requests()
    assert span.name == "embeddings m"
    assert list(collector.children(span)) == ["queue", "prefill"]
    assert span.attributes == {
        "gen_ai.operation.name": "embeddings",
        "gen_ai.provider.name": "engine-framework",
        "gen_ai.request.model": "m",
        "gen_ai.response.id": "chat-1",
        "gen_ai.response.model": "m",
        "gen_ai.response.finish_reasons": ["stop"],
        "gen_ai.usage.input_tokens": 5,
        "gen_ai.usage.cache_read.input_tokens": 0,
        "framework.output_index": 0,
        "framework.num_preemptions": 0,
    }


def test_an_engine_tells_embeddings_from_text(collector: Collector) -> None:
    with launch(collector) as engine:
        engine.embed([[5, 6, 7]])
        engine.generate([[5, 6]], greedy(2))
    found = {span.name: span.attributes for span in collector.requests()}
    assert sorted(found) == ["embeddings scripted", "text_completion scripted"]
    assert found["embeddings scripted"]["gen_ai.usage.input_tokens"] == 3
    assert "gen_ai.request.temperature" not in found["embeddings scripted"]
    assert found["text_completion scripted"]["gen_ai.request.max_tokens"] == 2


SECONDS = st.one_of(st.floats(0, 1e4), st.floats(), st.just(-1.0))


@given(SECONDS, SECONDS, SECONDS, SECONDS, SECONDS, st.integers(0, 3))
def test_phases_never_leave_the_request(
    e2e: float, queue: float, prefill: float, first: float, decode: float, tokens: int
) -> None:
    ended = request(
        num_generation_tokens=tokens,
        e2e_latency=e2e,
        queue_time=queue,
        prefill_time=prefill,
        time_to_first_token=first,
        decode_time=decode,
    )
    at = started_at_ns(ended)
    for phase in phases_of(ended):
        assert at <= phase.begin_ns <= phase.end_ns <= NOW
        at = phase.begin_ns


def test_the_callers_trace_goes_on(collector: Collector) -> None:
    headers = {"traceparent": f"00-{TRACE_ID}-{SPAN_ID}-01", "tracestate": "v=1"}
    send(collector, request(headers=headers), sample_ratio=0.0)
    (span,) = collector.requests()
    assert (span.trace_id, span.parent_id) == (TRACE_ID, SPAN_ID)
    assert {child.trace_id for child in collector.children(span).values()} == {TRACE_ID}


@pytest.mark.parametrize("traceparent", ["", "nonsense", f"00-{'0' * 32}-{SPAN_ID}-01"])
def test_a_malformed_parent_is_none(collector: Collector, traceparent: str) -> None:
    send(collector, request(headers={"traceparent": traceparent}))
    (span,) = collector.requests()
    assert span.parent_id == ""


def test_sampling_follows_the_caller_then_the_ratio(collector: Collector) -> None:
    unwanted = {"traceparent": f"00-{TRACE_ID}-{SPAN_ID}-00"}
    send(collector, request(headers=unwanted), sample_ratio=1.0)
    send(collector, request(), sample_ratio=0.0)
    assert [span.name for span in collector.spans] == ["startup", "startup"]


def test_a_span_is_sent_at_start(collector: Collector, caplog: pytest.LogCaptureFixture) -> None:
    tracer = make(collector, headers={"Authorization": "Bearer x"})
    assert [span.name for span in collector.spans] == ["startup"]
    assert collector.paths == ["/v1/traces"]
    assert collector.headers[0]["authorization"] == "Bearer x"
    assert collector.headers[0]["content-type"] == "application/x-protobuf"
    tracer.close()
    assert caplog.records == []


def test_the_process_is_left_alone(collector: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-secret=1")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "always_off")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    before = trace.get_tracer_provider()
    send(collector, request())
    assert trace.get_tracer_provider() is before
    assert len(collector.requests()) == 1
    assert all("x-secret" not in headers for headers in collector.headers)


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def test_a_wrong_endpoint_is_said_at_start_once(caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    tracer = make(f"http://127.0.0.1:{port}", timeout_s=0.5)
    (said,) = warnings(caplog)
    assert "refused" in said and f"http://127.0.0.1:{port}/v1/traces" in said
    tracer.on_request_finished(request())
    tracer.close()
    assert warnings(caplog)[1:] == ["5 spans were lost in all"]


@pytest.mark.parametrize("status", [302, 401, 404, 500, 503])
def test_a_refusal_is_said_and_counted(
    collector: Collector, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    collector.status = status
    tracer = send(collector, request())
    assert tracer.num_lost == 5
    assert str(status) in warnings(caplog)[0]
    assert len(warnings(caplog)) == 2
    assert set(collector.paths) == {"/v1/traces"}


def test_a_collector_that_recovers_is_said(
    collector: Collector, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    collector.status = 500
    tracer = make(collector)
    collector.status = 200
    tracer.on_request_finished(request())
    tracer.close()
    assert tracer.num_lost == 1
    assert len(collector.requests()) == 1
    assert "takes spans again" in caplog.text


def test_spans_that_a_collector_rejects_are_counted(collector: Collector) -> None:
    tracer = make(collector)
    collector.num_rejected = 2
    tracer.on_request_finished(request())
    tracer.close()
    assert tracer.num_lost == 2


def test_requests_and_the_end_do_not_wait_for_a_collector_that_hangs(
    collector: Collector, caplog: pytest.LogCaptureFixture
) -> None:
    tracer = make(collector, timeout_s=0.3)
    collector.open.clear()
    for _ in range(100):
        tracer.on_request_finished(request())
    tracer.close()
    assert collector.num_answered == 1  # the span of the start; it still hangs
    assert warnings(caplog)


def test_a_whole_engine_is_traced_without_stat_loggers(collector: Collector) -> None:
    before = time.time_ns()
    with launch(collector) as engine:
        llm = engine.engine
        headers = {"Traceparent": f"00-{TRACE_ID}-{SPAN_ID}-01"}
        llm.add_request("a", [5, 6, 7], greedy(4), trace_headers=headers, labels={"k": "v"})
        llm.add_request("b", [8, 9], greedy(2, temperature=1.0, n=2, seed=3))
        llm.add_request("c", [5, 5], greedy(50))
        for _ in range(2):
            llm.step()
        llm.abort_request("c")
        while llm.has_unfinished_requests():
            llm.step()
    spans = {
        (
            span.attributes["gen_ai.response.id"],
            span.attributes["framework.output_index"],
        ): span
        for span in collector.requests()
    }
    assert len(collector.requests()) == 4
    assert sorted(spans) == [("a", 0), ("b", 0), ("b", 1), ("c", 0)]
    first = spans["a", 0]
    assert (first.trace_id, first.parent_id) == (TRACE_ID, SPAN_ID)
    assert first.attributes["gen_ai.request.model"] == "scripted"
    assert first.attributes["gen_ai.usage.output_tokens"] == 4
    assert first.attributes["framework.label.k"] == "v"
    assert spans["b", 1].attributes["gen_ai.request.choice.count"] == 2
    assert spans["c", 0].attributes["gen_ai.response.finish_reasons"] == ["abort"]
    for span in spans.values():
        assert before <= span.begin <= span.end <= time.time_ns()
        children = collector.children(span)
        assert list(children) == ["queue", "prefill", "decode"]
        for child in children.values():
            assert span.begin <= child.begin <= child.end <= span.end


@pytest.mark.parametrize(
    "options",
    [
        {"endpoint": "localhost:4318"},
        {"endpoint": "grpc://localhost:4317"},
        {"endpoint": "http://"},
        {"endpoint": "http://localhost:99999"},
        {"endpoint": "http://user:secret@localhost"},
        {"headers": {"a b": "x"}},
        {"headers": {"a": "x\r\ny: z"}},
        {"timeout_s": 0},
        {"sample_ratio": 1.5},
        {"sample_ratio": float("nan")},
        {"protocol": "grpc"},
    ],
)
def test_options_are_checked(options: dict[str, Any]) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(options, OtlpOptions)


def test_a_path_is_kept() -> None:
    assert OtlpOptions(endpoint="https://host/otlp/traces").url == "https://host/otlp/traces"
    assert OtlpOptions(endpoint="https://host:1/").url == "https://host:1/v1/traces"


def test_plugin_offers_otlp() -> None:
    (provider,) = plugin.register_tracers()
    assert (provider.name, provider.extra) == ("otlp", "otlp")
