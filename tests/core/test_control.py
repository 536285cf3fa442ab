"""Control commands: pause, sleep, new weights, drain, and what they do to requests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from hookspecs.errors import (
    CommandError,
    EngineDeadError,
    InvalidRequestError,
    StepError,
    UnsupportedFeatureError,
)
from hookspecs.types.commands import (
    CollectiveRpc,
    CommandArguments,
    Drain,
    GetStatus,
    Pause,
    ResetPrefixCache,
    Resume,
    Sleep,
    StartProfile,
    StopProfile,
    UpdateWeights,
    WakeUp,
)
from hookspecs.types.control import EngineState, PauseMode, WakeTag
from hookspecs.types.request import EngineCoreRequest
from tests.core.controlled import (
    ABORT,
    KEEP,
    KV_CACHE,
    SCHEDULING,
    WAIT,
    WEIGHTS,
    Controlled,
    failing,
    prompt_of,
    spoil,
    undisturbed,
)
from tests.core.scripted import greedy, launch_scripted

S = EngineState


@pytest.fixture
def controlled() -> Iterator[Controlled]:
    with Controlled() as made:
        yield made


@pytest.fixture(scope="module")
def expected() -> dict[str, list[int]]:
    return undisturbed("a", "b", "c", "d")


# Pause


@pytest.mark.parametrize("clear_cache", [True, False])
def test_kept_requests_go_on_with_the_same_tokens(
    controlled: Controlled, expected: dict[str, list[int]], clear_cache: bool
) -> None:
    for request_id in "abc":
        controlled.add(request_id)
    controlled.step(3)
    status = controlled.ask(Pause(mode=KEEP, clear_cache=clear_cache)).result(0)
    assert (status.state, status.pause_mode, status.num_running) == (
        S.PAUSED,
        KEEP,
        0 if clear_cache else 3,
    )
    assert controlled.recorder.resets == clear_cache
    controlled.add("d")
    controlled.settle()
    assert not controlled.ended
    assert controlled.ask(Resume()).result(0).pause_mode is None
    controlled.check_idle()
    assert controlled.ended == {each: ("length", expected[each]) for each in "abcd"}


def test_wait_lets_preempted_requests_finish_and_starts_no_other(
    expected: dict[str, list[int]],
) -> None:
    with Controlled(num_seqs=2) as controlled:
        controlled.add("a")
        controlled.add("b")
        controlled.step(2)
        assert controlled.ask(ResetPrefixCache(preempt_running=True)).result(0) is True
        controlled.add("c")
        assert controlled.core.status().num_running == 0
        future = controlled.ask(Pause(mode=WAIT))
        controlled.settle()
        assert set(controlled.ended) == {"a", "b"}
        assert future.result(0).num_waiting == 1
        controlled.ask(Resume())
        controlled.check_idle()
        assert controlled.ended == {each: ("length", expected[each]) for each in "abc"}


def test_a_paused_engine_has_no_work_but_what_is_new(controlled: Controlled) -> None:
    assert not controlled.core.has_work
    controlled.add("a")
    controlled.step(2)
    controlled.ask(Pause(mode=KEEP))
    assert controlled.core.has_work, "the new state is to be told"
    controlled.settle()
    controlled.add("b")
    assert controlled.core.has_work, "that it waits is to be told"
    (bundle,) = controlled.core.step().values()
    assert bundle.scheduler_stats is not None
    assert bundle.scheduler_stats.num_waiting == 2
    assert not controlled.core.has_work
    assert controlled.core.next_deadline() is None
    controlled.core.abort_requests([1])
    assert controlled.core.has_work, "the end is to be told"
    controlled.step()
    assert not controlled.core.has_work
    assert controlled.core.num_requests == 1
    controlled.abort("a")
    controlled.abort("b")
    controlled.settle()
    assert controlled.state is S.PAUSED


def test_a_stronger_pause_takes_effect_and_answers_the_weaker(controlled: Controlled) -> None:
    for request_id in "ab":
        controlled.add(request_id)
    controlled.step(2)
    waiting = controlled.ask(Pause(mode=WAIT))
    assert not waiting.done()
    assert controlled.ask(Pause(mode=KEEP)).result(0).pause_mode is KEEP
    assert waiting.result(0).state is S.PAUSED
    controlled.settle()
    assert not controlled.ended
    assert controlled.ask(Pause(mode=WAIT)).result(0).pause_mode is KEEP
    assert controlled.ask(Pause(mode=ABORT)).result(0).pause_mode is ABORT
    controlled.settle()
    assert {reason for reason, _ in controlled.ended.values()} == {"abort"}
    controlled.add("late")
    assert controlled.ask(Pause(mode=ABORT)).result(0).num_waiting == 1, "abort again is no abort"
    controlled.ask(Resume())
    controlled.check_idle()
    assert controlled.ended["late"][0] == "length"


def test_resume_takes_back_a_pause_that_waits(controlled: Controlled) -> None:
    controlled.add("a")
    controlled.step(2)
    pause, sleep = controlled.ask(Pause(mode=WAIT)), controlled.ask(Sleep(mode=WAIT))
    controlled.step()
    assert controlled.ask(Resume()).result(0).state is S.RUNNING
    for future in (pause, sleep):
        with pytest.raises(CommandError, match="superseded by resume"):
            future.result(0)
    controlled.check_idle()


def test_abort_ends_a_pause_that_waits_for_the_request(controlled: Controlled) -> None:
    controlled.add("a", max_tokens=200)
    controlled.step(2)
    future = controlled.ask(Pause(mode=WAIT))
    controlled.abort("a")
    assert future.result(0).state is S.PAUSED
    controlled.ask(Resume())
    controlled.check_idle()


# Sleep


@pytest.mark.parametrize("level", [0, 1, 2])
@pytest.mark.parametrize("mode", PauseMode)
def test_sleep_while_requests_run(
    controlled: Controlled, expected: dict[str, list[int]], level: int, mode: PauseMode
) -> None:
    for request_id in "ab":
        controlled.add(request_id)
    controlled.step(3)
    future = controlled.ask(Sleep(level=level, mode=mode))
    controlled.settle()
    status = future.result(0)
    memory = (WEIGHTS, KV_CACHE) if level else ()
    assert (status.state, status.sleep_level, status.asleep) == (
        S.SLEEPING,
        level,
        (*memory, SCHEDULING),
    )
    controlled.add("late")
    controlled.settle()
    assert controlled.ended["late"][0] == "error"
    assert "sleeping" in controlled.errors["late"] and "wake_up" in controlled.errors["late"]
    if mode is KEEP:
        controlled.abort("b")
    assert controlled.ask(WakeUp()).result(0).asleep == ()
    controlled.check_idle()
    reason, tokens = controlled.ended["a"]
    assert reason == ("abort" if mode is ABORT else "length")
    assert tokens == expected["a"][: len(tokens)]
    assert controlled.state is S.RUNNING


def test_sleep_and_wake_are_idempotent_and_sleep_goes_deeper(
    controlled: Controlled, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[Any] = []
    spoil(
        controlled,
        monkeypatch,
        sleep=lambda level: calls.append(level),
        wake_up=lambda tags: calls.append(tags),
    )
    levels = [controlled.ask(Sleep(level=level)).result(0).sleep_level for level in (0, 1, 1, 2, 1)]
    assert levels == [0, 1, 1, 2, 2]
    assert calls == [1, 2]
    controlled.ask(WakeUp(tags=(WEIGHTS,))).result(0)
    controlled.ask(WakeUp(tags=(WEIGHTS,))).result(0)
    assert controlled.core.status().asleep == (KV_CACHE, SCHEDULING)
    assert controlled.ask(Sleep(level=0)).result(0).asleep == (KV_CACHE, SCHEDULING)
    assert controlled.ask(Sleep(level=1)).result(0).asleep == (WEIGHTS, KV_CACHE, SCHEDULING)
    for _ in range(2):
        assert controlled.ask(WakeUp()).result(0).state is S.RUNNING
    assert calls == [1, 2, ["weights"], 1, ["weights", "kv_cache"]]


def test_waking_part_by_part(controlled: Controlled) -> None:
    controlled.ask(Sleep(level=2)).result(0)
    assert controlled.ask(WakeUp(tags=(KV_CACHE,))).result(0).state is S.WAKING
    with pytest.raises(CommandError, match="weights would stay asleep"):
        controlled.ask(WakeUp(tags=(SCHEDULING,))).result(0)
    controlled.add("early")
    controlled.settle()
    assert "waking" in controlled.errors["early"]
    status = controlled.ask(WakeUp(tags=(WEIGHTS,))).result(0)
    assert (status.state, status.asleep, status.sleep_level) == (S.PAUSED, (), None)
    controlled.add("waits")
    controlled.settle()
    assert "waits" not in controlled.ended
    assert controlled.ask(WakeUp(tags=(SCHEDULING,))).result(0).state is S.RUNNING
    controlled.check_idle()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (Sleep(level=3), "sleep: level is 3: .*<= 2"),
        (Pause(mode="gentle"), "pause: mode is 'gentle'"),  # type: ignore[arg-type]
        (WakeUp(tags=("engine",)), "wake_up: tags is .*'engine'"),  # type: ignore[arg-type]
        (Drain(timeout_s=float("nan")), "drain: timeout_s is nan"),
        (Drain(timeout_s=-1.0), "drain: timeout_s is -1.0"),
        (CollectiveRpc(command="x", timeout_s=0.0), "timeout_s is 0.0"),
        (UpdateWeights(), "exactly one"),
        (UpdateWeights(path="x", tensors={}), "exactly one"),
    ],
)
def test_wrong_arguments_change_nothing(
    controlled: Controlled, arguments: CommandArguments, message: str
) -> None:
    with pytest.raises(InvalidRequestError, match=message) as error:
        controlled.ask(arguments).result(0)
    assert error.value.param is not None
    assert not controlled.core.has_work


def test_no_tags_is_not_all_tags(controlled: Controlled) -> None:
    controlled.ask(Sleep()).result(0)
    with pytest.raises(InvalidRequestError, match="tags is empty"):
        controlled.ask(WakeUp(tags=())).result(0)
    assert controlled.state is S.SLEEPING


def test_only_commands_of_the_registry_can_be_called(controlled: Controlled) -> None:
    with pytest.raises(CommandError, match=r"CommandArguments is not .*GetStatus"):
        controlled.ask(CommandArguments()).result(0)


def test_sleep_that_the_worker_can_not_do_is_refused_before_anything_happens(
    controlled: Controlled, monkeypatch: pytest.MonkeyPatch
) -> None:
    controlled.add("a")
    controlled.step()
    monkeypatch.setattr(type(controlled.core), "capabilities", frozenset())
    for arguments in (Sleep(level=1), UpdateWeights(path="x"), StartProfile(directory="x")):
        with pytest.raises(UnsupportedFeatureError, match="capability"):
            controlled.ask(arguments).result(0)
    assert controlled.state is S.RUNNING
    controlled.ask(Sleep(level=0, mode=WAIT))
    controlled.settle()
    assert controlled.ended["a"][0] == "length"
    assert controlled.core.status().state is S.SLEEPING


def check_dead(controlled: Controlled, error: BaseException | None, what: str) -> None:
    assert isinstance(error, StepError) and error.plugin is not None
    assert what in str(error) and "memory is unknown" in str(error)
    assert controlled.state is S.DEAD
    assert controlled.core.failure is error
    assert len(controlled.recorder.failures) == 1
    assert not controlled.core.has_work
    with pytest.raises(EngineDeadError):
        controlled.step()
    assert controlled.ask(GetStatus()).result(0).state is S.DEAD


@pytest.mark.parametrize("what", ["sleep", "wake_up"])
def test_a_worker_that_fails_to_sleep_or_wake_stops_the_engine(
    controlled: Controlled, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    spoil(controlled, monkeypatch, **{what: failing("no memory")})
    future = controlled.ask(Sleep(mode=ABORT))
    if what == "wake_up":
        future = controlled.ask(WakeUp())
    assert controlled.core.has_work
    with pytest.raises(StepError, match="no memory") as told:
        controlled.step()
    assert future.exception(0) is told.value
    check_dead(controlled, told.value, what)


def test_a_worker_that_fails_to_sleep_once_requests_have_ended(
    controlled: Controlled, monkeypatch: pytest.MonkeyPatch
) -> None:
    spoil(controlled, monkeypatch, sleep=failing("no memory"))
    controlled.add("a")
    controlled.step(2)
    future, other = controlled.ask(Sleep(mode=WAIT)), controlled.ask(Pause(mode=WAIT))
    with pytest.raises(StepError, match="no memory") as told:
        controlled.settle()
    assert future.exception(0) is told.value
    with pytest.raises(EngineDeadError, match="no memory"):
        other.result(0)
    check_dead(controlled, told.value, "sleep")


# Weights


@pytest.mark.parametrize("state", [S.PAUSED, S.WAKING])
def test_new_weights_hold_for_all_tokens_that_follow(
    controlled: Controlled, state: EngineState
) -> None:
    with Controlled() as other:
        other.ask(UpdateWeights(tensors={"offset": np.array([5])})).result(0)
        other.add("b")
        other.check_idle()
        fresh = other.ended["b"]
    controlled.add("a")
    controlled.step(3)
    controlled.enter(state)
    resets = controlled.recorder.resets
    status = controlled.ask(UpdateWeights(tensors={"offset": np.array([5])}, version="v5")).result(
        0
    )
    assert (status.state, status.weights_version, status.num_running) == (state, "v5", 0)
    assert controlled.recorder.resets == resets + (state is S.PAUSED)
    controlled.ask(WakeUp()).result(0)
    controlled.add("b")
    controlled.check_idle()
    before, after = undisturbed("a")["a"], controlled.ended["a"][1]
    assert after[:3] == before[:3] and after[3] != before[3]
    assert controlled.ended["b"] == fresh
    assert controlled.core.status().weights_version == "v5"


def test_an_update_that_fails_on_its_way_stops_the_engine(
    controlled: Controlled, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some parameters may be new by then: a mixture must give no tokens."""
    controlled.add("a")
    controlled.step(2)
    controlled.ask(Pause(mode=KEEP)).result(0)
    spoil(controlled, monkeypatch, update_weights=failing("no disk"))
    future = controlled.ask(UpdateWeights(path="x", version="v2"))
    with pytest.raises(StepError, match="no disk"):
        future.result(0)
    assert controlled.state is S.DEAD
    assert controlled.core.status().weights_version == ""


def test_an_update_that_is_refused_leaves_everything_as_it_was(
    controlled: Controlled, expected: dict[str, list[int]]
) -> None:
    controlled.add("a")
    controlled.step(2)
    controlled.ask(Pause(mode=KEEP, clear_cache=False)).result(0)
    with pytest.raises(InvalidRequestError, match="no files"):
        controlled.ask(UpdateWeights(path="x", version="v2")).result(0)
    status = controlled.core.status()
    assert status.num_running == 1
    assert (status.state, status.weights_version) == (S.PAUSED, "")
    controlled.ask(Resume())
    controlled.check_idle()
    assert controlled.ended["a"] == ("length", expected["a"])


# Drain


def test_drain_runs_everything_to_its_end_and_takes_nothing_new(
    expected: dict[str, list[int]],
) -> None:
    with Controlled(num_seqs=1) as controlled:
        controlled.add("a")
        controlled.add("b")
        controlled.step()
        pause = controlled.ask(Pause(mode=WAIT))
        future = controlled.ask(Drain())
        with pytest.raises(CommandError, match="superseded by drain"):
            pause.result(0)
        assert controlled.core.next_deadline() is None
        controlled.add("late")
        controlled.settle()
        assert future.result(0).state is S.DRAINING
        assert controlled.ended == {
            "a": ("length", expected["a"]),
            "b": ("length", expected["b"]),
            "late": ("error", []),
        }
        assert "draining" in controlled.errors["late"]
        controlled.check_idle()
        assert controlled.ask(Drain()).result(0).state is S.DRAINING


def test_the_shorter_deadline_of_two_drains_counts(controlled: Controlled) -> None:
    controlled.add("a", max_tokens=200)
    controlled.step()
    first = controlled.ask(Drain(timeout_s=1000.0))
    deadline = controlled.core.next_deadline()
    assert deadline is not None
    second = controlled.ask(Drain(timeout_s=float("inf")))
    assert controlled.core.next_deadline() == deadline
    third = controlled.ask(Drain(timeout_s=0.0))
    assert [each.result(0).num_running for each in (first, second, third)] == [0, 0, 0]
    controlled.check_idle()
    assert controlled.ended["a"][0] == "abort"


def test_a_deadline_that_passes_during_a_step(controlled: Controlled) -> None:
    now = 100.0
    controlled.core._clock = lambda: now
    controlled.add("a", max_tokens=200)
    controlled.step()
    future = controlled.ask(Drain(timeout_s=5.0))
    assert controlled.core.next_deadline() == 105.0
    controlled.step()
    assert not future.done()
    now = 105.0
    controlled.step()
    assert future.result(0).num_running == 0
    assert controlled.ended["a"][0] == "abort"


# Workers


def test_workers_are_called_by_registered_commands_only(
    controlled: Controlled, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lookup() -> None:
        raise KeyError("mine")

    spoil(controlled, monkeypatch, add=lambda a, b: a + b, lookup=lookup, burn=failing("hot"))
    assert controlled.ask(CollectiveRpc(command="add", args=(2, 3))).result(0) == [5]
    with pytest.raises(CommandError, match=r"'execute_model'; known are .*'add'"):
        controlled.ask(CollectiveRpc(command="execute_model")).result(0)
    with pytest.raises(KeyError, match="mine"):
        controlled.ask(CollectiveRpc(command="lookup")).result(0)
    with pytest.raises(OSError, match="hot"):
        controlled.ask(CollectiveRpc(command="burn")).result(0)
    for owned in ("sleep", "wake_up", "update_weights"):
        with pytest.raises(CommandError, match=f"use the command {owned}"):
            controlled.ask(CollectiveRpc(command=owned, args=(1,))).result(0)
    controlled.add("a")
    controlled.check_idle()
    assert controlled.ended["a"][0] == "length"


def test_profiles(controlled: Controlled, monkeypatch: pytest.MonkeyPatch) -> None:
    spoil(
        controlled,
        monkeypatch,
        start_profile=lambda directory: None,
        stop_profile=lambda: "trace.json",
    )
    monkeypatch.setattr(type(controlled.core), "capabilities", frozenset({"profile"}))
    controlled.ask(StartProfile(directory="x")).result(0)
    assert controlled.ask(StopProfile()).result(0) == ["trace.json"]


# Between steps, towards the front end


def test_a_command_given_inside_of_a_step_takes_effect_after_it(controlled: Controlled) -> None:
    futures: list[Any] = []

    def give() -> None:
        futures.append(controlled.ask(Pause(mode=ABORT)))
        controlled.add("b")
        assert not futures[0].done()
        with pytest.raises(CommandError, match="inside of a step"):
            controlled.engine.resume()
        assert controlled.state is S.RUNNING

    controlled.add("a")
    controlled.recorder.after_step = give
    controlled.step()
    assert controlled.core.has_work and not futures[0].done()
    controlled.step()
    assert futures[0].result(0).state is S.PAUSED
    controlled.settle()
    assert set(controlled.ended) == {"a"}, "b came after the command"
    controlled.ask(Resume())
    controlled.check_idle()
    assert controlled.ended["b"][0] == "length"


def test_a_change_of_the_state_is_told_without_requests(controlled: Controlled) -> None:
    core = controlled.core
    controlled.ask(Sleep(level=1)).result(0)
    (bundle,) = core.step().values()
    assert bundle.client_index == 0 and len(bundle.handles) == 0
    assert bundle.scheduler_stats is not None
    assert (bundle.scheduler_stats.state, bundle.scheduler_stats.sleep_level) == ("sleeping", 1)
    assert core.step() == {}
    controlled.ask(GetStatus()).result(0)
    assert core.publish() == {}
    controlled.ask(WakeUp()).result(0)
    (bundle,) = core.publish().values()
    assert bundle.scheduler_stats is not None
    assert (bundle.scheduler_stats.state, bundle.scheduler_stats.sleep_level) == ("running", None)


def test_shutdown_fails_what_is_pending(controlled: Controlled) -> None:
    controlled.add("a")
    controlled.step()
    future = controlled.ask(Pause(mode=WAIT))
    controlled.core.shutdown("the end")
    with pytest.raises(EngineDeadError, match="the end"):
        future.result(0)
    assert controlled.ask(GetStatus()).result(0).state is S.STOPPED


def test_a_lost_worker_is_told_by_the_next_step(controlled: Controlled) -> None:
    controlled.add("a")
    future = controlled.ask(Drain())
    controlled.core.executor_failed("it was unplugged")
    assert controlled.core.has_work
    with pytest.raises(StepError, match="unplugged"):
        controlled.core.step()
    with pytest.raises(EngineDeadError, match="unplugged"):
        future.result(0)
    assert not controlled.core.has_work


def wire(request_id: str, handle: int, prompt: list[int]) -> EngineCoreRequest:
    return EngineCoreRequest(
        request_id=request_id,
        handle=handle,
        prompt_token_ids=prompt,
        sampling_params=greedy(4),
        arrival_time=0.0,
    )


def test_prepared_requests_are_as_good_as_others(controlled: Controlled) -> None:
    core = controlled.core
    good, wrong = core.prepare(wire("x", 1, prompt_of("a"))), core.prepare(wire("y", 2, [-5]))
    core.command(Sleep()).result(0)
    core.add_prepared(core.prepare(wire("z", 3, prompt_of("a"))))
    core.command(WakeUp()).result(0)
    for request in (good, wrong, core.prepare(wire("x", 4, prompt_of("b")))):
        core.add_prepared(request)
    (bundle,) = core.step().values()
    texts = {int(bundle.handles[row]): text for row, text in bundle.errors.items()}
    assert texts.keys() == {2, 3, 4}
    assert "sleeping" in texts[3] and "unique" in texts[4]
    tokens = [int(bundle.token_ids[0])]
    while core.has_work:
        tokens += [int(token) for each in core.step().values() for token in each.token_ids]
    assert tokens == undisturbed("a")["a"][:4]


def test_the_methods_of_the_engine() -> None:
    with launch_scripted() as engine:
        (before,) = engine.generate([[1, 2, 3]], greedy(6))
        assert engine.pause("keep", clear_cache=False).pause_mode is KEEP
        with pytest.raises(CommandError, match=r"resume\(\)"):
            engine.generate([[1, 2, 3]], greedy(6))
        assert engine.resume().state is S.RUNNING
        assert engine.sleep(level=2, mode="wait").sleep_level == 2
        (refused,) = engine.generate([[1, 2, 3]], greedy(6))
        assert refused.outputs[0].finish_reason == "error"
        assert "sleeping" in (refused.outputs[0].error or "")
        assert engine.wake_up(["weights"]).state is S.WAKING
        with pytest.raises(InvalidRequestError, match="tags"):
            engine.wake_up("kv_cache")
        assert engine.wake_up().state is S.RUNNING
        (after,) = engine.generate([[1, 2, 3]], greedy(6))
        assert after.outputs[0].token_ids == before.outputs[0].token_ids
        status = engine.update_weights(tensors={"offset": np.array(7)}, version="7")
        assert status.weights_version == engine.status().weights_version == "7"
        (other,) = engine.generate([[1, 2, 3]], greedy(6))
        assert other.outputs[0].token_ids != before.outputs[0].token_ids
        assert engine.reset_prefix_cache() is True
        with pytest.raises(CommandError, match="known are"):
            engine.collective_rpc("none")
        engine.run_command(Drain())
        assert engine.status().state is S.DRAINING


def test_a_command_that_waits_steps_the_engine_and_loses_no_output() -> None:
    with launch_scripted() as engine:
        stream = engine.stream([1, 2, 3], greedy(6))
        tokens = list(next(stream).outputs[0].token_ids)
        assert engine.pause("wait").num_running == 0
        for output in stream:
            tokens += output.outputs[0].token_ids
        engine.resume()
        (again,) = engine.generate([[1, 2, 3]], greedy(6))
        assert tokens == again.outputs[0].token_ids
        assert not engine.engine.has_unfinished_requests()


def test_a_stream_does_not_hang_while_the_engine_is_paused() -> None:
    with launch_scripted() as engine:
        stream = engine.stream([1, 2, 3], greedy(6))
        next(stream)
        engine.pause("keep")
        with pytest.raises(CommandError, match="paused or asleep"):
            next(stream)
        engine.resume()
        assert engine.status().num_running == engine.status().num_waiting == 0


def test_a_command_that_stops_the_engine_raises_why(monkeypatch: pytest.MonkeyPatch) -> None:
    with Controlled() as controlled:
        spoil(controlled, monkeypatch, sleep=failing("no memory"))
        with pytest.raises(StepError, match="no memory"):
            controlled.engine.sleep()
        with pytest.raises(EngineDeadError):
            controlled.engine.resume()
        with pytest.raises(EngineDeadError):
            controlled.step()
        assert controlled.engine.status().state is S.DEAD


@pytest.mark.parametrize("woken", [(), (WEIGHTS,)], ids=["asleep", "half awake"])
def test_what_was_drained_asleep_does_not_run_before_it_is_woken(
    woken: tuple[WakeTag, ...], expected: dict[str, list[int]]
) -> None:
    with Controlled() as controlled:
        controlled.ask(Sleep(level=1)).result(0)
        if woken:
            controlled.ask(WakeUp(tags=woken)).result(0)
        controlled.ask(Drain()).result(0)
        with pytest.raises(CommandError, match="kv_cache"):
            controlled.ask(Resume()).result(0)
        with pytest.raises(CommandError, match="wake_up"):
            controlled.ask(CollectiveRpc(command="greet")).result(0)
        assert controlled.state is S.DRAINING
        assert controlled.ask(WakeUp()).result(0).state is S.RUNNING
        assert controlled.core.status().asleep == ()
        controlled.add("a")
        controlled.settle()
        assert controlled.ended["a"] == ("length", expected["a"])
