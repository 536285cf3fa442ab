"""Admission, draining, the end of an engine, statistics: engines of their own."""

from __future__ import annotations

import asyncio
import inspect
import random
from collections import Counter
from typing import Any

import pytest

from framework import AsyncEngine, AsyncLLM
from hookspecs.contracts.frontend import EngineClient
from hookspecs.errors import (
    EngineDeadError,
    EngineUnavailableError,
    FrameworkError,
    QueueFullError,
    UnsupportedFeatureError,
)
from tests.async_llm.engines import greedy, joined, launch, run_alone, streamed
from tests.async_llm.recording import Recorder, Spans, plugin

LONG = 100_000
RECORDED: dict[str, Any] = {"loggers": ["recorder"], "tracers": ["spans"]}


def as_client(engine: AsyncLLM) -> EngineClient:
    """For mypy: it is what front ends are lent."""
    return engine


def test_it_has_the_signatures_of_the_contract() -> None:
    for name, method in inspect.getmembers(EngineClient, inspect.isfunction):
        if name.startswith("_"):
            continue
        wanted = inspect.signature(method).parameters.values()
        got = inspect.signature(getattr(AsyncLLM, name)).parameters.values()
        assert [(each.name, each.kind, each.default) for each in got] == [
            (each.name, each.kind, each.default) for each in wanted
        ], name


async def opened(engine: AsyncEngine, request_id: str, **fields: Any) -> Any:
    """A request that has output something and goes on."""
    outputs = engine.generate([3, 4], greedy(LONG, **fields), request_id=request_id)
    await anext(outputs)
    return outputs


def test_a_queue_that_is_full() -> None:
    async def body() -> None:
        async with launch(
            plugins=[plugin],
            scheduler={"max_num_seqs": 2},
            serving={"max_waiting_requests": 2},
            stats=RECORDED,
        ) as engine:
            recorder = Recorder.last
            two = greedy(LONG, n=2, temperature=1)
            outputs = [await opened(engine, "a"), engine.generate([3], two, request_id="b")]
            second = asyncio.ensure_future(anext(outputs[1]))
            while (await engine.status()).num_waiting == 0:
                pass
            # One place is left: all of the n outputs are taken, or none.
            with pytest.raises(QueueFullError, match="limit of 4") as caught:
                await streamed(engine.generate([3], two, request_id="c"))
            assert caught.value.retry_after_s > 0
            third = asyncio.ensure_future(anext(engine.generate([3], greedy(LONG), request_id="c")))
            while engine.num_requests < 3:
                await asyncio.sleep(0)
            with pytest.raises(QueueFullError):
                await engine.embed([3], request_id="d")
            assert recorder.rejections == ["queue_full", "queue_full"]
            for each in (second, third):
                each.cancel()
            await asyncio.gather(second, third, return_exceptions=True)
            for stream in outputs:
                await stream.aclose()
            while engine.num_requests:  # that of `third` is closed by the event loop
                await asyncio.sleep(0)
            # The places are free once the engine core says so.
            while True:
                try:
                    await streamed(engine.generate([3], two_short, request_id="e"))
                    break
                except QueueFullError:
                    await asyncio.sleep(0)

    two_short = greedy(2, n=2, temperature=1)
    run_alone(body())


def test_many_that_come_together_do_not_exceed_the_limit(text_model: str) -> None:
    """All are let in before the text of any is tokenised, which happens beside the loop."""

    async def body() -> None:
        async with launch(
            model={"name": text_model},
            cache={"num_blocks": 8192},
            scheduler={"max_num_seqs": 2, "max_num_batched_tokens": 8192},
            serving={"max_waiting_requests": 1},
            plugins_options={"scripted": {"max_model_len": 8192}},
        ) as engine:
            results = await asyncio.gather(
                *[
                    streamed(engine.generate("x" * 5000, greedy(3), request_id=str(number)))
                    for number in range(6)
                ],
                return_exceptions=True,
            )
            refused = [each for each in results if isinstance(each, QueueFullError)]
            served = [each for each in results if isinstance(each, list)]
            assert (len(refused), len(served)) == (3, 3)

    run_alone(body())


def test_drain() -> None:
    async def body() -> None:
        async with launch(plugins=[plugin], stats=RECORDED) as engine:
            short = engine.generate([3], greedy(50), request_id="short")
            await anext(short)
            long = await opened(engine, "long")
            rest = asyncio.create_task(streamed(short))
            draining = asyncio.create_task(engine.drain(3600))
            await asyncio.sleep(0)
            health = engine.health()
            assert health.live and not health.ready and "stopped" in health.reason
            with pytest.raises(EngineUnavailableError, match="being stopped"):
                await streamed(engine.generate([3], greedy(1), request_id="new"))
            assert Recorder.last.rejections == ["draining"]
            assert joined(await rest).finish_reason == "length"
            assert not draining.done()
            # A second, with less time, ends what is left.
            await engine.drain(0)
            await draining
            assert joined(await streamed(long)).finish_reason == "abort"
            await engine.drain(0)
            await engine.check_health()

    run_alone(body())


def test_shutdown_ends_what_is_open_and_everything_after_it() -> None:
    async def body() -> None:
        engine = await launch(plugins=[plugin], stats=RECORDED).start()
        await engine.start()  # is started already
        outputs = [await opened(engine, f"r{number}") for number in range(3)]
        waiting = [asyncio.create_task(streamed(each)) for each in outputs[:2]]
        pause = asyncio.create_task(engine.pause("wait"))
        failed = asyncio.create_task(engine.failed())
        while (await engine.status()).state != "pausing":
            pass
        await engine.shutdown()
        ends = await asyncio.gather(*waiting, pause, return_exceptions=True)
        assert [type(each) for each in ends] == [EngineDeadError] * 3
        assert len({id(each) for each in ends}) == 3
        with pytest.raises(EngineDeadError, match="shut down"):
            await streamed(outputs[2])
        assert "shut down" in str(await failed)
        await engine.shutdown()
        for call in (
            streamed(engine.generate([3], greedy(1), request_id="x")),
            engine.embed([3], request_id="x"),
            engine.status(),
            engine.pause(),
            engine.command("get_status", {}),
            engine.check_health(),
            engine.start(),
        ):
            with pytest.raises(EngineDeadError, match="shut down"):
                await call
        await engine.abort("x")
        await engine.drain(0)
        assert not engine.health().live
        assert engine.num_requests == 0
        assert Counter(Recorder.last.finished).most_common(1)[0][1] == 1
        assert len(Recorder.last.finished) == len(Spans.last.ended) == 3
        assert (Recorder.last.num_closed, Spans.last.num_closed) == (1, 1)

    run_alone(body())


def test_shutdowns_at_once() -> None:
    async def body() -> None:
        engine = await launch().start()
        await asyncio.gather(*[engine.shutdown() for _ in range(3)])

    run_alone(body())


def test_a_shutdown_that_is_cancelled() -> None:
    async def body() -> None:
        engine = await launch().start()
        outputs = await opened(engine, "a")
        ending = asyncio.create_task(engine.shutdown())
        await asyncio.sleep(0)
        ending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await ending
        with pytest.raises(EngineDeadError, match="shut down"):
            await streamed(outputs)
        await engine.shutdown()
        assert engine.engine_pids() == []

    run_alone(body())


def test_another_event_loop() -> None:
    with asyncio.Runner() as runner, asyncio.Runner() as other:
        engine = runner.run(launch().start())
        for call in (
            lambda: streamed(engine.generate([3], greedy(1), request_id="x")),
            lambda: engine.embed([3], request_id="x"),
            engine.status,
            lambda: engine.drain(0),
            lambda: engine.abort("x"),
            engine.start,
            engine.shutdown,
        ):
            with pytest.raises(FrameworkError, match="another event loop"):
                other.run(call())
        outputs = runner.run(streamed(engine.generate([3], greedy(2), request_id="x")))
        assert len(joined(outputs).token_ids) == 2
        runner.close()
        # Its own is gone: it can still be ended.
        other.run(engine.shutdown())
        with pytest.raises(EngineDeadError):
            other.run(engine.status())


def test_a_core_in_this_process_is_refused() -> None:
    with pytest.raises(UnsupportedFeatureError, match=r"engine\.process"):
        launch(engine={"process": "in_process"})


def test_each_request_is_recorded_once_whatever_happens_to_it() -> None:
    async def body() -> None:
        async with launch(plugins=[plugin], stats=RECORDED) as engine:
            rng = random.Random(5)

            async def one(number: int) -> None:
                name = f"r{number}"
                script = rng.choice([None, {"fail_at": 4}, {"eos_after": 3}])
                params = greedy(
                    rng.randrange(1, 30), script, ignore_eos=script is None, n=1, temperature=0
                )
                outputs = engine.generate([3, 4, number + 3], params, request_id=name)
                ending = rng.choice(["read", "abort", "close", "cancel", "idle"])
                count = rng.randrange(6)
                if ending == "cancel":
                    task = asyncio.create_task(streamed(outputs))
                    for _ in range(count):
                        await asyncio.sleep(0)
                    task.cancel()
                    await asyncio.gather(task, return_exceptions=True)
                    return
                for _ in range(count):
                    await anext(outputs, None)
                if ending == "abort":
                    await engine.abort(name)
                if ending in ("read", "abort"):
                    await streamed(outputs)
                await outputs.aclose()

            await asyncio.gather(*[one(number) for number in range(200)])
            assert engine.num_requests == 0
            status = await engine.status()
            assert (status.num_running, status.num_waiting) == (0, 0)
            recorder, spans = Recorder.last, Spans.last
            counts = Counter(recorder.finished)
            assert set(counts.values()) == {1}
            # Those that were closed before their first step were never handed over.
            users = {name.rsplit("-", 2)[0] for name in counts}
            assert {each.request_id for each in spans.ended} == users
            assert len(spans.ended) == len(counts) == len(users) > 100

    run_alone(body())


def test_a_stat_logger_or_tracer_that_raises_is_detached(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def body() -> None:
        async with launch(plugins=[plugin], stats=RECORDED) as engine:
            outputs = await opened(engine, "a")
            recorder, spans = Recorder.last, Spans.last
            recorder.broken = spans.broken = True
            await streamed(engine.generate([3], greedy(5), request_id="b"))
            assert (recorder.num_closed, spans.num_closed) == (1, 1)
            await anext(outputs)
            await outputs.aclose()
            assert engine.expositions() == []
            assert "recording" in [each["name"] for each in engine.plugins()]

    run_alone(body())
    assert "disk full" in caplog.text and "no collector" in caplog.text


def test_reports_are_due_while_nothing_happens() -> None:
    async def body() -> None:
        async with launch(plugins=[plugin], stats={"loggers": ["recorder"], "interval_s": 0.001}):
            recorder = Recorder.last
            before = recorder.num_reports
            while recorder.num_reports < before + 3:
                await asyncio.sleep(0.001)

    run_alone(body())


def test_a_bundle_of_many_rows_is_one_record_and_lets_others_run() -> None:
    """600 requests decode in one step each; the loop takes turns within it."""

    async def body() -> None:
        async with launch(
            plugins=[plugin],
            cache={"num_blocks": 2048},
            scheduler={"max_num_seqs": 600, "max_num_batched_tokens": 4096},
            stats=RECORDED,
        ) as engine:
            turns: list[int] = []
            num_running = 600
            ended_at: dict[int, int] = {}
            stop = False

            async def count() -> None:
                while not stop:
                    turns.append(0)
                    await asyncio.sleep(0)

            async def one(number: int) -> None:
                outputs = engine.generate([3, 4], greedy(4), request_id=str(number))
                assert len(joined(await streamed(outputs)).token_ids) == 4
                ended_at[number] = len(turns)

            counter = asyncio.create_task(count())
            await engine.pause("keep")
            tasks = [asyncio.create_task(one(number)) for number in range(num_running)]
            while (await engine.status()).num_waiting < num_running:
                pass
            await engine.resume()
            await asyncio.gather(*tasks)
            stop = True
            await counter
            largest = max(each.num_generation_tokens for each in Recorder.last.iterations)
            assert largest == 600
            # All end in one step, but in 3 parts of it.
            assert len(set(ended_at.values())) >= 3
            assert max(Counter(ended_at.values()).values()) <= 256

    run_alone(body())
