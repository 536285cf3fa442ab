"""Engine commands of plugins, in engine cores of other processes."""

from __future__ import annotations

import asyncio

import pytest

import framework
from hookspecs.errors import CommandError, InvalidRequestError
from tests.engine_commands.commands_for_tests import commands
from tests.processes.hosts import front_end, hosted
from tests.processes.launches import config, drill_config, long_params

SEPARATE = config(engine={"process": "separate"})


def test_in_a_process_of_its_own_they_answer_and_fail_as_here() -> None:
    with framework.launch(SEPARATE, plugins=[commands]) as engine:
        answer = engine.command("echo", {"word": "hello", "numbers": [1, 2]})
        assert answer == {"word": "hello", "times": 1, "numbers": [1, 2]}
        assert engine.command("look", {})["ids"] == []
        for name, arguments, param, message in (
            ("lock", {}, "name", "there is no command 'lock'.*look.*Did you mean look"),
            ("echo", {"word": "far too long"}, "word", "word.*<= 8"),
            ("echo", {"wort": "a"}, "wort", "no argument 'wort'.*mean word"),
            ("trouble", {"how": "invalid"}, "how", "wrong for me"),
        ):
            with pytest.raises(InvalidRequestError, match=message) as caught:
                engine.command(name, arguments)
            assert caught.value.param == param
        for how, message in (
            ("refuse", r"^not now$"),
            ("zero", "'commands-for-tests' raised ZeroDivisionError: division by zero"),
            ("exit", "raised SystemExit: 3"),
            ("unspeakable", "raised Unspeakable"),
            ("object", "can not be given: .*object"),
            ("surrogate", "can not be given: .*Unicode"),
            ("large", r"can not be given: .*2\*\*64"),
        ):
            with pytest.raises(CommandError, match=message):
                engine.command("trouble", {"how": how})
        (output,) = engine.generate([[1, 2, 3]], long_params(5))
        assert output.finished


def test_what_they_did_is_counted_in_the_front_end() -> None:
    async def main() -> None:
        settings = config(engine={"heartbeat_timeout_s": 0.25})
        async with framework.launch_async(settings, plugins=[commands]) as engine:
            assert (await engine.command("look", {}))["running"] == 0
            with pytest.raises(CommandError):
                await engine.command("trouble", {"how": "zero"})
            hook = "register_engine_commands"
            while True:
                (report,) = [
                    each for each in engine.plugins() if each["name"] == "commands-for-tests"
                ]
                if report["errors"][hook]:
                    break
                await asyncio.sleep(0.01)
            assert (report["calls"][hook], report["errors"][hook]) == (2, 1)

    asyncio.run(main())


def test_several_engines_answer_each_or_with_one_truth_value() -> None:
    async def main() -> None:
        async with front_end(linked, num_engines=2) as (engine, _):
            streams = [
                engine.generate([1, 2], long_params(), request_id=str(n), tenant="t")
                for n in range(3)
            ]
            for stream in streams:
                await anext(stream)
            answers = await engine.command("look", {})
            assert [answer["engine_index"] for answer in answers] == [0, 1]
            assert [answer["running"] for answer in answers] == [2, 1]
            assert await engine.command("several", {}) is False
            with pytest.raises(CommandError, match="ZeroDivisionError"):
                await engine.command("trouble", {"how": "zero"})
            with pytest.raises(InvalidRequestError, match="no command"):
                await engine.command("unknown", {})
            reports = await engine.command("requests", {"limit": 1})
            assert [report["left_out"] for report in reports] == [1, 0]
            for n in range(3):
                await engine.abort(str(n))

    slow = drill_config(drill={"step_s": 0.002})
    with hosted(slow, num_engines=2, plugins=[commands]) as (_, (linked,)):
        asyncio.run(main())


def test_a_paused_a_sleeping_and_a_draining_engine_answer() -> None:
    async def main() -> None:
        async with front_end(linked) as (engine, _):
            stream = engine.generate([1, 2], long_params(), request_id="a")
            await anext(stream)
            await engine.pause("keep")
            assert (await engine.command("look", {}))["ids"] == ["a"]
            await engine.sleep(1, mode="keep")
            assert (await engine.command("look", {}))["ids"] == ["a"]
            with pytest.raises(CommandError, match="call wake_up first"):
                await engine.command("workers", {"command": "nap", "args": [0]})
            await engine.wake_up()
            assert await engine.command("workers", {"command": "nap", "args": [0]}) == [None]
            drain = asyncio.create_task(engine.command("drain", {}))
            while (await engine.status()).state != "draining":
                await asyncio.sleep(0)
            assert (await engine.command("look", {}))["ids"] == ["a"]
            await engine.abort("a")
            await drain

    slow = drill_config(drill={"step_s": 0.002})
    with hosted(slow, plugins=[commands]) as (_, (linked,)):
        asyncio.run(main())
