"""The installed policy in a real engine, whose worker emits scripted tokens."""

from __future__ import annotations

import framework
from hookspecs import EngineHooks, PluginInfo, SamplingParams, hookimpl
from hookspecs.events import RequestAdmitted


class AdmissionRecorder(EngineHooks):
    """Notes the prompt lengths of requests in the order in which they start."""

    PLUGIN = PluginInfo(name="admission-recorder", api=">=1.0,<2")

    def __init__(self) -> None:
        self.prompt_lengths: list[int] = []

    @hookimpl
    def on_request_admitted(self, event: RequestAdmitted) -> None:
        """A request was scheduled for the first time."""
        self.prompt_lengths.append(event.num_prompt_tokens)


def admitted(policy: str, lengths: list[int]) -> list[int]:
    """Prompt lengths in the order of admission, one request running at a time."""
    recorder = AdmissionRecorder()
    config = {
        "model": {"name": "scripted"},
        "executor": {"worker": "scripted"},
        "scheduler": {"policies": [policy], "max_num_seqs": 1},
        # Slow aging, so that the speed of the machine does not matter.
        "plugins": {"options": {"shortest-prompt-first": {"aging_tokens_per_s": 0.01}}},
    }
    prompts = [[1 + i % 7 for i in range(length)] for length in lengths]
    with framework.launch(config, plugins=[recorder]) as engine:
        outputs = list(
            engine.generate(prompts, SamplingParams(max_tokens=2, temperature=0, detokenize=False))
        )
    assert [len(output.prompt_token_ids) for output in outputs] == lengths
    assert all(output.finished for output in outputs)
    return recorder.prompt_lengths


def test_requests_start_in_the_order_of_their_prompt_lengths() -> None:
    assert admitted("shortest-prompt-first", [30, 10, 40, 20]) == [10, 20, 30, 40]


def test_without_the_policy_they_start_in_the_order_of_arrival() -> None:
    assert admitted("fcfs", [30, 10, 40, 20]) == [30, 10, 40, 20]
