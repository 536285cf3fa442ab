"""What a front end refuses of a pooling request, what filters see of it, what users get."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest

from builtin_plugins.worker_scripted.pooling import HIDDEN_SIZE, pooled_vector
from framework import PoolingOutput, PoolingParams, PoolingType, RequestOutput
from framework.frontend.pooling import pooling_output
from hookspecs import PluginInfo, hookimpl
from hookspecs.errors import InvalidRequestError, RequestFailedError, UnsupportedFeatureError
from hookspecs.events import OutputReady, RequestReceived, RequestRejected
from hookspecs.types.outputs import CompletionOutput
from tests.core.scripted import greedy, launch_scripted
from tests.idle import assert_idle
from tests.pooling.driving import MEAN


def made(**fields: Any) -> PoolingParams:
    return PoolingParams(**fields)


@pytest.mark.parametrize(
    ("params", "param"),
    [
        (made(dimensions=0), "dimensions"),
        (made(dimensions=-1), "dimensions"),
        (made(dimensions=HIDDEN_SIZE + 1), "dimensions"),
        (made(dimensions=True), "dimensions"),
        (made(dimensions=2.0), "dimensions"),
        (made(dimensions=float("nan")), "dimensions"),
        (made(normalize=1), "normalize"),
        (made(pooling="mean"), "pooling"),
        (made(pooling=None), "pooling"),
        (greedy(1), "params"),
        ({"pooling": "mean"}, "params"),
    ],
)
def test_parameters_that_are_refused(params: Any, param: str) -> None:
    with launch_scripted() as engine:
        with pytest.raises(InvalidRequestError, match=param) as error:
            engine.embed([[1], [2]], params)
        assert error.value.param == param
        assert "prompt 0" in str(error.value)
        assert_idle(engine)


@pytest.mark.parametrize("prompt", [[], [-1], [1000], "text", {"prompt_token_ids": []}, 5])
def test_prompts_that_are_refused(prompt: Any) -> None:
    with launch_scripted() as engine:
        with pytest.raises(InvalidRequestError):
            engine.embed([[1], prompt])
        assert_idle(engine)


def test_a_prompt_may_be_one_shorter_than_the_context() -> None:
    with launch_scripted(model={"max_model_len": 20}) as engine:
        (output,) = engine.embed([[4] * 19], MEAN)
        np.testing.assert_array_equal(output.embedding, pooled_vector([4], MEAN))
        with pytest.raises(InvalidRequestError, match="at most 19"):
            engine.embed([[4] * 20])


def test_a_prompt_that_the_cache_can_not_hold() -> None:
    with launch_scripted() as engine:
        inputs = engine.engine.input_processor
        inputs.engine_info = msgspec.structs.replace(inputs.engine_info, cache_tokens=16)
        assert inputs.process_pooling("a", [1] * 15).requests
        with pytest.raises(InvalidRequestError, match="KV cache holds 16") as error:
            inputs.process_pooling("b", [1] * 16)
        assert error.value.param == "prompt"


def test_dimensions_need_a_known_hidden_size() -> None:
    with launch_scripted() as engine:
        inputs = engine.engine.input_processor
        info = msgspec.structs.replace(inputs.model.info, hidden_size=0)
        inputs.model = msgspec.structs.replace(inputs.model, info=info)
        assert inputs.process_pooling("a", [1]).requests
        with pytest.raises(InvalidRequestError, match="does not tell"):
            inputs.process_pooling("b", [1], PoolingParams(dimensions=1))


def test_a_worker_without_pooling_is_named() -> None:
    with launch_scripted() as engine:
        inputs = engine.engine.input_processor
        inputs.engine_info = msgspec.structs.replace(
            inputs.engine_info, worker="plain", capabilities=frozenset({"prompt_logprobs"})
        )
        with pytest.raises(UnsupportedFeatureError, match=r"'plain'.*pooling"):
            engine.embed([[1]])
        with pytest.raises(UnsupportedFeatureError, match="'plain'"):
            inputs.process_pooling("a", [1])
        assert engine.generate([[1]], greedy(1))


def test_what_is_sent() -> None:
    params = PoolingParams(dimensions=3)
    with launch_scripted() as engine:
        request = engine.engine.input_processor.process_pooling(
            "a",
            {"prompt_token_ids": [4, 5], "cache_salt": "inner"},
            params,
            priority=3,
            tenant="t",
            cache_salt="outer",
            labels={"k": "v"},
            trace_headers={"traceparent": "x"},
        )
    (wire,) = request.requests
    assert (wire.pooling, wire.prompt_token_ids) == (params, [4, 5])
    assert wire.pooling is not params
    assert (wire.priority, wire.tenant, wire.cache_salt) == (3, "t", "inner")
    assert (wire.labels, wire.trace_headers) == ({"k": "v"}, {"traceparent": "x"})
    assert (wire.sampling_params.max_tokens, wire.sampling_params.n) == (1, 1)
    assert (wire.eos_token_id, wire.external_request_id) == (None, "a")


def test_embed_gives_results_in_order() -> None:
    prompts = [[number + 3] * (1 + 7 * (number % 3)) for number in range(20)]
    kinds = [MEAN, PoolingParams(dimensions=2)] * 10
    with launch_scripted() as engine:
        outputs = engine.embed(prompts, kinds, priority=[0] * 20, progress=False)
        one = engine.embed([9, 10, 11])
        assert_idle(engine)
    assert [output.prompt_token_ids for output in outputs] == prompts
    assert len({output.request_id for output in outputs}) == 20
    for output, prompt, params in zip(outputs, prompts, kinds, strict=True):
        assert isinstance(output, PoolingOutput)
        np.testing.assert_array_equal(output.embedding, pooled_vector(prompt, params))
    np.testing.assert_array_equal(one[0].embedding, pooled_vector([9, 10, 11], PoolingParams()))


def test_lists_must_be_as_long_as_the_prompts() -> None:
    with launch_scripted() as engine, pytest.raises(InvalidRequestError, match="2 elements"):
        engine.embed([[1]], [MEAN, MEAN])


class Filter:
    """Changes requests and outputs as told."""

    PLUGIN = PluginInfo(name="filter", api=">=1.0,<2")

    def __init__(
        self,
        request: Callable[[RequestReceived], Any] = lambda event: None,
        output: Callable[[OutputReady], Any] = lambda event: None,
    ) -> None:
        self.seen: list[RequestReceived] = []
        self._request = request
        self._output = output

    @hookimpl
    def adjust_request(self, event: RequestReceived) -> Any:
        self.seen.append(event)
        return self._request(event)

    @hookimpl
    def adjust_output(self, event: OutputReady) -> Any:
        return self._output(event)


def changed(**fields: Any) -> Callable[[RequestReceived], RequestReceived]:
    return lambda event: msgspec.structs.replace(event, **fields)


def test_filters_see_and_change_pooling_requests() -> None:
    smaller = PoolingParams(dimensions=2, normalize=False)
    watching = Filter(changed(pooling=smaller, prompt_token_ids=[8, 9], params=greedy(7, n=1)))
    with launch_scripted(plugins=[watching]) as engine:
        (output,) = engine.embed([[1, 2, 3]], PoolingParams(pooling=PoolingType.LAST))
    (event,) = watching.seen
    assert event.pooling == PoolingParams(pooling=PoolingType.LAST)
    assert event.prompt_token_ids == [1, 2, 3]
    assert output.prompt_token_ids == [8, 9]
    np.testing.assert_array_equal(output.embedding, pooled_vector([8, 9], smaller))


def test_filters_see_that_other_requests_do_not_pool() -> None:
    watching = Filter()
    with launch_scripted(plugins=[watching]) as engine:
        engine.generate([[1]], greedy(1))
    assert [event.pooling for event in watching.seen] == [None]


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (changed(pooling=PoolingParams(dimensions=99)), InvalidRequestError, "dimensions"),
        (changed(pooling="mean"), InvalidRequestError, "PoolingParams"),
        (changed(pooling=None), RequestFailedError, "pooling request"),
        (lambda event: RequestRejected(reason="closed"), InvalidRequestError, "closed"),
        (lambda event: 1 / 0, RequestFailedError, "division"),
    ],
)
def test_filters_that_spoil_a_request(
    change: Callable[[Any], Any], error: type[Exception], message: str
) -> None:
    with launch_scripted(plugins=[Filter(change)]) as engine:
        with pytest.raises(error, match=message):
            engine.embed([[1, 2]])
        assert_idle(engine)


def test_a_filter_can_not_make_a_generating_request_pool() -> None:
    with launch_scripted(plugins=[Filter(changed(pooling=MEAN))]) as engine:
        (output,) = engine.generate([[1, 2]], greedy(2))
    assert output.outputs[0].finish_reason == "error"
    assert "pooling request" in (output.outputs[0].error or "")


def test_output_filters_see_the_vector() -> None:
    def doubled(event: OutputReady) -> OutputReady:
        assert event.output.embedding is not None
        embedding = event.output.embedding * 2
        return OutputReady(output=msgspec.structs.replace(event.output, embedding=embedding))

    def failing(event: OutputReady) -> None:
        raise RuntimeError("no output")

    with launch_scripted(plugins=[Filter(output=doubled)]) as engine:
        (output,) = engine.embed([[5]], MEAN)
    np.testing.assert_array_equal(output.embedding, 2 * pooled_vector([5], MEAN))
    with (
        launch_scripted(plugins=[Filter(output=failing)]) as engine,
        pytest.raises(RequestFailedError, match="no output"),
    ):
        engine.embed([[5]], MEAN)


def test_an_output_without_a_vector_names_its_request() -> None:
    output = RequestOutput(
        request_id="r-1",
        prompt=None,
        prompt_token_ids=[1],
        outputs=[CompletionOutput(index=0, finish_reason="abort")],
        finished=True,
    )
    with pytest.raises(RequestFailedError, match=r"'r-1'.*abort") as error:
        pooling_output(output)
    assert error.value.request_id == "r-1"
