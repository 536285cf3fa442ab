"""The tracer manager, and what the output processor makes for it."""

from __future__ import annotations

from typing import Any

from framework.frontend.tracers import TracerManager
from hookspecs.config import EngineConfig
from hookspecs.contracts.stats import FinishedRequest, Tracer, TracerContext
from hookspecs.events import PluginFailed
from hookspecs.types.request import FinishReason
from hookspecs.types.sampling import SamplingParams


class Recording(Tracer):
    def __init__(self, *, broken: bool = False) -> None:
        super().__init__(TracerContext(config=EngineConfig(), plugin="recording"))
        self.broken = broken
        self.requests: list[FinishedRequest] = []
        self.closed = 0

    def on_request_finished(self, request: FinishedRequest) -> None:
        if self.broken:
            raise OSError("no route")
        self.requests.append(request)

    def close(self) -> None:
        self.closed += 1


def traced(rig: Any, **tracers: Recording) -> TracerManager:
    """The rig's engine, with tracers."""
    manager = TracerManager(tracers, calls=rig.inputs._calls)
    rig.engine._tracers, rig.outputs._tracing = manager, True
    return manager


def test_every_output_is_told_once_whatever_ended_it(make: Any, bytes_of: Any) -> None:
    rig, tracer = make(), Recording()
    traced(rig, a=tracer)
    rig.says(bytes_of("abcdef"))
    engine = rig.engine
    engine.add_request("done", "p", SamplingParams(max_tokens=2))
    engine.add_request("many", "p", SamplingParams(max_tokens=3, n=2))
    engine.add_request("gone", "p", SamplingParams(), trace_headers={"TraceState": "x"})
    engine.step()
    engine.abort_request("gone")
    while engine.has_unfinished_requests():
        engine.step()
    told = {(each.request_id, each.index): each for each in tracer.requests}
    assert len(tracer.requests) == 4
    assert sorted(told) == [("done", 0), ("gone", 0), ("many", 0), ("many", 1)]
    gone = told["gone", 0]
    assert gone.stats.finish_reason is FinishReason.ABORT
    assert gone.trace_headers == {"tracestate": "x"}
    assert told["many", 1].stats.n == told["many", 1].params.n == 2
    assert all(each.stats.prefilled for each in tracer.requests)
    engine.shutdown()
    assert tracer.closed == 1


def test_a_raising_tracer_is_detached(make: Any, bytes_of: Any, caplog: Any) -> None:
    failed: list[PluginFailed] = []
    rig = make(filters={"on_plugin_failed": failed.append})
    bad, good = Recording(broken=True), Recording()
    manager = traced(rig, bad=bad, good=good)
    rig.says(bytes_of("abc"))
    (output,) = rig.llm.generate("p", SamplingParams())
    assert output.outputs[0].text == "abc"
    assert manager.names == ["good"]
    assert manager.failures == {"bad": 1}
    assert len(good.requests) == 1
    assert bad.closed == 1
    assert [(event.plugin, event.hook) for event in failed] == [("recording", "register_tracers")]
    assert "no route" in caplog.text


def test_nothing_is_made_without_tracers(make: Any, bytes_of: Any) -> None:
    rig = make()
    rig.says(bytes_of("abc"))
    engine = rig.engine
    engine.add_request("a", "p", SamplingParams(max_tokens=1))
    assert rig.outputs.process(rig.client.get_outputs()).traces == []
