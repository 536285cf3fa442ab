"""Engine commands of plugins, in an engine of the caller's own process."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest

import framework
from framework.core.commands import COMMANDS
from framework.launcher import Engine
from framework.plugins.check import check_plugin
from framework.plugins.command_names import RESERVED
from hookspecs import PluginInfo, Provider, hookimpl
from hookspecs.contracts.engine_command import EngineCommand
from hookspecs.errors import (
    CommandError,
    ContractViolation,
    EngineDeadError,
    InvalidRequestError,
    PluginConflictError,
    PluginError,
    ProviderError,
)
from hookspecs.types.commands import PluginCommand
from hookspecs.types.control import EngineState
from tests.core.controlled import Controlled
from tests.core.scripted import greedy, launch_scripted, tokens_of
from tests.engine_commands.commands_for_tests import CommandsForTests, Look, commands
from tests.engine_commands.workers_for_tests import Elsewhere
from tests.idle import assert_idle
from tests.processes.launches import config

PROMPT = [3, 4, 5, 6, 7]


def nested(depth: int) -> list[Any]:
    """A list in a list."""
    value: list[Any] = []
    for _ in range(depth - 1):
        value = [value]
    return value


ALIVE = [
    EngineState.RUNNING,
    EngineState.PAUSING,
    EngineState.PAUSED,
    EngineState.SLEEPING,
    EngineState.WAKING,
    EngineState.DRAINING,
]


@pytest.fixture
def plugin() -> CommandsForTests:
    Look.made.clear()
    Look.closed.clear()
    return CommandsForTests()


@pytest.fixture
def engine(plugin: CommandsForTests) -> Iterator[Engine]:
    with launch_scripted(plugins=[plugin]) as engine:
        yield engine


def test_a_command_sees_requests_blocks_and_tenants(engine: Engine) -> None:
    assert engine.command("look", {}) == {
        "engine_index": 0,
        "ids": [],
        "running": 0,
        "waiting": 0,
        "blocks": [],
        "served": {},
        "free": 64,
        "total": 64,
    }
    for number in range(10):  # of which eight can run
        engine.engine.add_request(f"r{number}", PROMPT, greedy(8), tenant=f"t{number % 2}")
    for _ in range(3):
        engine.engine.step()
    seen = engine.command("look", {})
    assert seen["ids"] == [f"r{number}" for number in range(10)]
    assert (seen["running"], seen["waiting"]) == (8, 2)
    assert len(seen["blocks"]) == 10
    assert sum(seen["served"].values()) > 0
    assert seen["free"] < seen["total"]
    while engine.engine.has_unfinished_requests():
        engine.engine.step()
    assert engine.command("look", {})["ids"] == []
    assert_idle(engine)


def test_commands_change_no_tokens(engine: Engine) -> None:
    expected = tokens_of(engine.generate([PROMPT], greedy(12)))
    engine.engine.add_request("a", PROMPT, greedy(12))
    tokens: list[int] = []
    while engine.engine.has_unfinished_requests():
        for output in engine.engine.step():
            tokens = list(output.outputs[0].token_ids)
        engine.command("look", {})
        with pytest.raises(CommandError):
            engine.command("trouble", {"how": "zero"})
    assert [tokens] == expected


def test_arguments_arrive_as_their_struct_and_results_are_plain(engine: Engine) -> None:
    answer = engine.command("echo", {"word": "hello", "numbers": [1, 2]})
    assert answer == {"word": "hello", "times": 1, "numbers": [1, 2]}
    asked = PluginCommand(command="echo", arguments={"word": "x", "times": 3})
    assert engine.run_command(asked) == {"word": "x", "times": 3, "numbers": []}


@pytest.mark.parametrize(
    ("arguments", "param", "message"),
    [
        ({"word": "far too long"}, "word", r"word.*<= 8.*'far too long'"),
        ({"word": "a", "times": 4}, "times", r"times.*<= 3.*4"),
        ({"word": "a", "numbers": [1, "b"]}, "numbers", r"numbers\[1\].*`int`"),
        ({"word": "a", "tims": 4}, "tims", r"no argument 'tims'.*word, times.*mean times\?"),
        ({}, "word", "missing required field `word`"),
        ([], "arguments", "a mapping"),
        ({1: 2}, "arguments", "Expected `str`"),
    ],
)
def test_wrong_arguments_name_the_field(
    engine: Engine, plugin: CommandsForTests, arguments: Any, param: str, message: str
) -> None:
    with pytest.raises(InvalidRequestError, match=message) as caught:
        engine.command("echo", arguments)
    assert caught.value.param == param
    assert plugin.failed == []


NOT_SENDABLE: list[tuple[dict[str, Any], str, str]] = [
    ({"word": 1 << 70}, "word", "echo: 'word' is 1180591620717411303424, which can not be sent"),
    ({"word": object()}, "word", "'word' is <object object"),
    ({"word": "\ud800"}, "word", "surrogates"),
    ({"word": "a", "numbers": [1, {"b": -(1 << 64)}]}, "numbers", "numbers"),
    ({"a\ud800": 1}, "arguments", r"the argument 'a\\ud800' has lone surrogates"),
    ({"word": nested(65)}, "word", "nested more than 64"),
    ({"word": nested(100_000)}, "word", "recursion"),
]
"""Arguments, which of them is wrong, and what is said."""


@pytest.mark.parametrize("process", ["in_process", "separate"])
def test_arguments_that_can_not_be_sent_are_refused_in_every_process(process: str) -> None:
    settings = config(engine={"process": process})
    with framework.launch(settings, plugins=[commands]) as engine:
        for arguments, param, message in NOT_SENDABLE:
            with pytest.raises(InvalidRequestError, match=message) as caught:
                engine.command("echo", arguments)
            assert caught.value.param == param
            str(caught.value).encode()
        with pytest.raises(InvalidRequestError, match="Expected `str`, got `array`"):
            engine.command("echo", {"word": nested(64)})


@pytest.mark.parametrize("process", ["in_process", "separate"])
def test_texts_of_errors_are_bounded(process: str) -> None:
    settings = config(engine={"process": process})
    long = 1 << 20
    with framework.launch(settings, plugins=[commands]) as engine:
        for how in ("long", "long refusal"):
            with pytest.raises(CommandError) as caught:
                engine.command("trouble", {"how": how})
            assert len(str(caught.value)) < 5000
        for arguments in ({"x" * long: 1}, {"how": "long value"}, {"how": "long invalid"}):
            with pytest.raises(InvalidRequestError) as wrong:
                engine.command("trouble", arguments)
            assert len(str(wrong.value)) < 5000
            assert len(wrong.value.param or "") < 100


def test_an_unknown_name_is_told_what_there_is(engine: Engine) -> None:
    with pytest.raises(InvalidRequestError, match=r"there is no command 'lock'") as caught:
        engine.command("lock", {})
    text = str(caught.value)
    assert "get_status" in text
    assert "echo, look, requests, several, thread, trouble, workers" in text
    assert "Did you mean look" in text
    assert caught.value.param == "name"
    with pytest.raises(InvalidRequestError, match="'pause' is a command of the engine itself"):
        engine.command("plugin_command", {"command": "pause"})
    for name in ("", "x" * 300, 3, "\ud800"):
        with pytest.raises(InvalidRequestError, match="name is"):
            engine.command(name, {})  # type: ignore[arg-type]


def test_errors_that_a_command_raises_on_purpose_come_out(
    engine: Engine, plugin: CommandsForTests
) -> None:
    with pytest.raises(InvalidRequestError, match="wrong for me") as caught:
        engine.command("trouble", {"how": "invalid"})
    assert caught.value.param == "how"
    with pytest.raises(CommandError, match=r"^not now$"):
        engine.command("trouble", {"how": "refuse"})
    with pytest.raises(InvalidRequestError, match="how must be better"):
        engine.command("trouble", {"how": "value"})
    assert plugin.failed == []
    assert _counts(engine)[1] == 0


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("zero", "raised ZeroDivisionError: division by zero"),
        ("timeout", "raised TimeoutError: the workers took too long"),
        ("exit", "raised SystemExit: 3"),
        ("unspeakable", "raised Unspeakable"),
        ("arguments", "raised KeyError: 'arguments'"),
        ("object", "can not be given: .*object"),
        ("surrogate", "can not be given: .*Unicode"),
        ("large", r"can not be given: .*2\*\*64"),
    ],
)
def test_what_goes_wrong_in_a_command_is_its_callers_and_harms_nobody(
    engine: Engine,
    plugin: CommandsForTests,
    caplog: pytest.LogCaptureFixture,
    how: str,
    said: str,
) -> None:
    engine.engine.add_request("a", PROMPT, greedy(4))
    engine.engine.step()
    with (
        caplog.at_level(logging.ERROR, "framework.core"),
        pytest.raises(CommandError, match=said) as caught,
    ):
        engine.command("trouble", {"how": how})
    assert "'commands-for-tests'" in str(caught.value)
    assert str(caught.value).startswith("trouble")
    assert caught.value.__cause__ is not None
    (record,) = [each for each in caplog.records if each.name == "framework.core"]
    assert record.exc_info is not None
    assert "'trouble'" in record.getMessage()
    (event,) = plugin.failed
    assert (event.plugin, event.action) == ("commands-for-tests", "command failed")
    assert _counts(engine) == (1, 1)
    while engine.engine.has_unfinished_requests():
        engine.engine.step()
    assert engine.command("trouble", {"how": "none"}) is None
    assert_idle(engine)


def _counts(engine: Engine) -> tuple[int, int]:
    (report,) = [each for each in engine.plugins() if each.name == "commands-for-tests"]
    hook = "register_engine_commands"
    return report.calls[hook], report.errors[hook]


def test_what_is_lent_can_not_be_used_outside_of_a_call(engine: Engine) -> None:
    lent = Look.made[-1].context.engine
    with pytest.raises(ContractViolation, match="outside of `run`"):
        lent.requests()
    with pytest.raises(ContractViolation):
        lent.call_workers("sleep", (1,))
    with pytest.raises(ContractViolation):
        _ = lent.scheduler
    with pytest.raises(ContractViolation):
        _ = lent.cache
    with pytest.raises(CommandError):
        engine.command("trouble", {"how": "zero"})
    with pytest.raises(ContractViolation):  # also after one that raised
        lent.requests()


def test_in_a_call_another_thread_can_not_use_it(engine: Engine) -> None:
    told = engine.command("thread", {})
    assert len(told) == 4
    for said in told:
        assert "ContractViolation" in said and "in another thread" in said


@pytest.mark.parametrize("state", ALIVE)
def test_commands_answer_in_every_live_state(plugin: CommandsForTests, state: EngineState) -> None:
    with Controlled(num_seqs=1, plugins=[plugin]) as controlled:
        controlled.add("started")
        controlled.step(2)
        controlled.add("waiting")
        controlled.enter(state)
        future = controlled.ask(PluginCommand(command="look"))
        answer = future.result(0)
        assert answer["ids"] == ["started", "waiting"]
        assert controlled.state is state
        workers = controlled.ask(PluginCommand(command="workers", arguments={"command": "nothing"}))
        error = workers.exception(0)
        asleep = state in (EngineState.SLEEPING, EngineState.WAKING)
        assert isinstance(error, CommandError)
        assert ("call wake_up first" in str(error)) is asleep


@pytest.mark.parametrize("state", [EngineState.STOPPED, EngineState.DEAD])
def test_an_engine_that_has_stopped_runs_none(plugin: CommandsForTests, state: EngineState) -> None:
    with Controlled(plugins=[plugin]) as controlled:
        controlled.enter(state)
        future = controlled.ask(PluginCommand(command="look"))
        assert isinstance(future.exception(0), EngineDeadError)
    assert Look.closed == Look.made != []


def test_inside_of_a_step_a_command_waits_for_its_end(plugin: CommandsForTests) -> None:
    with Controlled(plugins=[plugin]) as controlled:
        asked: list[Any] = []

        def ask() -> None:
            asked.append(controlled.ask(PluginCommand(command="look")))
            assert not asked[0].done()

        controlled.recorder.after_step = ask
        controlled.add("a")
        controlled.step()
        assert asked and not asked[0].done()
        controlled.step()
        assert asked[0].result(0)["ids"] == ["a"]


def test_workers_are_called_by_the_rules_of_collective_rpc(
    plugin: CommandsForTests, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Controlled(plugins=[plugin]) as controlled:
        worker = controlled.worker
        own = {"greet": lambda name: f"hello {name}", "burn": _burn}
        monkeypatch.setattr(worker, "commands", lambda: {**type(worker).commands(worker), **own})

        def call(command: str, *args: Any) -> Any:
            arguments = {"command": command, "args": args}
            return controlled.engine.command("workers", arguments)

        assert call("greet", "you") == ["hello you"]
        with pytest.raises(CommandError, match="'leave'"):
            call("leave")
        for owned in ("sleep", "wake_up", "update_weights"):
            with pytest.raises(CommandError, match=f"must know of '{owned}'"):
                call(owned, 1)
        with pytest.raises(CommandError, match="raised OSError: hot"):
            call("burn")
        assert plugin.failed[-1].error == "OSError: hot"
        controlled.add("a")
        controlled.check_idle()


def _burn() -> None:
    raise OSError("hot")


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("lacks", "UnsupportedFeatureError: not with this device"),
        ("is_late", "TimeoutError: not within 1 s"),
        ("is_gone", "EngineDeadError: the worker is gone"),
        ("nothing", "unknown worker command 'nothing'"),
    ],
)
def test_what_is_said_of_workers_is_no_failure_of_a_plugin(
    plugin: CommandsForTests, command: str, said: str
) -> None:
    with launch_scripted(
        plugins=[plugin, Elsewhere()], executor={"worker": "complaining"}
    ) as engine:
        with pytest.raises(CommandError, match=said):
            engine.command("workers", {"command": command})
        assert plugin.failed == []
        assert not any(_errors(engine).values())


def test_an_error_of_a_worker_is_put_down_to_its_plugin(
    plugin: CommandsForTests, caplog: pytest.LogCaptureFixture
) -> None:
    with launch_scripted(
        plugins=[plugin, Elsewhere()], executor={"worker": "complaining"}
    ) as engine:
        with pytest.raises(CommandError, match=r"^workers: plugin 'elsewhere' raised OSError: hot"):
            engine.command("workers", {"command": "burn"})
        errors = _errors(engine)
        (event,) = plugin.failed
    assert errors["commands-for-tests"] == {}
    assert errors["elsewhere"] == {"register_workers": 1}
    assert (event.plugin, event.hook) == ("elsewhere", "register_workers")
    assert event.action == "command failed"
    assert "failed in code of plugin 'elsewhere'" in caplog.text


def _errors(engine: Engine) -> dict[str, dict[str, int]]:
    return {
        report.name: {hook: count for hook, count in report.errors.items() if count}
        for report in engine.plugins()
    }


def test_all_commands_are_closed_whatever_one_raises(
    plugin: CommandsForTests, caplog: pytest.LogCaptureFixture
) -> None:
    engine = launch_scripted(plugins=[plugin])
    assert len(Look.made) == 1
    assert Look.closed == []
    with caplog.at_level(logging.ERROR, "framework.core"):
        engine.shutdown()
        engine.shutdown()
    assert Look.closed == Look.made
    assert "'trouble' of" in caplog.text
    (event,) = plugin.failed
    assert (event.plugin, event.hook) == ("commands-for-tests", "register_engine_commands")
    assert (event.error, event.action) == ("RuntimeError: does not close", "logged")
    assert _counts(engine) == (0, 1)
    assert len([each for each in caplog.records if each.name == "framework.core"]) == 1


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_a_start_that_fails_late_closes_everything(
    plugin: CommandsForTests, error: type[BaseException]
) -> None:
    class Refuses:
        PLUGIN = PluginInfo(name="refuses", api=">=1.0,<2")
        stopping = 0

        @hookimpl
        def on_engine_started(self, event: Any) -> None:
            raise error("not this engine")

        @hookimpl
        def on_engine_stopping(self, event: Any) -> None:
            self.stopping += 1

    refuses = Refuses()
    with pytest.raises(PluginError if error is RuntimeError else error, match="not this engine"):
        launch_scripted(plugins=[plugin, refuses])
    assert Look.closed == Look.made != []
    assert refuses.stopping == 1


class Offers:
    """A plugin that offers one command."""

    def __init__(self, plugin: str, name: str, target: str = "Look") -> None:
        self.PLUGIN = PluginInfo(name=plugin, api=">=1.0,<2")
        self._provider: Provider[EngineCommand] = Provider(name, f"{MODULE}:{target}")

    @hookimpl
    def register_engine_commands(self) -> list[Provider[EngineCommand]]:
        return [self._provider]


MODULE = "tests.engine_commands.broken_commands"


@pytest.mark.parametrize("name", [*COMMANDS, "one_of_a_later_version"])
def test_a_name_of_the_engine_itself_can_not_be_provided(name: str) -> None:
    plugin = Offers("impostor", name)
    with pytest.raises(ContractViolation, match=rf"'impostor'.*'{name}'.*the engine"):
        launch_scripted(plugins=[plugin])
    (finding,) = check_plugin(plugin)
    assert name in finding


def test_what_the_engine_has_is_known_by_its_name() -> None:
    """So that no name of a plugin's command is ever taken away."""
    assert {name for name in COMMANDS if "_" not in name} == RESERVED


def test_two_plugins_can_not_provide_one_name(plugin: CommandsForTests) -> None:
    with pytest.raises(PluginConflictError, match=r"'look'.*commands-for-tests.*another"):
        launch_scripted(plugins=[plugin, Offers("another", "look")])


@pytest.mark.parametrize(
    ("target", "error", "message"),
    [
        ("NoStruct", ContractViolation, "NoStruct.Arguments is .*must be a msgspec.Struct"),
        ("Lenient", ContractViolation, "must be frozen and forbid_unknown_fields"),
        ("Unreadable", ContractViolation, "can not be read: TypeError"),
        ("Unresolved", ContractViolation, "can not be read: NameError: .*Nowhere"),
        ("Misspelt", ContractViolation, "can not be read: AttributeError: .*Meter"),
        ("Eager", ContractViolation, "outside of `run`"),
        ("Failing", ProviderError, "RuntimeError: no"),
        ("Missing", ProviderError, "Missing"),
    ],
)
def test_a_command_that_can_not_be_made_stops_the_start(
    plugin: CommandsForTests, target: str, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        launch_scripted(plugins=[plugin, Offers("broken", "zzz", target)])
    assert Look.closed == Look.made != []
