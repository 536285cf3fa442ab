"""Small caches: who is preempted, and that nobody loses anything by it."""

from __future__ import annotations

from typing import Any

import pytest

from framework.launcher import Engine
from tests.core.scripted import greedy, tokens_of

TIGHT = {"block_size": 4, "num_blocks": 10}
ROOMY = {"block_size": 4, "num_blocks": 200}


def run(engine: Engine) -> dict[str, Any]:
    """Step until all is done; the last output of each request, in the order in which they end."""
    done: dict[str, Any] = {}
    while engine.engine.has_unfinished_requests():
        done.update((o.request_id, o) for o in engine.engine.step() if o.finished)
    return done


@pytest.mark.parametrize("preempt_running", [False, True])
@pytest.mark.parametrize("arrives_after", range(1, 12))
def test_an_urgent_request_among_growing_ones(
    launch: Any, plain: Any, watcher: Any, arrives_after: int, preempt_running: bool
) -> None:
    engine = launch(
        cache=TIGHT,
        scheduler={"policies": ["priority"], "max_num_seqs": 8},
        plugins_options={"priority": {"preempt_running": preempt_running}},
        model={"max_model_len": 40},
    )
    llm = engine.engine
    prompts = {f"low {i}": [3 + i] * 5 for i in range(3)}
    for name, prompt in prompts.items():
        llm.add_request(name, prompt, greedy(12), priority=5)
    for _ in range(arrives_after):
        assert not any(output.finished for output in llm.step())
    prompts["urgent"] = [9] * 16
    llm.add_request("urgent", prompts["urgent"], greedy(12), priority=-5)
    # A step that runs out of blocks for those that run starts nobody; the next one does.
    early = [*llm.step(), *llm.step()]
    if preempt_running:
        assert "urgent" in [output.request_id for output in early]
    done = {output.request_id: output for output in early if output.finished}
    done.update(run(engine))
    assert watcher.num_preempted > 0
    for name, prompt in prompts.items():
        assert done[name].outputs[0].token_ids == plain(engine, prompt, 12)


@pytest.mark.parametrize("policies", [["fcfs"], ["priority"], ["deadline"], ["fair_share"]])
def test_among_equals_the_last_to_come_is_preempted_and_the_order_repeats(
    launch: Any, watcher: Any, policies: list[str]
) -> None:
    """Equal in priority, deadline, tenant and arrival time: one order decides."""
    histories = set()
    for _ in range(6):
        engine = launch(cache=TIGHT, scheduler={"policies": policies})
        llm = engine.engine
        before = len(watcher.steps)
        for i in range(3):
            llm.add_request(f"r{i}", [3 + i] * 5, greedy(14), arrival_time=7.0, deadline=1e15)
        done = run(engine)
        steps = watcher.steps[before:]
        victims = [name[:2] for step in steps for name in step.preempted_request_ids]
        histories.add((tuple(victims), tuple(done), len(steps)))
    ((order, ends, _),) = histories
    assert order[0] == "r2"
    assert "r0" not in order
    assert ends == ("r0", "r1", "r2")


@pytest.mark.parametrize("caching", [True, False])
@pytest.mark.parametrize("num_blocks", [8, 10, 16])
def test_eight_requests_in_a_cache_for_two(
    launch: Any, watcher: Any, caching: bool, num_blocks: int
) -> None:
    prompts = [[3 + i % 3] * 6 + [i] for i in range(8)]
    limits = {"max_num_seqs": 8}
    engine = launch(cache=ROOMY, scheduler=limits)
    whole = engine.generate(prompts, greedy(20, logprobs=1))
    assert watcher.num_preempted == 0
    tight = {"block_size": 4, "num_blocks": num_blocks, "enable_prefix_caching": caching}
    engine = launch(cache=tight, scheduler=limits, model={"max_model_len": 32})
    for _ in range(2):
        found = engine.generate(prompts, greedy(20, logprobs=1))
        assert [o.outputs for o in found] == [o.outputs for o in whole]
    assert watcher.num_preempted > 0


def test_what_is_told_once_of_a_request_is_not_told_again_after_preemption(
    launch: Any, watcher: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = launch(cache=TIGHT, scheduler={"max_num_seqs": 8}, model={"max_model_len": 40})
    client = engine.engine._client
    get_outputs = client.get_outputs
    told: list[int] = []

    def watched() -> Any:
        outputs = get_outputs()
        told.extend(outputs.handles[list(outputs.prefills)].tolist())
        return outputs

    monkeypatch.setattr(client, "get_outputs", watched)
    engine.generate([[3 + i] * 6 for i in range(5)], greedy(20))
    assert watcher.num_preempted > 0
    assert sorted(told) == [0, 1, 2, 3, 4]
    assert [event.num_preemptions for event in watcher.finished].count(0) < 5
    assert len(watcher.admitted) == 5


def test_twenty_prompts_alone_and_at_once(launch: Any) -> None:
    prompts = [[3 + i * j % 50 for j in range(1, 3 + 2 * i)] for i in range(20)]
    limits = {"max_num_seqs": 20}
    engine = launch(cache=ROOMY, scheduler=limits)
    alone = [engine.generate([prompt], greedy(16))[0] for prompt in prompts]
    engine = launch(cache=ROOMY, scheduler=limits)
    assert tokens_of(engine.generate(prompts, greedy(16))) == tokens_of(alone)


@pytest.mark.parametrize("cached", [False, True])
def test_chunk_and_block_boundaries(launch: Any, watcher: Any, cached: bool) -> None:
    """Blocks of 8 and steps of 16 tokens, against one step without a cache."""
    params = [greedy(9), greedy(9, logprobs=3), greedy(9, logprobs=1, prompt_logprobs=1)]
    whole = launch(
        cache={"enable_prefix_caching": False}, scheduler={"max_num_batched_tokens": 128}
    )
    engine = launch(
        cache={"block_size": 8, "num_blocks": 48}, scheduler={"max_num_batched_tokens": 16}
    )
    for length in (1, 7, 8, 9, 15, 16, 17, 23, 24, 25, 31, 32, 33, 63, 64, 65):
        prompt = [3 + i * i % 90 for i in range(length)]
        for each in params:
            assert engine.reset_prefix_cache()
            if cached:
                engine.generate([prompt], greedy(9))
            (expected,) = whole.generate([prompt], each)
            (found,) = engine.generate([prompt], each)
            assert found.outputs == expected.outputs, length
            assert found.prompt_logprobs == expected.prompt_logprobs, length
            # A whole prompt is never a hit: its last token is computed.
            hit = (length - 1) // 8 * 8 if cached and each.prompt_logprobs is None else 0
            assert found.num_cached_tokens == hit, length
    assert min(step.num_scheduled_tokens for step in watcher.steps) > 0
