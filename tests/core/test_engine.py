"""The engine core through its public face, with the scripted worker."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from scripted import greedy, launch_scripted, tokens_of

from hookspecs import PluginInfo, hookimpl
from hookspecs.errors import InvalidRequestError


class Recorder:
    """Keeps the events of requests and steps."""

    PLUGIN = PluginInfo(name="recorder", api=">=1.0,<2")

    def __init__(self) -> None:
        self.admitted: list[Any] = []
        self.finished: list[Any] = []
        self.steps: list[Any] = []
        self.started: list[Any] = []
        self.stopping: list[Any] = []

    @hookimpl
    def on_engine_started(self, event: Any) -> None:
        self.started.append(event)

    @hookimpl
    def on_engine_stopping(self, event: Any) -> None:
        self.stopping.append(event)

    @hookimpl
    def on_request_admitted(self, event: Any) -> None:
        self.admitted.append(event)

    @hookimpl
    def on_request_finished(self, event: Any) -> None:
        self.finished.append(event)

    @hookimpl
    def on_step_finished(self, event: Any) -> None:
        self.steps.append(event)


def test_a_script_comes_out_as_written_and_ends_as_asked() -> None:
    recorder = Recorder()
    with launch_scripted(plugins=[recorder]) as engine:
        outputs = engine.generate(
            [[1, 2, 3], [4, 5], [6] * 40],
            [
                greedy(3, {"tokens": [11, 12, 13, 14]}),
                greedy(9, {"tokens": [21, 22, 23]}, stop_token_ids=[22]),
                greedy(2, {"tokens": [31, 32]}),
            ],
        )
    assert tokens_of(outputs) == [[11, 12, 13], [21, 22], [31, 32]]
    assert [o.outputs[0].finish_reason for o in outputs] == ["length", "stop", "length"]
    assert [o.outputs[0].stop_reason for o in outputs] == [None, 22, None]
    assert sorted(str(event.finish_reason) for event in recorder.finished) == [
        "length",
        "length",
        "stop",
    ]


def test_the_end_token_of_the_model() -> None:
    with launch_scripted(scripted={"eos_token_id": 7}) as engine:
        script = {"tokens": [5, 7, 6]}
        stops = engine.generate([[1]], greedy(3, script, ignore_eos=False))
        ignores = engine.generate([[1]], greedy(3, script))
    assert tokens_of(stops) == [[5, 7]]
    assert stops[0].outputs[0].finish_reason == "stop"
    assert stops[0].outputs[0].stop_reason is None
    assert tokens_of(ignores) == [[5, 7, 6]]


@pytest.mark.parametrize("where", ["queue", "prefill", "decode"])
def test_abort_leaves_nothing_and_neighbours_alone(where: str) -> None:
    recorder = Recorder()
    settings = {"max_num_seqs": 1 if where == "queue" else 4, "max_num_batched_tokens": 8}
    with launch_scripted(plugins=[recorder], scheduler=settings) as engine:
        alone = engine.generate([[9, 8, 7]], greedy(6))
        llm = engine.engine
        llm.reset_prefix_cache()
        llm.add_request("neighbour", [9, 8, 7], greedy(6))
        llm.add_request("victim", [5] * (20 if where == "prefill" else 3), greedy(40))
        seen = []
        for _ in range(2 if where != "prefill" else 1):
            seen += llm.step()
        llm.abort_request("victim")
        while llm.has_unfinished_requests():
            seen += llm.step()
    (neighbour,) = [o for o in seen if o.request_id == "neighbour" and o.finished]
    assert neighbour.outputs[0].token_ids == alone[0].outputs[0].token_ids
    reasons = {e.request_id.split("-")[0]: str(e.finish_reason) for e in recorder.finished}
    assert reasons["victim"] == "abort"


def test_a_request_that_the_cache_can_never_hold_is_refused_at_once() -> None:
    with launch_scripted(
        cache={"num_blocks": 4}, model={"name": "scripted", "max_model_len": 64}
    ) as engine:
        with pytest.raises(InvalidRequestError, match=r"20 .*16|16.*20") as error:
            engine.generate([[1] * 10], greedy(10))
        assert error.value.param is not None
        (fits,) = engine.generate([[1] * 10], greedy(6))
    assert len(fits.outputs[0].token_ids) == 6


def test_without_an_explicit_limit_the_limit_is_what_the_cache_holds() -> None:
    recorder = Recorder()
    with launch_scripted(cache={"num_blocks": 4}, plugins=[recorder]) as engine:
        (output,) = engine.generate([[1] * 15], greedy(1))
        assert len(output.outputs[0].token_ids) == 1
        with pytest.raises(InvalidRequestError, match="16"):
            engine.generate([[1] * 16], greedy(1))
    assert recorder.started[0].max_model_len == 16


def test_prompt_at_the_limit() -> None:
    with launch_scripted(model={"name": "scripted", "max_model_len": 32}) as engine:
        (output,) = engine.generate([[1] * 31], greedy(50))
        assert len(output.outputs[0].token_ids) == 1
        assert output.outputs[0].finish_reason == "length"
        for length in (32, 33):
            with pytest.raises(InvalidRequestError, match=f"{length}.*32"):
                engine.generate([[1] * length], greedy(1))


@pytest.mark.parametrize("prefix_caching", [True, False])
@pytest.mark.parametrize("length", [3, 4, 5, 7, 8, 9, 31, 32, 33, 63, 64, 65])
def test_block_and_chunk_boundaries_cold_and_cached(length: int, prefix_caching: bool) -> None:
    recorder = Recorder()
    prompt = [1 + i % 50 for i in range(length)]
    with launch_scripted(
        plugins=[recorder],
        cache={"enable_prefix_caching": prefix_caching},
        scheduler={"long_prefill_token_threshold": 8},
    ) as engine:
        cold = engine.generate([prompt], greedy(6))
        warm = engine.generate([prompt], greedy(6))
    assert tokens_of(cold) == tokens_of(warm)
    cached = recorder.admitted[1].num_cached_tokens
    assert cached == ((length - 1) // 4 * 4 if prefix_caching else 0)


def test_preemption_changes_no_token() -> None:
    prompts = [[10 * i + j for j in range(9)] for i in range(1, 9)]
    params = greedy(20)
    with launch_scripted() as engine:
        roomy = tokens_of(engine.generate(prompts, params))
    for caching in (True, False):
        recorder = Recorder()
        with launch_scripted(
            plugins=[recorder], cache={"num_blocks": 15, "enable_prefix_caching": caching}
        ) as engine:
            tight = tokens_of(engine.generate(prompts, params))
        assert tight == roomy
        assert sum(len(step.preempted_request_ids) for step in recorder.steps) > 0


def test_a_failing_row_ends_its_request_only() -> None:
    with launch_scripted() as engine:
        good = tokens_of(engine.generate([[1, 2, 3]], greedy(5)))
        engine.reset_prefix_cache()
        outputs = engine.generate(
            [[1, 2, 3], [1, 2, 4], [4, 4]],
            [greedy(5), greedy(5, {"tokens": [1, 2, 3, 4, 5], "fail_at": 2}), greedy(5)],
        )
    assert tokens_of(outputs)[0] == good[0]
    bad = outputs[1].outputs[0]
    assert (bad.finish_reason, len(bad.token_ids)) == ("error", 2)
    assert bad.error


def test_nan_logits_end_the_request_and_spoil_nobody() -> None:
    nan = float("nan")
    vocabulary = 16
    row = [0.0] * vocabulary
    logits = [[*row[:5], 3.0, *row[6:]], [nan] * vocabulary]
    some = [[*row[:5], 3.0, *row[6:]], [nan, *row[1:]]]
    prompt = list(range(1, 10))
    with launch_scripted(scripted={"vocab_size": vocabulary}) as engine:
        for bad in (logits, some):
            outputs = engine.generate([prompt, [3, 2, 1]], [greedy(5, {"logits": bad}), greedy(5)])
            assert outputs[0].outputs[0].finish_reason == "error"
            assert "NaN" in (outputs[0].outputs[0].error or "")
            assert outputs[1].outputs[0].finish_reason == "length"
        again = engine.generate([prompt], greedy(5))
        # The blocks of the failed request were not kept.
        assert again[0].num_cached_tokens == 0


def test_every_request_has_exactly_one_finish_event() -> None:
    recorder = Recorder()
    with launch_scripted(plugins=[recorder]) as engine:
        engine.generate([[i, 2, 3] for i in range(1, 20)], greedy(4))
    ids = [event.request_id for event in recorder.finished]
    assert len(ids) == len(set(ids)) == 19
    assert [event.reason for event in recorder.stopping] == ["shutdown"]


def test_the_budget_of_a_step_is_kept() -> None:
    recorder = Recorder()
    with launch_scripted(plugins=[recorder]) as engine:
        engine.generate([[i] * 30 for i in range(1, 12)], greedy(4))
    assert max(step.num_scheduled_tokens for step in recorder.steps) <= 32
    assert max(step.num_running for step in recorder.steps) <= 8


def test_an_abort_storm_in_every_state_leaves_nothing() -> None:
    recorder = Recorder()
    with launch_scripted(plugins=[recorder]) as engine:
        llm = engine.engine
        for round_ in range(5):
            ids = [f"{round_}.{i}" for i in range(60)]
            for i, request_id in enumerate(ids):
                llm.add_request(request_id, [1 + i] * (1 + i), greedy(30))
            for _ in range(round_ * 3):
                llm.step()
            llm.abort_request(ids)
            while llm.has_unfinished_requests():
                llm.step()
        (after,) = engine.generate([[1, 2, 3]], greedy(4))
    assert after.outputs[0].finish_reason == "length"
    assert len(recorder.finished) == 301


def test_an_id_can_be_used_again_right_after_its_abort() -> None:
    with launch_scripted() as engine:
        llm = engine.engine
        for _ in range(20):
            llm.add_request("x", [1, 2, 3], greedy(5))
            llm.step()
            llm.abort_request("x")
            llm.add_request("x", [1, 2, 3], greedy(5, {"tokens": [5, 6, 7, 8, 9]}))
            seen = []
            while llm.has_unfinished_requests():
                seen += llm.step()
            done = [o for o in seen if o.finished and o.outputs[0].finish_reason == "length"]
            assert [o.outputs[0].token_ids for o in done] == [[5, 6, 7, 8, 9]]


def test_a_step_does_not_run_when_nothing_is_left() -> None:
    with launch_scripted() as engine:
        assert not engine.engine.has_unfinished_requests()
        assert engine.engine.step() == []


def test_prefix_hits_do_not_cross_salts() -> None:
    prompt = list(range(1, 30))
    with launch_scripted() as engine:

        def cached(salt: str) -> int:
            request = {"prompt_token_ids": prompt, "cache_salt": salt}
            return engine.generate([request], greedy(2))[0].num_cached_tokens

        assert [cached("a"), cached("b"), cached("a"), cached("b")] == [0, 0, 28, 28]


def test_reset_of_the_prefix_cache() -> None:
    prompt = list(range(1, 30))
    with launch_scripted() as engine:
        engine.generate([prompt], greedy(2))
        assert engine.reset_prefix_cache()
        assert engine.generate([prompt], greedy(2))[0].num_cached_tokens == 0
        engine.engine.add_request("runs", prompt, greedy(5))
        engine.engine.step()
        assert not engine.reset_prefix_cache()
