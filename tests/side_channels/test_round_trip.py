"""Messages reach the other half with the step that they belong to, and change no token."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from builtin_plugins.worker_scripted.rule import default_token
from hookspecs import PluginInfo, Provider, hookimpl
from hookspecs.contracts.policy import Admission, SchedulingPolicy
from hookspecs.types.step import ModelRunnerOutput, SchedulerOutput
from tests.core.scripted import greedy, tokens_of
from tests.idle import core_of
from tests.side_channels.launches import PARAMS, PROMPTS, Listener, expected, launch_probe
from tests.side_channels.probe import calls_in


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


class Watching:
    """Sees what goes to the executor and comes back."""

    PLUGIN = PluginInfo(
        name="watching", api=">=1.0,<2", provides=("wrap:execute_model", "wrap:sample_tokens")
    )

    def __init__(self) -> None:
        self.scheduled: list[SchedulerOutput] = []
        self.results: list[ModelRunnerOutput] = []

    @hookimpl(wrapper=True)
    def execute_model(self, scheduled: SchedulerOutput) -> Any:
        self.scheduled.append(scheduled)
        return (yield)

    @hookimpl(wrapper=True)
    def sample_tokens(self, grammar: Any) -> Any:
        future = yield
        self.results.append(future.result())
        return future


class HesitatingPolicy(SchedulingPolicy):
    """Admits nobody the first three times that it is asked."""

    asked = 0

    def admit(self, request: Any, view: Any) -> Admission:
        self.asked += 1
        return Admission.ADMIT if self.asked > 3 else Admission.WAIT


class Hesitating:
    PLUGIN = PluginInfo(name="hesitating", api=">=1.0,<2")

    @hookimpl
    def register_scheduling_policies(self) -> Any:
        yield Provider("hesitating", f"{__name__}:HesitatingPolicy")


def tokens_after(prompt: list[int], count: int) -> list[int]:
    """What the scripted worker says."""
    known = list(prompt)
    for _ in range(count):
        known.append(default_token(known, 1000, 2))
    return known[len(prompt) :]


def check_pairs(log: Path) -> list[int]:
    """Every step: message, on_step, reply, on_reply, in this order. Returns the steps."""
    made = [(record["call"], record["step"]) for record in calls_in(log) if "step" in record]
    steps = list(dict.fromkeys(step for _, step in made))
    calls = ("core.message", "worker.on_step", "worker.reply", "core.on_reply")
    assert made == [(call, step) for step in steps for call in calls]
    return steps


def test_typed_messages_go_there_and_back_with_their_step(log: Path) -> None:
    with launch_probe(log, "probe") as engine:
        assert tokens_of(engine.generate(PROMPTS, PARAMS)) == expected()
    steps = check_pairs(log)
    assert steps == list(range(1, len(steps) + 1))
    for sent, got in zip(
        calls_in(log, "core.message"), calls_in(log, "worker.on_step"), strict=True
    ):
        message = got["message"]
        assert (message["step"], message["rows"]) == (sent["step"], sent["rows"])
        assert len(message["slots"]) == sent["rows"]
    replies = calls_in(log, "core.on_reply")
    assert sum(reply["sampled"] for reply in replies) == 3 * 6
    assert [reply["replied"] for reply in replies] == steps


def test_each_half_knows_where_it_is_and_is_closed_once(log: Path) -> None:
    with launch_probe(log, "probe") as engine:
        engine.generate(PROMPTS, PARAMS)
        engine.shutdown()
    for side, rank in (("core", None), ("worker", 0)):
        calls = [c for c in calls_in(log) if c["call"].startswith(side)]
        assert {(call["rank"], call["engine"]) for call in calls} == {(rank, 0)}
        assert [c["call"] for c in calls].index(f"{side}.close") == len(calls) - 1
    assert {reply["from_rank"] for reply in calls_in(log, "core.on_reply")} == {0}


def test_several_channels_do_not_mix_and_one_may_have_no_replies(log: Path) -> None:
    with launch_probe(log, "one-way", "probe", "one-way") as engine:
        assert tokens_of(engine.generate(PROMPTS, PARAMS)) == expected()
    steps = check_pairs(log)
    one_way = [c["call"] for c in calls_in(log, channel="one-way") if "step" in c]
    assert one_way == ["core.message", "worker.on_step", "worker.reply"] * len(steps)


def test_nothing_is_sent_where_nothing_is_selected(log: Path) -> None:
    watching, listener = Watching(), Listener()
    with launch_probe(log, plugins=[watching, listener]) as engine:
        assert tokens_of(engine.generate(PROMPTS, PARAMS)) == expected()
        states = {report.name: report.state for report in engine.plugins()}
    assert watching.scheduled
    assert all(scheduled.side_channel == {} for scheduled in watching.scheduled)
    assert all(result.side_channel == {} for result in watching.results)
    assert not log.exists()
    assert states["probe"] == "unused"
    assert listener.started[0].plugins["side_channels"] == ""


def test_a_selected_channel_counts_as_used(log: Path) -> None:
    watching, listener = Watching(), Listener()
    with launch_probe(log, "probe", "one-way", plugins=[watching, listener]) as engine:
        engine.generate(PROMPTS, PARAMS)
        report = {report.name: report for report in engine.plugins()}["probe"]
    assert report.state == "active"
    steps = len(watching.scheduled)
    # registration, and of each step four calls of one channel and three of the other
    assert report.calls["register_side_channels"] == 7 * steps
    assert report.errors["register_side_channels"] == 0
    assert listener.started[0].plugins["side_channels"] == "probe,one-way"
    assert all(s.side_channel.keys() == {"probe", "one-way"} for s in watching.scheduled)
    assert all(r.side_channel.keys() == {"probe"} for r in watching.results)


def test_a_step_without_rows_sends_nothing(log: Path) -> None:
    watching = Watching()
    with launch_probe(
        log,
        "probe",
        plugins=[watching, Hesitating()],
        scheduler={"policies": ["hesitating"]},
    ) as engine:
        assert tokens_of(engine.generate(PROMPTS, PARAMS)) == expected()
    steps = check_pairs(log)
    assert steps == [scheduled.step for scheduled in watching.scheduled]
    assert all(call["rows"] for call in calls_in(log, "core.message"))


@pytest.mark.parametrize("channels", [(), ("probe",)])
def test_preemptions_and_aborts_lose_no_message(log: Path, channels: tuple[str, ...]) -> None:
    listener = Listener()
    prompts = {str(i): [10 + i, 11, 12, 13 + i] for i in range(6)}
    with launch_probe(log, *channels, plugins=[listener], cache={"num_blocks": 12}) as engine:
        llm = engine.engine
        for request_id, prompt in prompts.items():
            llm.add_request(request_id, prompt, greedy(16))
        tokens, steps = {}, 0
        while llm.has_unfinished_requests():
            outputs = llm.step()
            steps += 1
            if steps == 5:
                outputs += llm.abort_request("0")
            tokens.update({o.request_id: o.outputs[0].token_ids for o in outputs})
    assert listener.preempted
    del tokens["0"], prompts["0"]
    assert tokens == {
        request_id: tokens_after(prompt, 16) for request_id, prompt in prompts.items()
    }
    if channels:
        taken = check_pairs(log)
        assert taken == list(range(1, len(taken) + 1))


def test_the_worker_behind_a_channel_is_the_same_to_its_user(log: Path) -> None:
    with launch_probe(log, "probe", executor={"worker": "scripted", "name": "curious"}) as engine:
        first = tokens_of(engine.generate(PROMPTS, PARAMS))
        engine.sleep(1)
        engine.wake_up()
        core_of(engine).parts.executor.check_health()
        assert tokens_of(engine.generate(PROMPTS, PARAMS)) == first == expected()


def test_both_halves_live_in_an_engine_process_too(log: Path) -> None:
    with launch_probe(log, "probe", "one-way", engine={"process": "separate"}) as engine:
        assert tokens_of(engine.generate(PROMPTS, PARAMS)) == expected()
        states = {report.name: report.state for report in engine.plugins()}
    check_pairs(log)
    assert states["probe"] == "active"
    assert len(calls_in(log, "core.close")) == len(calls_in(log, "worker.close")) == 1
