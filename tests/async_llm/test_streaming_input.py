"""A prompt that comes in pieces, each answered before the next is asked for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from framework import AsyncEngine, OutputKind, RequestOutput
from framework.frontend.input_processor import InputProcessor
from hookspecs.errors import EngineDeadError, EngineUnavailableError, InvalidRequestError
from tests.async_llm.conftest import Run
from tests.async_llm.engines import greedy, joined, launch, run_alone, streamed

LONG = 100_000


async def given(*pieces: Any) -> AsyncIterator[Any]:
    for piece in pieces:
        yield piece


def answers(outputs: list[RequestOutput]) -> list[list[int]]:
    """Tokens by piece: each answer ends with an output that has a finish reason."""
    made: list[list[int]] = [[]]
    for output in outputs[:-1]:
        made[-1] += output.outputs[0].token_ids
        if output.outputs[0].finish_reason is not None:
            made.append([])
    assert made.pop() == []
    return made


def test_the_context_grows_by_what_was_given_and_generated(
    engine: AsyncEngine, run: Run[Any]
) -> None:
    async def body() -> None:
        pieces = given("xy", [70, 71], {"prompt": "z"}, {"prompt_token_ids": [9], "prompt": "d"})
        outputs = await streamed(engine.generate(pieces, greedy(3), request_id="s"))
        assert {output.request_id for output in outputs} == {"s"}
        assert [output.finished for output in outputs] == [False] * (len(outputs) - 1) + [True]
        context: list[int] = []
        x, y, z = await engine.tokenize("xyz", add_special_tokens=False)
        for number, piece in enumerate([[x, y], [70, 71], [z], [9]]):
            context += piece
            alone = await streamed(engine.generate(context, greedy(3), request_id="alone"))
            assert answers(outputs)[number] == joined(alone).token_ids
            context += joined(alone).token_ids
        end = outputs[-1].outputs[0]
        assert (end.token_ids, end.text, end.finish_reason) == ([], "", "length")
        assert len(answers(outputs)) == 4

    run(body())


def test_each_piece_is_answered_before_the_next_is_asked_for(
    engine: AsyncEngine, run: Run[Any]
) -> None:
    async def body() -> None:
        seen: list[str] = []

        async def pieces() -> AsyncIterator[list[int]]:
            for number in range(3):
                seen.append(f"piece {number}")
                yield [number + 3]

        async for output in engine.generate(pieces(), greedy(2), request_id="s"):
            seen += ["answer"] * (output.outputs[0].finish_reason is not None)
        assert seen == ["piece 0", "answer", "piece 1", "answer", "piece 2", "answer", "answer"]

    run(body())


@pytest.mark.parametrize(
    ("params", "param"),
    [
        (greedy(2, n=2, temperature=1), "n"),
        (greedy(2, output_kind=OutputKind.CUMULATIVE), "output_kind"),
        (greedy(2, output_kind=OutputKind.FINAL_ONLY), "output_kind"),
        (greedy(2, prompt_logprobs=1), "prompt_logprobs"),
        ("greedy", "params"),
    ],
)
def test_parameters_that_are_refused(
    engine: AsyncEngine, run: Run[Any], params: Any, param: str
) -> None:
    async def body() -> None:
        with pytest.raises(InvalidRequestError) as caught:
            await streamed(engine.generate(given([1]), params, request_id="s"))
        assert caught.value.param == param

    run(body())


@pytest.mark.parametrize("pieces", [(), ([],), ([10**9],), (5,), ([3], 5), ([3], ["x"])])
def test_pieces_that_are_refused(engine: AsyncEngine, run: Run[Any], pieces: Any) -> None:
    async def body() -> None:
        with pytest.raises(InvalidRequestError) as caught:
            await streamed(engine.generate(given(*pieces), greedy(2), request_id="s"))
        assert caught.value.param == "prompt"

    run(body())


def test_an_error_of_the_iterator_comes_out_as_itself(engine: AsyncEngine, run: Run[Any]) -> None:
    class Mine(Exception):
        pass

    async def broken(error: BaseException) -> AsyncIterator[list[int]]:
        yield [3]
        raise error

    async def body() -> None:
        for error in (Mine(), asyncio.CancelledError(), KeyError("x")):
            outputs = engine.generate(broken(error), greedy(2), request_id="s")
            with pytest.raises(type(error)):
                await streamed(outputs)

    run(body())


def test_time_limits_of_the_iterator_are_its_own(engine: AsyncEngine, run: Run[Any]) -> None:
    """It runs in one task, whatever its pieces wait for."""

    async def limited() -> AsyncIterator[list[int]]:
        async with asyncio.timeout(30):
            yield [3]
            yield [4]
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await asyncio.Event().wait()
        yield [5]

    async def body() -> None:
        outputs = await streamed(engine.generate(limited(), greedy(1), request_id="s"))
        assert len(answers(outputs)) == 3

    run(body())


def test_closing_early_aborts_the_piece_that_runs(engine: AsyncEngine, run: Run[Any]) -> None:
    async def body() -> None:
        outputs = engine.generate(given([3], [4]), greedy(LONG), request_id="s")
        await anext(outputs)
        assert engine.num_requests == 1
        await outputs.aclose()

    run(body())


def test_cancelling_while_a_piece_is_waited_for(engine: AsyncEngine, run: Run[Any]) -> None:
    async def body() -> None:
        waiting, cancelled = asyncio.Event(), asyncio.Event()

        async def pieces() -> AsyncIterator[list[int]]:
            yield [3]
            waiting.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled.set()
                raise

        task = asyncio.create_task(streamed(engine.generate(pieces(), greedy(1), request_id="s")))
        await waiting.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert cancelled.is_set()

    run(body())


def test_abort_while_a_piece_runs(engine: AsyncEngine, run: Run[Any]) -> None:
    async def body() -> None:
        outputs = engine.generate(given([3], [4]), greedy(LONG), request_id="s")
        await anext(outputs)
        await engine.abort("s")
        rest = await streamed(outputs)
        assert rest[-1].finished and rest[-1].outputs[0].finish_reason == "abort"
        assert [each.outputs[0].finish_reason for each in rest] == ["abort", "abort"]

    run(body())


@pytest.mark.parametrize("first", [True, False])
def test_abort_while_a_piece_is_waited_for(engine: AsyncEngine, run: Run[Any], first: bool) -> None:
    async def body() -> None:
        waiting = asyncio.Event()

        async def pieces() -> AsyncIterator[list[int]]:
            if not first:
                yield [3]
            waiting.set()
            await asyncio.Event().wait()

        task = asyncio.create_task(streamed(engine.generate(pieces(), greedy(1), request_id="s")))
        await waiting.wait()
        assert engine.num_requests == 1
        with pytest.raises(InvalidRequestError, match="in use"):
            await streamed(engine.generate([1], greedy(1), request_id="s"))
        await engine.abort("s")
        end = (await task)[-1]
        assert end.finished and end.outputs[0].finish_reason == "abort"

    run(body())


def test_a_session_ends_with_the_answer_that_fails(engine: AsyncEngine, run: Run[Any]) -> None:
    async def body() -> None:
        params = greedy(5, {"fail_at": 1})
        outputs = await streamed(engine.generate(given([3], [4]), params, request_id="s"))
        assert len(answers(outputs)) == 1
        assert outputs[-1].outputs[0].finish_reason == "error"
        assert outputs[-1].outputs[0].error

    run(body())


def test_the_deadline_is_that_of_the_first_piece(
    engine: AsyncEngine, run: Run[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is the latest time to start, and a session starts once."""
    deadlines: list[float | None] = []
    process = InputProcessor.process

    def watched(self: InputProcessor, *args: Any, **options: Any) -> Any:
        deadlines.append(options["deadline"])
        return process(self, *args, **options)

    monkeypatch.setattr(InputProcessor, "process", watched)

    async def body() -> None:
        pieces = given([3], [4], [5])
        await streamed(engine.generate(pieces, greedy(1), request_id="s", deadline=7.0))

    run(body())
    assert deadlines == [7.0, None, None]


def test_drain_lets_a_session_go_on_for_its_time() -> None:
    async def body() -> None:
        async with launch() as engine:
            more: asyncio.Queue[list[int] | None] = asyncio.Queue()
            waiting = asyncio.Event()

            async def pieces() -> AsyncIterator[list[int]]:
                while True:
                    waiting.set()
                    piece = await more.get()
                    waiting.clear()
                    if piece is None:
                        return
                    yield piece

            ends = [
                asyncio.create_task(streamed(engine.generate(pieces(), greedy(2), request_id="s")))
            ]
            await waiting.wait()
            draining = asyncio.create_task(engine.drain(3600))
            await asyncio.sleep(0)
            with pytest.raises(EngineUnavailableError):
                await streamed(engine.generate([1], greedy(1), request_id="new"))
            more.put_nowait([3])
            more.put_nowait([4])
            more.put_nowait(None)
            await draining
            assert len(answers(await ends[0])) == 2

    run_alone(body())


def test_shutdown_ends_a_session_that_waits_for_a_piece() -> None:
    async def body() -> None:
        async with launch() as engine:
            waiting = asyncio.Event()

            async def pieces() -> AsyncIterator[list[int]]:
                waiting.set()
                await asyncio.Event().wait()
                yield [3]

            task = asyncio.create_task(
                streamed(engine.generate(pieces(), greedy(2), request_id="s"))
            )
            await waiting.wait()
            await engine.shutdown()
            with pytest.raises(EngineDeadError, match="shut down"):
                await task

    run_alone(body())


def test_the_callers_iterator_is_left_before_the_outputs_are_closed(
    engine: AsyncEngine, run: Run[Any]
) -> None:
    """In the task that read it, so that its time limits and cancel scopes end where they began."""

    async def body() -> None:
        left: list[bool] = []

        async def pieces() -> AsyncIterator[Any]:
            reader = asyncio.current_task()
            try:
                while True:
                    yield [1, 2]
            finally:
                left.append(asyncio.current_task() is reader)

        outputs = engine.generate(pieces(), greedy(LONG), request_id="s")
        await anext(outputs)
        await outputs.aclose()
        assert left == [True]

    run(body())
