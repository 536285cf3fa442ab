"""Every row of the table of `docs/control.md`, over a real engine."""

from __future__ import annotations

from typing import Any

import pytest

from framework.core.commands import COMMANDS, operation_of
from framework.core.control import ControlPlane
from framework.core.engine import EngineCore
from framework.core.transitions import TRANSITIONS, Operation, Outcome, Transition
from hookspecs.contracts.worker import WorkerCapability
from hookspecs.errors import CommandError, EngineDeadError, UnsupportedFeatureError
from hookspecs.types.commands import (
    CollectiveRpc,
    CommandArguments,
    Drain,
    GetStatus,
    ListAdapters,
    Pause,
    PluginCommand,
    ResetPrefixCache,
    Resume,
    Sleep,
    UpdateWeights,
    WakeUp,
)
from hookspecs.types.control import EngineState
from tests.core.controlled import ABORT, KEEP, KV_CACHE, WAIT, WEIGHTS, Controlled, undisturbed

S = EngineState
ARGUMENTS: dict[Operation, CommandArguments] = {
    Operation.GET_STATUS: GetStatus(),
    Operation.PAUSE_ABORT: Pause(mode=ABORT),
    Operation.PAUSE_WAIT: Pause(mode=WAIT),
    Operation.PAUSE_KEEP: Pause(mode=KEEP),
    Operation.RESUME: Resume(),
    Operation.SLEEP_ABORT: Sleep(mode=ABORT),
    Operation.SLEEP_WAIT: Sleep(mode=WAIT),
    Operation.SLEEP_KEEP: Sleep(mode=KEEP),
    Operation.WAKE_MEMORY: WakeUp(tags=(WEIGHTS, KV_CACHE)),
    Operation.WAKE_UP: WakeUp(),
    Operation.RESET_PREFIX_CACHE: ResetPrefixCache(preempt_running=True),
    Operation.UPDATE_WEIGHTS: UpdateWeights(tensors={"offset": 0}, version="2"),
    Operation.DRAIN: Drain(),
    Operation.WORKERS: CollectiveRpc(command="sleep"),
    Operation.ADAPTERS: ListAdapters(),
    Operation.PLUGIN: PluginCommand(command="requests", arguments={"tenant": "nobody"}),
}
RESULTS: dict[Operation, Any] = {
    Operation.RESET_PREFIX_CACHE: True,
    Operation.ADAPTERS: ["french"],
    Operation.WORKERS: ["hello"],
}


@pytest.fixture(scope="module")
def expected() -> dict[str, list[int]]:
    return undisturbed("started", "waiting", "late")


def test_the_table_is_complete() -> None:
    passing = {S.RECONFIGURING}
    assert set(TRANSITIONS) == {(o, s) for o in Operation for s in S if s not in passing}
    assert {operation_of(arguments) for arguments in ARGUMENTS.values()} == set(Operation)
    assert {command.operation for command in COMMANDS.values()} <= {None, *Operation}
    assert ControlPlane().state is S.RUNNING


@pytest.mark.parametrize(
    "rule", TRANSITIONS.values(), ids=lambda rule: f"{rule.operation}-{rule.state}"
)
def test_a_row(
    rule: Transition, expected: dict[str, list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    with Controlled(num_seqs=1) as controlled:
        worker = controlled.worker
        own = {"greet": lambda: "hello", "list_adapters": lambda: ["french"]}
        monkeypatch.setattr(worker, "commands", lambda: {**type(worker).commands(worker), **own})
        capabilities = controlled.core.capabilities | {WorkerCapability.ADAPTERS}
        monkeypatch.setattr(EngineCore, "capabilities", capabilities)
        controlled.add("started")
        controlled.step(2)
        controlled.add("waiting")
        if needs_no_requests(rule):
            controlled.settle()
        controlled.enter(rule.state)
        if rule.state in (S.STOPPED, S.DEAD):
            check_gone(controlled, rule)
            return
        future = controlled.ask(arguments_of(rule))
        started = rule.state is S.RUNNING or rule.state is S.PAUSING or rule.state is S.DRAINING
        if rule.outcome is Outcome.REFUSED:
            with pytest.raises(CommandError, match=r"wake|drain|paus"):
                future.result(0)
            assert rule.refusal in str(future.exception(0))
        if not future.done():
            assert started and rule.outcome is Outcome.DONE
            assert controlled.state is rule.next
        else:
            assert controlled.state is rule.then
        at_arrival = controlled.state
        controlled.add("late")
        controlled.settle()
        assert controlled.state in (rule.then, S.PAUSED)  # a pause that pended is done by now
        if rule.outcome is not Outcome.REFUSED:
            answer = future.result(0)
            if rule.operation is Operation.PLUGIN:
                assert answer["requests"] == []
            elif rule.operation in RESULTS:
                assert answer == RESULTS[rule.operation]
            else:
                assert answer.state is rule.then
        finish(controlled)
        controlled.check_idle()
        check_fates(rule, controlled, at_arrival, expected)


def needs_no_requests(rule: Transition) -> bool:
    return rule.running == "there must be none"


def arguments_of(rule: Transition) -> CommandArguments:
    if rule.operation is Operation.WORKERS:
        return CollectiveRpc(command="greet")
    return ARGUMENTS[rule.operation]


def check_gone(controlled: Controlled, rule: Transition) -> None:
    future = controlled.ask(arguments_of(rule))
    if rule.operation is Operation.GET_STATUS:
        assert future.result(0).state is rule.state
    else:
        with pytest.raises(EngineDeadError, match=rule.state):
            future.result(0)
    with pytest.raises(EngineDeadError):
        controlled.add("late")
    assert controlled.state is rule.state


def finish(controlled: Controlled) -> None:
    """Let everything that is still in the engine run to its end."""
    if controlled.state is not S.DRAINING:
        controlled.ask(WakeUp()).result(0)
    controlled.settle()


def check_fates(
    rule: Transition,
    controlled: Controlled,
    at_arrival: EngineState,
    expected: dict[str, list[int]],
) -> None:
    ended = controlled.ended
    for request_id, fate in (("started", rule.running), ("waiting", rule.waiting)):
        reason, tokens = ended[request_id]
        aborted = fate.startswith("end with `abort`")
        assert reason == ("abort" if aborted else "length")
        assert tokens == expected[request_id][: len(tokens)]
        assert aborted or len(tokens) == 8
    refused = at_arrival in (S.SLEEPING, S.WAKING, S.DRAINING)
    assert ended["late"] == (("error", []) if refused else ("length", expected["late"]))
    if refused:
        assert at_arrival in controlled.errors["late"]
    told = rule.late.split("; once ")[-1 if at_arrival is rule.then else 0]
    assert ("error" in told) == refused
    assert rule.half_arrived == rule.late


@pytest.mark.parametrize(
    "rule",
    [
        rule
        for rule in TRANSITIONS.values()
        # What was drained asleep has a test of its own, in test_control.
        if rule.outcome is Outcome.DONE and rule.refusal and rule.state is not S.DRAINING
    ],
    ids=lambda rule: f"{rule.operation}-{rule.state}",
)
def test_a_condition_that_does_not_hold(rule: Transition) -> None:
    with Controlled(num_seqs=1) as controlled:
        controlled.add("started")
        controlled.step(2)
        controlled.enter(rule.state)
        arguments = arguments_of(rule)
        if rule.operation is Operation.WAKE_UP:
            tag = KV_CACHE if rule.state is S.SLEEPING else WEIGHTS
            arguments = WakeUp(tags=(tag, "scheduling"))  # type: ignore[arg-type]
        elif rule.state is S.WAKING:
            controlled.ask(Sleep(level=2, mode=KEEP)).result(0)
            controlled.ask(WakeUp(tags=(KV_CACHE,))).result(0)
        before = controlled.core.status()
        with pytest.raises(CommandError, match=r"asleep|pause first"):
            controlled.ask(arguments).result(0)
        assert controlled.core.status() == before
        finish(controlled)
        assert controlled.ended["started"][0] == "length"


@pytest.mark.parametrize("name", ["load_adapter", "unload_adapter", "start_profile"])
def test_what_the_worker_does_not_declare(name: str) -> None:
    command = COMMANDS[name]
    fields = dict.fromkeys(command.arguments.__struct_fields__, "x")
    with Controlled() as controlled, pytest.raises(UnsupportedFeatureError, match="capability"):
        controlled.ask(command.arguments(**fields)).result(0)
