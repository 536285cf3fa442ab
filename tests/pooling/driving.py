"""What tests of pooling share: requests step by step, and who hears of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from framework import Engine, PoolingParams, PoolingType, RequestOutput
from hookspecs import PluginInfo, hookimpl
from hookspecs.events import RequestAdmitted, RequestFinished

MEAN = PoolingParams(normalize=False)
LAST = PoolingParams(pooling=PoolingType.LAST, normalize=False)


class Watcher:
    """Keeps the events of requests, by the id that the user gave."""

    PLUGIN = PluginInfo(name="watcher", api=">=1.0,<2")

    def __init__(self) -> None:
        self.admitted: dict[str, RequestAdmitted] = {}
        self.finished: dict[str, RequestFinished] = {}

    @hookimpl
    def on_request_admitted(self, event: RequestAdmitted) -> None:
        self.admitted[event.request_id.rsplit("-", 2)[0]] = event

    @hookimpl
    def on_request_finished(self, event: RequestFinished) -> None:
        self.finished[event.request_id.rsplit("-", 2)[0]] = event


def submit(
    engine: Engine,
    request_id: str,
    prompt: list[int],
    params: PoolingParams | None = None,
    **options: Any,
) -> None:
    """A pooling request, to be stepped by hand."""
    inputs = engine.engine.input_processor
    engine.engine.submit(inputs.process_pooling(request_id, prompt, params, **options))


def run(engine: Engine) -> dict[str, RequestOutput]:
    """Step to the end; the last output of each request."""
    outputs: dict[str, RequestOutput] = {}
    while engine.engine.has_unfinished_requests():
        outputs.update((output.request_id, output) for output in engine.engine.step())
    return outputs


def vector(output: RequestOutput) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Of a pooling request that did not fail."""
    assert output.embedding is not None, output.outputs[0].error
    return output.embedding
