"""Requests over an engine core in a process of its own."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from typing import Any

import pytest

from framework import AsyncEngine, OutputKind, SamplingParams
from framework.client.asynchronous import AsyncClient
from framework.frontend.input_processor import InputProcessor
from framework.frontend.tokenizer import Tokenizer
from hookspecs.errors import EngineGenerateError, InvalidRequestError
from tests.async_llm.conftest import Run
from tests.async_llm.engines import greedy, joined, launch, run_alone, streamed

LONG = 100_000


def text_params(text: str, engine: AsyncEngine, **fields: Any) -> SamplingParams:
    ids = engine.input_processor.tokenize(text, add_special_tokens=False)
    return greedy(fields.pop("max_tokens", 100), {"tokens": ids}, detokenize=True, **fields)


def test_deltas_add_up_to_what_the_other_kinds_give(engine: AsyncEngine, run: Run[Any]) -> None:
    async def body() -> None:
        kinds = {
            kind: await streamed(
                engine.generate(
                    "prompt",
                    text_params("na\u00efve \u4f60\u597d", engine, output_kind=kind, logprobs=2),
                    request_id="a",
                )
            )
            for kind in OutputKind
        }
        (final,) = kinds[OutputKind.FINAL_ONLY]
        assert final.finished and final.outputs[0].text.startswith("na\u00efve \u4f60\u597d")
        assert final.prompt == "prompt"
        assert len(final.outputs[0].logprobs or []) == len(final.outputs[0].token_ids)
        assert kinds[OutputKind.CUMULATIVE][-1].outputs == final.outputs
        assert joined(kinds[OutputKind.DELTA]) == final.outputs[0]
        assert len(kinds[OutputKind.DELTA]) > 1

    run(body())


def test_n_outputs_come_with_their_index(engine: AsyncEngine, run: Run[Any]) -> None:
    async def body() -> None:
        script = {"logits": [[0.0] * 1000]}
        params = greedy(5, script, n=3, temperature=1, seed=7)
        deltas = await streamed(engine.generate([1, 2, 3], params, request_id="a"))
        params.output_kind = OutputKind.FINAL_ONLY
        (final,) = await streamed(engine.generate([1, 2, 3], params, request_id="a"))
        assert [each.index for each in final.outputs] == [0, 1, 2]
        assert [joined(deltas, index) for index in range(3)] == final.outputs
        assert len({tuple(each.token_ids) for each in final.outputs}) > 1
        assert [output.finished for output in deltas].count(True) == 1

    run(body())


def test_many_at_once_of_different_lengths(engine: AsyncEngine, run: Run[Any]) -> None:
    async def one(number: int, name: str) -> list[int]:
        prompt = [number % 90 + 3, *range(4, 5 + number % 13)]
        outputs = engine.generate(prompt, greedy(1 + number % 29), request_id=f"{name}{number}")
        return joined(await streamed(outputs)).token_ids

    async def body() -> None:
        together = await asyncio.gather(*[one(number, "t") for number in range(100)])
        assert [len(tokens) for tokens in together] == [1 + number % 29 for number in range(100)]
        for number in range(0, 100, 13):
            assert await one(number, "alone") == together[number]

    run(body())


def test_abort_by_id(engine: AsyncEngine, run: Run[Any]) -> None:
    async def body() -> None:
        outputs = engine.generate([1, 2], greedy(LONG), request_id="a")
        other = asyncio.create_task(
            streamed(engine.generate([1, 2, 3], greedy(30), request_id="b"))
        )
        seen = [await anext(outputs)]
        await engine.abort("a")
        await engine.abort("unknown")
        seen += await streamed(outputs)
        assert seen[-1].finished and seen[-1].outputs[0].finish_reason == "abort"
        assert len(joined(await other).token_ids) == 30

    run(body())


def test_cancelling_the_consumer_aborts(engine: AsyncEngine, run: Run[Any]) -> None:
    async def body() -> None:
        started = asyncio.Event()

        async def consume() -> None:
            async for _ in engine.generate([1, 2], greedy(LONG), request_id="a"):
                started.set()

        task = asyncio.create_task(consume())
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await streamed(engine.generate([1, 2], greedy(2), request_id="a"))

    run(body())


def test_closing_the_iterator_aborts(engine: AsyncEngine, run: Run[Any]) -> None:
    async def body() -> None:
        outputs = engine.generate([1, 2], greedy(LONG), request_id="a")
        await anext(outputs)
        assert engine.num_requests == 1
        await outputs.aclose()
        assert engine.num_requests == 0
        with pytest.raises(StopAsyncIteration):
            await anext(outputs)

    run(body())


def test_an_iterator_that_is_forgotten_aborts(engine: AsyncEngine, run: Run[Any]) -> None:
    async def body() -> None:
        outputs = engine.generate([1, 2], greedy(LONG), request_id="a")
        await anext(outputs)
        del outputs
        gc.collect()
        while engine.num_requests:  # a hook of the event loop closes it
            await asyncio.sleep(0)

    run(body())


def test_an_iterator_that_is_never_started_costs_nothing(
    engine: AsyncEngine, run: Run[Any]
) -> None:
    async def body() -> None:
        before = (await engine.status()).step
        outputs = engine.generate([1, 2], greedy(5), request_id="a")
        assert engine.num_requests == 0
        await outputs.aclose()
        assert (await engine.status()).step == before

    run(body())


def test_an_id_is_unique_until_its_last_output(engine: AsyncEngine, run: Run[Any]) -> None:
    async def body() -> None:
        await engine.pause("keep")
        first = asyncio.create_task(
            streamed(engine.generate([1, 2], greedy(3), request_id="a")),
        )
        while not engine.num_requests:
            await asyncio.sleep(0)
        with pytest.raises(InvalidRequestError, match="in use") as caught:
            await streamed(engine.generate([1, 2], greedy(3), request_id="a"))
        assert caught.value.param == "request_id"
        with pytest.raises(InvalidRequestError, match="in use"):
            await engine.embed([1, 2], request_id="a")
        await engine.resume()
        assert len(joined(await first).token_ids) == 3
        await streamed(engine.generate([1, 2], greedy(3), request_id="a"))

    run(body())


def test_a_last_output_that_is_not_read_frees_its_id(engine: AsyncEngine, run: Run[Any]) -> None:
    async def body() -> None:
        first = engine.generate([1, 2], greedy(3), request_id="a")
        await anext(first)
        await streamed(engine.generate([1, 2], greedy(9), request_id="b"))
        second = engine.generate([5, 6], greedy(LONG), request_id="a")
        await anext(second)
        await first.aclose()  # must not end the other of its id
        assert not (await anext(second)).finished
        await second.aclose()

    run(body())


@pytest.mark.parametrize(
    ("changes", "param"),
    [
        ({"prompt": []}, "prompt"),
        ({"prompt": [10**9]}, "prompt"),
        ({"prompt": 5}, "prompt"),
        ({"params": "greedy"}, "params"),
        ({"params": greedy(5, n="x")}, "n"),
        ({"params": greedy(5, n=10**9)}, "n"),
        ({"params": greedy(0)}, "max_tokens"),
        ({"params": greedy(5, {"token": [1]})}, "extensions.scripted"),
        ({"request_id": ""}, "request_id"),
        ({"request_id": ["a"]}, "request_id"),
        ({"priority": "high"}, "priority"),
        ({"deadline": float("nan")}, "deadline"),
        ({"labels": {"a": 1}}, "labels"),
    ],
)
def test_what_is_wrong_is_told_by_the_first_anext(
    engine: AsyncEngine, run: Run[Any], changes: dict[str, Any], param: str
) -> None:
    async def body() -> None:
        before = (await engine.status()).step
        arguments: dict[str, Any] = {"params": greedy(5), "request_id": "a", **changes}
        outputs = engine.generate(arguments.pop("prompt", [1, 2]), **arguments)
        with pytest.raises(InvalidRequestError) as caught:
            await anext(outputs)
        assert caught.value.param == param
        assert (await engine.status()).step == before

    run(body())


def test_a_request_that_fails_in_the_worker_ends_alone(engine: AsyncEngine, run: Run[Any]) -> None:
    async def body() -> None:
        good = asyncio.create_task(streamed(engine.generate([1], greedy(20), request_id="g")))
        bad = await streamed(engine.generate([1], greedy(9, {"fail_at": 3}), request_id="b"))
        assert joined(bad).finish_reason == "error"
        assert joined(bad).error
        assert len(joined(bad).token_ids) == 3
        assert len(joined(await good).token_ids) == 20

    run(body())


def test_a_script_that_the_worker_refuses_is_an_error_output(
    engine: AsyncEngine, run: Run[Any]
) -> None:
    async def body() -> None:
        (output,) = await streamed(
            engine.generate([1], greedy(9, {"tokens": [10**6]}), request_id="a")
        )
        assert output.outputs[0].finish_reason == "error"
        assert "1000000" in (output.outputs[0].error or "")

    run(body())


def test_params_may_be_left_out(engine: AsyncEngine, run: Run[Any]) -> None:
    async def body() -> None:
        outputs = engine.generate({"prompt_token_ids": [5, 6], "prompt": "hi"}, request_id="a")
        first = await anext(outputs)
        assert first.prompt == "hi"
        await outputs.aclose()

    run(body())


def test_a_slow_consumer_gets_one_output_of_several_steps(
    engine: AsyncEngine, run: Run[Any]
) -> None:
    async def body() -> None:
        params = text_params("abcdefghijklm", engine, max_tokens=15, logprobs=1)
        slow = engine.generate("p", params, request_id="slow")
        first = await anext(slow)
        await streamed(engine.generate("p", greedy(60), request_id="other"))
        rest = await streamed(slow)
        assert len(rest) == 1 and rest[0].finished
        total = joined([first, *rest])
        assert total.text.startswith("abcdefghijklm")
        assert len(total.logprobs or []) == len(total.token_ids)

    run(body())


def test_a_long_text_is_tokenised_beside_the_loop(
    engine: AsyncEngine, run: Run[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[bool] = []
    encode = Tokenizer.encode

    def watched(self: Tokenizer, text: str, **options: Any) -> list[int]:
        threads.append(threading.current_thread() is threading.main_thread())
        return encode(self, text, **options)

    monkeypatch.setattr(Tokenizer, "encode", watched)

    async def body() -> None:
        long = "x" * 5000
        for prompt in ("short", long, {"prompt": long, "cache_salt": "s"}):
            (output,) = await streamed(engine.generate(prompt, greedy(1), request_id="a"))
            assert output.prompt == (prompt["prompt"] if isinstance(prompt, dict) else prompt)
            assert len(output.prompt_token_ids) == len(output.prompt or "")
        await engine.embed(long, request_id="a")

    run(body())
    assert threads == [True, False, False, False]


def test_an_abort_reaches_a_request_that_is_being_tokenised(
    engine: AsyncEngine, run: Run[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    entered, go = threading.Event(), threading.Event()

    def slow(self: InputProcessor, text: str, **options: Any) -> list[int]:
        entered.set()
        go.wait(30)
        return [5, 6, 7]

    monkeypatch.setattr(InputProcessor, "tokenize", slow)

    async def body() -> None:
        task = asyncio.create_task(
            streamed(engine.generate("x" * 5000, greedy(LONG), request_id="a"))
        )
        await asyncio.to_thread(entered.wait)
        with pytest.raises(InvalidRequestError, match="in use"):
            await streamed(engine.generate([1], greedy(1), request_id="a"))
        await engine.abort("a")
        go.set()
        (output,) = await task
        assert output.outputs[0].finish_reason == "abort"
        assert output.prompt_token_ids == [5, 6, 7]

    run(body())


def test_embed(engine: AsyncEngine, run: Run[Any]) -> None:
    async def body() -> None:
        many = await asyncio.gather(
            *[engine.embed([2, 3, number], request_id=f"e{number}") for number in range(20)]
        )
        assert [each.request_id for each in many] == [f"e{number}" for number in range(20)]
        again = await engine.embed([2, 3, 7], request_id="e7")
        assert again.embedding.tolist() == many[7].embedding.tolist()
        assert again.prompt_token_ids == [2, 3, 7]
        with pytest.raises(InvalidRequestError):
            await engine.embed([], request_id="e")

    run(body())


def test_text_methods(engine: AsyncEngine, run: Run[Any]) -> None:
    async def body() -> None:
        ids = await engine.tokenize("h\u00e9")
        assert await engine.detokenize(ids) == "h\u00e9"
        assert b"".join(engine.token_bytes(token_id) for token_id in ids) == "h\u00e9".encode()
        assert engine.token_bytes(10**6) == b""
        prompt = await engine.chat_prompt([{"role": "user", "content": "hi"}])
        assert prompt["prompt"] == "<user>hi<assistant>"
        for wrong in ("hi", [], ["hi"], [{"role": "boss", "content": "hi"}]):
            with pytest.raises(InvalidRequestError) as caught:
                await engine.chat_prompt(wrong)  # type: ignore[arg-type]
            assert caught.value.param == "messages"
        with pytest.raises(InvalidRequestError):
            await engine.detokenize([10**6])

    run(body())


def test_an_unexpected_error_is_wrapped_with_its_cause(
    engine: AsyncEngine, run: Run[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self: AsyncClient, requests: Any) -> None:
        raise OSError("no buffer space")

    monkeypatch.setattr(AsyncClient, "add_requests", broken)

    async def body() -> None:
        with pytest.raises(EngineGenerateError, match="no buffer space") as caught:
            await streamed(engine.generate([1], greedy(1), request_id="a"))
        assert isinstance(caught.value.__cause__, OSError)

    run(body())


def test_a_deadline_that_has_passed_is_a_timeout() -> None:
    async def body() -> None:
        async with launch(scheduler={"policies": ["deadline"]}) as engine:
            late = await streamed(engine.generate([1], greedy(5), request_id="late", deadline=0.0))
            assert joined(late).finish_reason == "timeout"
            assert joined(late).token_ids == []
            in_time = await streamed(
                engine.generate(
                    [1], greedy(5), request_id="in time", deadline=time.monotonic() + 3600
                )
            )
            assert joined(in_time).finish_reason == "length"

    run_alone(body())
