"""The installed scheduler in an engine, beside the built-in one.

The worker `scripted` makes each token out of all tokens before it and checks the blocks of every
step; `engine.debug` checks the accounts of the cache after it, and the kernel every decision.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

import framework
import pytest
from framework import Engine, FinishReason, RequestOutput, SamplingParams
from hookspecs import EngineHooks, PluginInfo, Provider, hookimpl
from hookspecs.contracts.policy import Admission, PolicyContext, SchedulerView, SchedulingPolicy
from hookspecs.contracts.request_view import RequestView
from hookspecs.events import RequestAdmitted, RequestFinished, StepFinished

from reserving_scheduler.plugin import plugin


class Reluctant(SchedulingPolicy):
    """At most 3 tokens a step; the tenant `last` starts when nobody else runs or waits."""

    told: ClassVar[Counter[str]] = Counter()
    """Request id to how often it was said to have finished, in all engines of a test."""

    def __init__(self, context: PolicyContext) -> None:
        super().__init__(context)
        self.told.clear()

    def cap_tokens(self, view: SchedulerView) -> int | None:
        return 3

    def admit(self, request: RequestView, view: SchedulerView) -> Admission:
        alone = not view.num_running and view.num_waiting == 1
        return Admission.ADMIT if alone or request.tenant != "last" else Admission.WAIT

    def on_finish(self, request: RequestView, reason: FinishReason) -> None:
        self.told[request.request_id.partition("-")[0]] += 1


class Recorder(EngineHooks):
    """Notes what happens, and offers the policy `reluctant`."""

    PLUGIN = PluginInfo(name="recorder", api=">=1.0,<2")

    def __init__(self) -> None:
        self.admitted: list[int] = []
        """Prompt lengths, in the order of starts."""
        self.steps: list[StepFinished] = []
        self.num_preemptions = 0
        self.finished = 0

    @hookimpl
    def register_scheduling_policies(self) -> Iterable[Provider[SchedulingPolicy]]:
        yield Provider("reluctant", f"{__name__}:Reluctant")

    @hookimpl
    def on_request_admitted(self, event: RequestAdmitted) -> None:
        self.admitted.append(event.num_prompt_tokens)

    @hookimpl
    def on_step_finished(self, event: StepFinished) -> None:
        self.steps.append(event)

    @hookimpl
    def on_request_finished(self, event: RequestFinished) -> None:
        self.num_preemptions += event.num_preemptions
        self.finished += 1


class Driven:
    """An engine that a test steps, with the ends of its requests."""

    def __init__(
        self,
        scheduler: str = "reserving",
        *,
        num_blocks: int = 16,
        scripted: dict[str, Any] | None = None,
        block_size: int = 4,
        **settings: Any,
    ) -> None:
        self.recorder = Recorder()
        config = {
            "model": {"name": "scripted"},
            "executor": {"worker": "scripted"},
            "cache": {"block_size": block_size, "num_blocks": num_blocks},
            "scheduler": {"name": scheduler, "max_num_batched_tokens": 32, **settings},
            "engine": {"debug": True},
            "stats": {"loggers": []},
            "plugins": {"options": {"scripted": scripted or {}}},
        }
        self.engine: Engine = framework.launch(config, plugins=[self.recorder])
        self.ended: dict[str, RequestOutput] = {}

    def __enter__(self) -> Driven:
        return self

    def __exit__(self, *error: object) -> None:
        self.engine.shutdown()

    def add(self, name: str, prompt: int | Sequence[int], max_tokens: int, **fields: Any) -> None:
        """A request; a number as prompt means so many tokens."""
        tokens = [3 + i % 7 for i in range(prompt)] if isinstance(prompt, int) else list(prompt)
        params = SamplingParams(
            max_tokens=max_tokens, temperature=0, ignore_eos=True, detokenize=False
        )
        self.engine.engine.add_request(name, tokens, params, **fields)

    def step(self, times: int = 1) -> None:
        for _ in range(times):
            if self.engine.engine.has_unfinished_requests():
                outputs = self.engine.engine.step()
                self.ended.update((out.request_id, out) for out in outputs if out.finished)

    def abort(self, name: str) -> None:
        self.ended.update((out.request_id, out) for out in self.engine.engine.abort_request(name))

    def finish(self) -> None:
        """Step until all requests have ended; nothing of them is left."""
        for _ in range(1000):
            self.step()
        status = self.engine.status()
        assert (status.num_running, status.num_waiting) == (0, 0)

    def tokens(self) -> dict[str, list[int]]:
        return {name: output.outputs[0].token_ids for name, output in self.ended.items()}

    def reason(self, name: str) -> str | None:
        return self.ended[name].outputs[0].finish_reason


def test_the_plugin_offers_a_scheduler_without_capabilities() -> None:
    (provider,) = plugin.register_schedulers()
    assert provider.name == plugin.PLUGIN.name == "reserving"
    assert provider.capabilities == frozenset()


# No preemption


def test_nothing_is_preempted_where_the_built_in_scheduler_has_to() -> None:
    tokens, preemptions, running = [], [], []
    for scheduler in ("continuous", "reserving"):
        with Driven(scheduler, num_blocks=8) as driven:
            for number in range(5):
                driven.add(f"r{number}", [10 + number] * 4, 12)  # 4 blocks in the end
            driven.finish()
            tokens.append(driven.tokens())
            preemptions.append(driven.recorder.num_preemptions)
            running.append(max(step.num_running for step in driven.recorder.steps))
    assert tokens[0] == tokens[1]
    assert len(tokens[1]) == 5
    assert preemptions[0] > 0
    assert preemptions[1] == 0
    assert running[1] == 2


def test_a_request_that_generates_gets_a_token_in_every_step() -> None:
    with Driven(max_num_batched_tokens=8, num_blocks=64, policies=["priority"]) as driven:
        driven.add("a", 3, 25)
        driven.add("b", 4, 25)
        driven.step()
        driven.add("long", 100, 2, priority=-1)  # more urgent, and takes what is left
        driven.finish()
        sampled = [step.num_sampled_tokens for step in driven.recorder.steps]
        scheduled = [step.num_scheduled_tokens for step in driven.recorder.steps]
    assert min(sampled[:25]) == 2
    assert scheduled[1:17] == [8] * 16


def test_a_sliding_window_reserves_no_more_than_the_window_needs() -> None:
    with Driven(num_blocks=10, scripted={"sliding_window": 4}, max_num_batched_tokens=8) as driven:
        driven.add("a", 10, 80)  # 23 blocks, of which it never holds more than 4
        driven.add("b", 10, 80)
        driven.finish()
        assert max(step.num_running for step in driven.recorder.steps) == 2
        assert driven.recorder.num_preemptions == 0
        assert [len(tokens) for tokens in driven.tokens().values()] == [80, 80]


# Settings and policies


def test_a_step_has_at_most_so_many_tokens_of_one_prompt() -> None:
    with Driven(num_blocks=64, long_prefill_token_threshold=5) as driven:
        driven.add("long", 40, 1)
        driven.finish()
        assert [step.num_scheduled_tokens for step in driven.recorder.steps] == [5] * 8


def test_the_first_that_does_not_fit_keeps_later_ones_waiting() -> None:
    with Driven(num_blocks=8) as driven:
        driven.add("a", 8, 8)
        driven.add("large", 20, 12)
        for number in range(4):
            driven.add(f"small{number}", 3, 1)
            driven.step()
        driven.finish()
        assert driven.recorder.admitted == [8, 20, 3, 3, 3, 3]


@pytest.mark.parametrize("policy", ["fcfs", "priority", "deadline", "fair_share"])
def test_requests_start_in_the_order_of_the_policy(policy: str) -> None:
    orders = []
    for scheduler in ("continuous", "reserving"):
        with Driven(scheduler, max_num_seqs=1, policies=[policy]) as driven:
            now = time.monotonic()
            for number, (priority, late, tenant) in enumerate(
                [(2, 900, "x"), (0, 700, "x"), (1, 950, "x"), (0, 800, "y"), (3, 600, "y")]
            ):
                fields = {"priority": priority, "deadline": now + late, "tenant": tenant}
                driven.add(f"r{number}", 5 + number, 3, **fields)
            driven.finish()
            orders.append(driven.recorder.admitted)
    assert orders[0] == orders[1]
    assert (orders[1] == sorted(orders[1])) is (policy == "fcfs")


def test_caps_and_admission_of_a_policy_are_kept_and_it_hears_of_every_end() -> None:
    with Driven(policies=["reluctant"]) as driven:
        driven.add("held", 6, 2, tenant="last")
        for number in range(3):
            driven.add(f"r{number}", 5, 4)
        driven.add("gone", 5, 4)
        driven.step()
        driven.abort("gone")
        driven.finish()
        assert driven.recorder.admitted == [5, 5, 5, 6]
        assert max(step.num_scheduled_tokens for step in driven.recorder.steps) == 3
        assert Reluctant.told == dict.fromkeys(["held", "r0", "r1", "r2", "gone"], 1)


def test_a_request_that_waited_too_long_ends() -> None:
    with Driven(max_num_seqs=1, policies=["deadline", "reluctant"]) as driven:
        driven.add("first", 5, 8)
        driven.step()
        driven.add("late", 5, 8, deadline=time.monotonic() - 1)
        driven.finish()
        assert driven.reason("late") == "timeout"
        assert driven.reason("first") == "length"
        assert driven.ended["late"].outputs[0].error is not None
        assert Reluctant.told == {"first": 1, "late": 1}


def test_a_prefix_is_found_in_the_cache() -> None:
    with Driven() as driven:
        driven.add("a", 17, 2)
        driven.finish()
        driven.add("b", 17, 2)
        driven.finish()
        assert driven.ended["b"].num_cached_tokens == 16
        assert driven.tokens()["a"] == driven.tokens()["b"]


# Aborts and control


@pytest.mark.parametrize("steps", [0, 1, 3, 6, 8])
def test_an_abort_in_any_state_leaves_nothing_behind(steps: int) -> None:
    with Driven(num_blocks=8, max_num_batched_tokens=4) as driven:
        for name in ("a", "b", "c"):
            driven.add(name, 9, 7)
        driven.step(steps)
        for name in ("b", "a", "c"):
            driven.abort(name)
        assert {driven.reason(name) for name in ("a", "b", "c")} == {"abort"}
        driven.finish()
        assert driven.recorder.finished == 3
        driven.add("a", 20, 12)  # the whole cache, under an id that is used again
        driven.finish()
        assert len(driven.tokens()["a"]) == 12


def interrupted(how: str) -> tuple[dict[str, list[int]], int]:
    """Tokens and preemptions of requests of which some run when something happens."""
    with Driven(num_blocks=8) as driven:
        for number in range(4):
            driven.add(f"r{number}", [10 + number] * 4, 12)
        driven.step(3)
        if how == "reset":
            assert not driven.engine.reset_prefix_cache()
            assert driven.engine.reset_prefix_cache(preempt_running=True)
        elif how == "pause":
            driven.engine.pause("keep")
            assert driven.engine.status().num_running == 0
            driven.engine.resume()
        elif how == "wait":
            driven.engine.pause("wait")
            assert driven.engine.status().num_waiting == 2
            driven.engine.resume()
        elif how == "sleep":
            driven.engine.sleep(1, "keep")
            driven.engine.wake_up()
        elif how == "abort preempted":
            driven.engine.pause("keep")
            driven.abort("r0")
            driven.engine.resume()
        driven.finish()
        return driven.tokens(), driven.recorder.num_preemptions


@pytest.mark.parametrize(("how", "times"), [("reset", 2), ("pause", 2), ("wait", 0), ("sleep", 2)])
def test_requests_go_on_after_an_interruption_with_the_same_tokens(how: str, times: int) -> None:
    undisturbed, none = interrupted("")
    assert none == 0
    assert interrupted(how) == (undisturbed, times)


def test_a_request_can_be_aborted_while_it_is_preempted() -> None:
    undisturbed, _ = interrupted("")
    tokens, _ = interrupted("abort preempted")
    assert tokens.pop("r0") != undisturbed.pop("r0")
    assert tokens == undisturbed
