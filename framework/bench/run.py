"""A run: warm-up, load, and what came of it. One event loop; the process does nothing else."""

from __future__ import annotations

import asyncio
import resource
import signal
import time
from collections.abc import Callable
from typing import Any, Final

import msgspec

from framework.bench.answer import Answer, StreamAnswer, WholeAnswer
from framework.bench.client import Client
from framework.bench.loops import Limits, closed_loop, open_loop, poisson_gaps
from framework.bench.prompts import Chosen, Fields
from framework.bench.record import RequestRecord
from framework.bench.report import Measured
from hookspecs.errors import TransportError

__all__ = ["Load", "Plan", "first_model", "loop_factory", "run_load"]

_PATHS: Final = {False: "/v1/completions", True: "/v1/chat/completions"}
_REFUSED_S: Final = 0.1
"""Until a client that could not connect goes on: else a server that is gone would be asked
thousands of times a second."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What load is put on the server."""

    chat: bool
    stream: bool
    chunk_usage: bool
    """Every chunk of a stream is asked to have the usage."""
    fields: Fields
    """The prompts."""
    common: dict[str, Any]
    """Members that all bodies have, such as the model and `max_tokens`."""
    concurrency: int
    """Clients of a closed loop, and of the warm-up."""
    rate: float | None
    """Arrivals/s of an open loop; None: a closed loop."""
    max_concurrency: int | None
    """Of an open loop."""
    requests: int | None
    duration_s: float | None
    warmup: int
    seed: int
    is_long: Chosen = lambda number: False
    """Which requests have long prompts; they are reported apart."""


class Load:
    """The requests of a plan."""

    def __init__(
        self, plan: Plan, client: Client, *, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self.plan = plan
        self._client = client
        self._clock = clock

    async def ask(self, number: int, record: RequestRecord) -> None:
        """Send request `number`, fill its record. Raises nothing."""
        plan = self.plan
        record.long = plan.is_long(number)
        body = {**plan.common, **plan.fields(number)}
        answer: Answer
        if plan.stream:
            body["stream"] = True
            body["stream_options"] = {"include_usage": True}
            if plan.chunk_usage:
                body["stream_options"]["continuous_usage_stats"] = True
            answer = StreamAnswer(record, self._clock, chunk_usage=plan.chunk_usage)
        else:
            answer = WholeAnswer(record)
        request = self._client.post(_PATHS[plan.chat], body)
        record.sent = self._clock()
        try:
            connection = await self._client.connection()
        except OSError as error:
            answer.fail("connect", str(error))
            record.ended = self._clock()
            await asyncio.sleep(_REFUSED_S)
            return
        try:
            await self._client.exchange_over(connection, request, answer)
            answer.end()
        except TimeoutError as error:
            answer.fail("timeout", str(error))
        except OSError as error:
            answer.fail("disconnect", str(error))
        record.ended = self._clock()

    async def warm_up(self) -> None:
        """Requests that are not counted, with prompts that the load does not have."""
        plan = self.plan

        async def ask(number: int, record: RequestRecord) -> None:
            await self.ask(-1 - number, record)

        await closed_loop(
            ask, [], Limits(plan.warmup, None), concurrency=plan.concurrency, clock=self._clock
        )

    async def run(self, records: list[RequestRecord]) -> None:
        """The load itself; `records` grows as it goes."""
        plan = self.plan
        limits = Limits(plan.requests, plan.duration_s)
        if plan.rate is None:
            await closed_loop(
                self.ask, records, limits, concurrency=plan.concurrency, clock=self._clock
            )
        else:
            await open_loop(
                self.ask,
                records,
                limits,
                gaps=poisson_gaps(plan.rate, plan.seed),
                max_concurrency=plan.max_concurrency,
                clock=self._clock,
            )


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop's where that is installed, since the load generator shares its machine with the
    server more often than not; None: asyncio's own."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


async def first_model(client: Client) -> str:
    """The first of `/v1/models`. TransportError when that is not what answers."""
    data = await client.get("/v1/models")
    try:
        return msgspec.json.decode(data, type=_Models).data[0].id
    except (msgspec.DecodeError, UnicodeDecodeError, IndexError) as error:
        raise TransportError(
            f"{client.url}/v1/models lists no model ({error}); name it with --model"
        ) from error


async def run_load(load: Load) -> Measured:
    """Warm-up and load. SIGINT ends it early, and what was measured is returned; a second one
    has its usual effect."""
    loop = asyncio.get_running_loop()
    records: list[RequestRecord] = []
    start, cpu, interrupted = time.perf_counter(), _cpu_s(), False

    async def work() -> None:
        nonlocal start, cpu
        await load.warm_up()
        start, cpu = time.perf_counter(), _cpu_s()
        await load.run(records)

    task = asyncio.create_task(work())

    def interrupt() -> None:
        nonlocal interrupted
        interrupted = True
        loop.remove_signal_handler(signal.SIGINT)
        task.cancel()

    loop.add_signal_handler(signal.SIGINT, interrupt)
    try:
        await asyncio.wait([task])
    finally:
        loop.remove_signal_handler(signal.SIGINT)
    if not task.cancelled():
        task.result()
    return Measured(
        records=records,
        wall_s=time.perf_counter() - start,
        cpu_s=_cpu_s() - cpu,
        open_loop=load.plan.rate is not None,
        interrupted=interrupted,
    )


def _cpu_s() -> float:
    """User and system time of this process."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


class _Model(msgspec.Struct):
    id: str


class _Models(msgspec.Struct):
    data: list[_Model]
