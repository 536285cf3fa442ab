"""Random work: both schedulers give the same tokens, and this one preempts nothing by itself."""

from __future__ import annotations

from typing import Any, NamedTuple

import framework
from framework import SamplingParams
from hookspecs import EngineHooks, PluginInfo, hookimpl
from hookspecs.events import RequestFinished
from hypothesis import given, settings
from hypothesis import strategies as st

LONGEST = 24
"""Most tokens of a request, prompt and output."""


class Arrival(NamedTuple):
    """A request, what happens to it, and when: numbers of steps."""

    step: int
    shared: int
    own: int
    max_tokens: int
    priority: int
    tenant: str
    aborted_after: int | None

    def prompt(self, number: int) -> list[int]:
        """Tokens that all requests share, then its own."""
        return [*range(10, 10 + self.shared), *([500 + number] * self.own)]


class Ends(EngineHooks):
    """Notes how often each request was preempted."""

    PLUGIN = PluginInfo(name="ends", api=">=1.0,<2")

    def __init__(self) -> None:
        self.preemptions: list[int] = []

    @hookimpl
    def on_request_finished(self, event: RequestFinished) -> None:
        self.preemptions.append(event.num_preemptions)


arrivals = st.builds(
    Arrival,
    step=st.integers(0, 12),
    shared=st.integers(0, 8),
    own=st.integers(1, 8),
    max_tokens=st.integers(1, 8),
    priority=st.integers(0, 2),
    tenant=st.sampled_from("xy"),
    aborted_after=st.none() | st.integers(1, 30),
)


@st.composite
def configurations(draw: st.DrawFn) -> dict[str, Any]:
    """Small caches, of all kinds, that can hold at least one request."""
    block_size, groups = draw(st.sampled_from([(1, 1), (3, 1), (4, 1), (4, 2)]))
    least = max(2, groups * -(-LONGEST // block_size))
    window = draw(st.integers(1, 6)) if groups == 2 else draw(st.none() | st.integers(1, 6))
    return {
        "model": {"name": "scripted", "max_model_len": LONGEST},
        "executor": {"worker": "scripted"},
        "cache": {
            "block_size": block_size,
            "num_blocks": least + draw(st.integers(0, least)),
            "enable_prefix_caching": draw(st.booleans()),
        },
        "scheduler": {
            "max_num_seqs": draw(st.integers(1, 5)),
            "max_num_batched_tokens": draw(st.integers(1, 20)),
            "long_prefill_token_threshold": draw(st.integers(0, 6)),
            "policies": draw(
                st.sampled_from(
                    [["fcfs"], ["priority"], ["fair_share"], ["priority", "fair_share"]]
                )
            ),
        },
        "engine": {"debug": True},
        "stats": {"loggers": []},
        "plugins": {"options": {"scripted": {"num_groups": groups, "sliding_window": window}}},
    }


def tokens(
    config: dict[str, Any], scheduler: str, work: list[Arrival], resets: set[int]
) -> tuple[dict[int, list[int]], list[int]]:
    """Tokens of requests that were not aborted, and preemptions of all."""
    ends, found = Ends(), {}
    config = {**config, "scheduler": {**config["scheduler"], "name": scheduler}}
    with framework.launch(config, plugins=[ends]) as launched:
        engine = launched.engine
        for step in range(2000):
            for number, arrival in enumerate(work):
                if arrival.step == step:
                    params = SamplingParams(
                        max_tokens=arrival.max_tokens,
                        temperature=0,
                        ignore_eos=True,
                        detokenize=False,
                    )
                    engine.add_request(
                        str(number),
                        arrival.prompt(number),
                        params,
                        priority=arrival.priority,
                        tenant=arrival.tenant,
                    )
                elif arrival.step + (arrival.aborted_after or 0) == step:
                    engine.abort_request(str(number))
            if step in resets:
                engine.reset_prefix_cache(preempt_running=True)
            if engine.has_unfinished_requests():
                for output in engine.step():
                    if output.finished and work[int(output.request_id)].aborted_after is None:
                        found[int(output.request_id)] = output.outputs[0].token_ids
            elif step > 50:
                break
        assert not engine.has_unfinished_requests()
    return found, ends.preemptions


@settings(max_examples=10, deadline=None)
@given(configurations(), st.lists(arrivals, min_size=1, max_size=10), st.sets(st.integers(0, 30)))
def test_tokens_are_those_of_the_built_in_scheduler(
    config: dict[str, Any], work: list[Arrival], resets: set[int]
) -> None:
    expected, _ = tokens(config, "continuous", work, set())
    undisturbed, preemptions = tokens(config, "reserving", work, set())
    reset, _ = tokens(config, "reserving", work, resets)
    assert undisturbed == reset == expected
    assert len(expected) == sum(arrival.aborted_after is None for arrival in work)
    assert preemptions == [0] * len(work)
