"""Pooling requests through the kernel: exact vectors, however the work is cut into steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builtin_plugins.worker_scripted.pooling import HIDDEN_SIZE, pooled_vector
from framework import Engine, PoolingParams, PoolingType
from framework.core.pooling import pooling_refusal
from framework.core.request import Request
from framework.core.request_table import RequestTable
from hookspecs import PluginInfo, hookimpl
from hookspecs.contracts.worker import WorkerCapability
from hookspecs.errors import ContractViolation, EngineDeadError, RequestFailedError
from hookspecs.types.request import EngineCoreRequest, FinishReason
from hookspecs.types.sampling import SamplingParams
from hookspecs.types.step import ModelRunnerOutput, RowFailure
from tests.core.scripted import greedy, launch_scripted, tokens_of
from tests.idle import assert_idle, core_of
from tests.pooling.driving import LAST, MEAN, Watcher, run, submit, vector

PROMPTS = [[5, 6, 7], [8] * 30, [9, 300, 41, 7, 12], [0, 0], list(range(1, 40))]
ALL_PARAMS = [
    PoolingParams(pooling=pooling, normalize=normalize, dimensions=dimensions)
    for pooling in PoolingType
    for normalize in (True, False)
    for dimensions in (None, 1, 5, HIDDEN_SIZE)
]
CUTS: dict[str, dict[str, Any]] = {
    "whole": {"max_num_batched_tokens": 256},
    "batches of 7": {"max_num_batched_tokens": 7},
    "chunks of 3": {"long_prefill_token_threshold": 3},
    "one at a time": {"max_num_seqs": 1},
}


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("caching", [True, False])
def test_vectors_are_exact(cut: str, caching: bool) -> None:
    prompts = [prompt for prompt in PROMPTS for _ in ALL_PARAMS]
    params = ALL_PARAMS * len(PROMPTS)
    with launch_scripted(scheduler=CUTS[cut], cache={"enable_prefix_caching": caching}) as engine:
        outputs = engine.embed(prompts, params)
        assert_idle(engine)
    for output, prompt, wanted in zip(outputs, prompts, params, strict=True):
        assert output.prompt_token_ids == prompt
        assert output.embedding.dtype == np.float32
        np.testing.assert_array_equal(output.embedding, pooled_vector(prompt, wanted))


def test_normalized_vectors_have_length_one_but_for_zero() -> None:
    with launch_scripted() as engine:
        some, zero = engine.embed([[1, 2, 3], [0, 0]])
    assert np.linalg.norm(some.embedding) == pytest.approx(1, abs=1e-6)
    assert not zero.embedding.any() and len(zero.embedding) == HIDDEN_SIZE


@settings(max_examples=25, deadline=None)
@given(
    prompts=st.lists(
        st.lists(st.integers(0, 999), min_size=1, max_size=40), min_size=1, max_size=6
    ),
    kinds=st.lists(st.sampled_from([MEAN, LAST, None]), min_size=6, max_size=6),
    budget=st.integers(8, 40),
    blocks=st.integers(13, 40),
)
def test_any_mix_under_pressure(
    prompts: list[list[int]], kinds: list[PoolingParams | None], budget: int, blocks: int
) -> None:
    """Generating (None) and pooling requests share steps and a small cache."""
    with launch_scripted(
        cache={"num_blocks": blocks}, scheduler={"max_num_batched_tokens": budget}
    ) as engine:
        expected = tokens_of(engine.generate(prompts, greedy(5)))
        for number, (prompt, kind) in enumerate(zip(prompts, kinds, strict=False)):
            if kind is None:
                engine.engine.add_request(str(number), prompt, greedy(5))
            else:
                submit(engine, str(number), prompt, kind)
        outputs = run(engine)
        assert_idle(engine)
    for number, (prompt, kind) in enumerate(zip(prompts, kinds, strict=False)):
        output = outputs[str(number)]
        if kind is None:
            assert output.outputs[0].token_ids == expected[number]
            assert output.embedding is None
        else:
            np.testing.assert_array_equal(vector(output), pooled_vector(prompt, kind))


def test_the_output_of_a_pooling_request() -> None:
    watcher = Watcher()
    with launch_scripted(plugins=[watcher]) as engine:
        submit(engine, "a", [3, 4, 5], labels={"k": "v"})
        output = run(engine)["a"]
    (completion,) = output.outputs
    assert output.finished and output.prompt_token_ids == [3, 4, 5]
    assert (completion.finish_reason, completion.token_ids, completion.text) == ("stop", [], "")
    assert completion.error is None
    event = watcher.finished["a"]
    assert (event.finish_reason, event.num_output_tokens) == (FinishReason.STOP, 0)
    assert event.labels == {"k": "v"}


def test_a_mean_does_not_read_the_prefix_cache_and_the_last_token_may() -> None:
    watcher = Watcher()
    prompt = list(range(10, 31))
    with launch_scripted(plugins=[watcher]) as engine:
        for request_id, params in (("m", MEAN), ("l", LAST), ("m2", MEAN)):
            submit(engine, request_id, prompt, params)
            output = run(engine)[request_id]
            np.testing.assert_array_equal(vector(output), pooled_vector(prompt, params))
        (generated,) = engine.generate([prompt], greedy(2))
        submit(engine, "longer", [*prompt, *range(50, 60)], LAST)
        run(engine)
        assert_idle(engine)
    cached = {key: event.num_cached_tokens for key, event in watcher.admitted.items()}
    assert (cached["m"], cached["l"], cached["m2"]) == (0, 20, 0)
    assert generated.num_cached_tokens == 20
    assert cached["longer"] == 20


def test_salts_keep_pooling_requests_apart() -> None:
    watcher = Watcher()
    with launch_scripted(plugins=[watcher]) as engine:
        for request_id, salt in (("a", "x"), ("b", "y"), ("c", "x")):
            submit(engine, request_id, [7] * 21, LAST, cache_salt=salt)
            run(engine)
    assert [watcher.admitted[key].num_cached_tokens for key in "abc"] == [0, 0, 20]


@pytest.mark.parametrize("params", [MEAN, LAST])
@pytest.mark.parametrize("steps", [1, 2, 3])
def test_preempted_in_the_middle_of_its_prompt(params: PoolingParams, steps: int) -> None:
    watcher = Watcher()
    prompt = list(range(100, 140))
    with launch_scripted(
        plugins=[watcher],
        scheduler={"policies": ["priority"], "max_num_seqs": 1, "max_num_batched_tokens": 12},
        plugins_options={"priority": {"preempt_running": True}},
    ) as engine:
        submit(engine, "pooled", prompt, params, priority=5)
        for _ in range(steps):
            assert not engine.engine.step()
        engine.engine.add_request("urgent", [1, 2, 3], greedy(3), priority=0)
        outputs = run(engine)
        assert_idle(engine)
    assert watcher.finished["pooled"].num_preemptions == 1
    np.testing.assert_array_equal(vector(outputs["pooled"]), pooled_vector(prompt, params))


def test_tokens_of_generating_requests_do_not_change() -> None:
    prompts = [[3, 4, 5], [6] * 25, [7, 8]]
    params = greedy(6, logprobs=1)
    with launch_scripted(cache={"enable_prefix_caching": False}) as engine:
        alone = engine.generate(prompts, params)
        for number, prompt in enumerate(prompts):
            engine.engine.add_request(f"g{number}", prompt, params)
            submit(engine, f"p{number}", prompt, MEAN)
            submit(engine, f"l{number}", prompt[::-1], LAST)
        outputs = run(engine)
    for number, prompt in enumerate(prompts):
        mixed = outputs[f"g{number}"].outputs[0]
        assert mixed.token_ids == alone[number].outputs[0].token_ids
        assert mixed.logprobs == alone[number].outputs[0].logprobs
        np.testing.assert_array_equal(vector(outputs[f"p{number}"]), pooled_vector(prompt, MEAN))


@pytest.mark.parametrize("steps", [0, 1, 2])
def test_abort(steps: int) -> None:
    with launch_scripted(scheduler={"max_num_batched_tokens": 10}) as engine:
        submit(engine, "a", list(range(1, 41)), MEAN)
        for _ in range(steps):
            engine.engine.step()
        (output,) = engine.engine.abort_request("a")
        assert output.outputs[0].finish_reason == "abort" and output.embedding is None
        assert not run(engine)
        assert_idle(engine)
        (after,) = engine.embed([[4, 5]], MEAN)
        np.testing.assert_array_equal(after.embedding, pooled_vector([4, 5], MEAN))


def test_rows_of_several_front_ends_keep_their_vectors() -> None:
    def wire(handle: int, prompt: list[int], params: PoolingParams | None) -> EngineCoreRequest:
        return EngineCoreRequest(
            request_id=f"r{handle}",
            handle=handle,
            client_index=handle % 2,
            prompt_token_ids=prompt,
            sampling_params=greedy(1),
            arrival_time=0.0,
            pooling=params,
        )

    with launch_scripted() as engine:
        core = core_of(engine)
        kinds = [None, MEAN, LAST, None, MEAN, LAST, None, None]
        for handle, params in enumerate(kinds):
            core.add_request(wire(handle, [handle + 3, 9], params))
        outputs = core.step()
    assert sorted(outputs) == [0, 1]
    for client, bundle in outputs.items():
        rows = bundle.rows()
        assert {row.handle % 2 for row in rows} == {client}
        assert int(bundle.num_tokens.sum()) == len(bundle.token_ids)
        for row in rows:
            params = kinds[row.handle]
            assert row.finish_reason is (
                FinishReason.LENGTH if params is None else FinishReason.STOP
            )
            assert len(row.token_ids) == (params is None)
            assert bundle.prefills[row.row].num_prompt_tokens == 2
            assert (row.row in bundle.pooled) == (params is not None)
            if params is not None:
                np.testing.assert_array_equal(
                    bundle.pooled[row.row], pooled_vector([row.handle + 3, 9], params)
                )


class Bending:
    """Changes what `sample_tokens` gives, once a vector is among it."""

    PLUGIN = PluginInfo(name="bending", api=">=1.0,<2", provides=("wrap:sample_tokens",))

    def __init__(self, change: Callable[[ModelRunnerOutput], None]) -> None:
        self._change = change

    @hookimpl(wrapper=True)
    def sample_tokens(self, grammar: Any) -> Any:
        result = yield
        if result.result().pooled:
            self._change(result.result())
        return result


def replaced(make: Callable[[Any], Any]) -> Callable[[ModelRunnerOutput], None]:
    def change(result: ModelRunnerOutput) -> None:
        result.pooled = {slot: make(value) for slot, value in result.pooled.items()}

    return change


def missing(result: ModelRunnerOutput) -> None:
    result.pooled.popitem()


def generating(result: ModelRunnerOutput) -> None:
    result.pooled[2] = next(iter(result.pooled.values()))


def stranger(result: ModelRunnerOutput) -> None:
    result.pooled[7] = result.pooled.pop(0)


def beside_a_failure(result: ModelRunnerOutput) -> None:
    result.failures[0] = RowFailure("no")


def token_besides(result: ModelRunnerOutput) -> None:
    result.num_sampled = np.ones_like(result.num_sampled)
    result.token_ids = np.ones(len(result.num_sampled), np.int32)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (missing, "vectors for slots"),
        (generating, "vectors for slots"),
        (stranger, "not in the step"),
        (beside_a_failure, "vectors for slots"),
        (token_besides, "samples"),
        (replaced(list), "float32 array"),
        (replaced(lambda vector: vector.astype(np.float64)), "float64"),
        (replaced(lambda vector: vector[None]), "shape"),
        (replaced(lambda vector: vector[:-1]), "7 elements"),
        (replaced(lambda vector: vector * np.nan), "not finite"),
        (replaced(lambda vector: vector + np.float32(np.inf)), "not finite"),
    ],
)
def test_a_wrong_vector_stops_the_engine(
    change: Callable[[ModelRunnerOutput], None], message: str
) -> None:
    with launch_scripted(plugins=[Bending(change)]) as engine:
        for number in range(2):
            submit(engine, f"p{number}", [5, 6], MEAN)
        engine.engine.add_request("g", [7], greedy(3))
        with pytest.raises(ContractViolation, match=message) as error:
            run(engine)
        assert error.value.plugin == "bending"
        with pytest.raises(EngineDeadError):
            engine.embed([[1]])


def test_a_partial_prompt_must_not_give_a_vector() -> None:
    class Early(Bending):
        @hookimpl(wrapper=True)
        def sample_tokens(self, grammar: Any) -> Any:
            result = yield
            result.result().pooled[0] = np.zeros(HIDDEN_SIZE, np.float32)
            return result

    with (
        launch_scripted(
            plugins=[Early(missing)], scheduler={"max_num_batched_tokens": 8}
        ) as engine,
        pytest.raises(ContractViolation, match="vectors for slots"),
    ):
        engine.embed([[1] * 20])


def test_dimensions_decide_the_length() -> None:
    def grow(vector: Any) -> Any:
        return np.zeros(HIDDEN_SIZE, np.float32)

    with (
        launch_scripted(plugins=[Bending(replaced(grow))]) as engine,
        pytest.raises(ContractViolation, match="wants 3"),
    ):
        engine.embed([[1]], PoolingParams(dimensions=3))


@pytest.mark.parametrize("poisoned", [True, False])
def test_a_row_that_fails_ends_its_request_only(poisoned: bool) -> None:
    def fail_first(result: ModelRunnerOutput) -> None:
        del result.pooled[0]
        result.failures[0] = RowFailure("too hot", poisoned=poisoned)

    with launch_scripted(plugins=[Bending(fail_first)]) as engine:
        submit(engine, "bad", [5] * 9, MEAN)
        submit(engine, "good", [6] * 9, MEAN)
        outputs = run(engine)
        assert_idle(engine)
        (completion,) = outputs["bad"].outputs
        assert (completion.finish_reason, completion.error) == ("error", "too hot")
        assert outputs["bad"].embedding is None
        np.testing.assert_array_equal(vector(outputs["good"]), pooled_vector([6] * 9, MEAN))
        with pytest.raises(RequestFailedError, match="too hot") as error:
            engine.embed([[5], [6]])
        assert error.value.request_id and error.value.request_id in str(error.value)
        assert_idle(engine)


def test_a_mean_can_not_start_with_computed_tokens() -> None:
    def request(params: PoolingParams) -> Request:
        return Request(
            EngineCoreRequest(
                request_id="r",
                handle=0,
                prompt_token_ids=[1, 2, 3],
                sampling_params=SamplingParams(max_tokens=1),
                arrival_time=0.0,
                pooling=params,
            ),
            arrival=0,
            max_model_len=16,
            block_size=1,
            queued_at=0.0,
        )

    RequestTable(1).start(request(LAST), 2)
    RequestTable(1).start(request(MEAN), 0)
    with pytest.raises(ContractViolation, match="whole prompt"):
        RequestTable(1).start(request(MEAN), 1)


def refused(engine: Engine, **fields: Any) -> str:
    core = core_of(engine)
    wire: dict[str, Any] = {
        "request_id": "bad",
        "handle": 10**6,
        "prompt_token_ids": [1],
        "sampling_params": SamplingParams(),
        "arrival_time": 0.0,
        "pooling": MEAN,
    }
    core.add_request(EngineCoreRequest(**{**wire, **fields}))
    bundle = core.step()[0]
    (row,) = bundle.rows()
    assert row.finish_reason is FinishReason.ERROR
    return bundle.errors[row.row]


def test_a_front_end_that_checks_nothing_harms_its_own_request_only() -> None:
    with launch_scripted() as engine:
        for dimensions in (0, -1, HIDDEN_SIZE + 1):
            assert "dimensions" in refused(engine, pooling=PoolingParams(dimensions=dimensions))
        assert "limit" in refused(engine, prompt_token_ids=[1] * 5000)
        assert_idle(engine)


def test_the_kernel_refuses_what_the_worker_does_not_declare() -> None:
    declared = frozenset({WorkerCapability.POOLING.value})
    assert "does not declare" in (pooling_refusal(MEAN, 8, frozenset()) or "")
    assert pooling_refusal(PoolingParams(dimensions=8), 8, declared) is None
    assert "dimensions" in (pooling_refusal(PoolingParams(dimensions=1), 0, declared) or "")


def test_max_tokens_means_nothing() -> None:
    """A pooling request needs room for its prompt whatever its sampling parameters say."""
    with launch_scripted(cache={"num_blocks": 4}) as engine:
        core = core_of(engine)
        core.add_request(
            EngineCoreRequest(
                request_id="r",
                handle=10**6,
                prompt_token_ids=[4] * 11,
                sampling_params=SamplingParams(max_tokens=1000),
                arrival_time=0.0,
                pooling=LAST,
            )
        )
        bundle = core.step()[0]
        np.testing.assert_array_equal(bundle.pooled[0], pooled_vector([4], LAST))
