"""When requests are sent: in a closed loop, or in an open one."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator
from random import Random
from typing import TypeAlias

from framework.bench.record import RequestRecord

__all__ = ["Ask", "Limits", "closed_loop", "open_loop", "poisson_gaps"]

Ask: TypeAlias = Callable[[int, RequestRecord], Awaitable[None]]
"""Does request number i, counted from 0, and fills its record; raises nothing."""
Sleep: TypeAlias = Callable[[float], Awaitable[None]]


class Limits:
    """How long a run lasts. What has been sent is always waited for."""

    def __init__(self, requests: int | None, duration_s: float | None) -> None:
        """`duration_s`: from the start until the last request is sent; None: no limit."""
        self._requests = requests
        self._duration_s = duration_s

    def reached(self, sent: int, elapsed_s: float) -> bool:
        """Whether no further request is sent."""
        if self._requests is not None and sent >= self._requests:
            return True
        return self._duration_s is not None and elapsed_s >= self._duration_s


async def closed_loop(
    ask: Ask,
    records: list[RequestRecord],
    limits: Limits,
    *,
    concurrency: int,
    clock: Callable[[], float],
) -> None:
    """`concurrency` clients, each of which sends its next request when it has the answer.

    `records` grows as requests are sent, so that it has all when this is cancelled.
    """
    start = clock()

    async def client() -> None:
        while not limits.reached(len(records), (now := clock()) - start):
            record = RequestRecord(scheduled=now)
            number = len(records)
            records.append(record)
            await ask(number, record)

    async with asyncio.TaskGroup() as group:
        for _ in range(concurrency):
            group.create_task(client())


async def open_loop(
    ask: Ask,
    records: list[RequestRecord],
    limits: Limits,
    *,
    gaps: Iterator[float],
    max_concurrency: int | None,
    clock: Callable[[], float],
    sleep: Sleep = asyncio.sleep,
) -> None:
    """Requests arrive after each of `gaps` (seconds), whether or not others were answered.

    What a request waits for one of `max_concurrency` places counts as its latency, and so does
    what the generator itself is late: a server that stalls, and so would slow a closed loop
    down, is seen by all the requests that arrive meanwhile ("coordinated omission").
    """
    places = (
        contextlib.nullcontext() if max_concurrency is None else asyncio.Semaphore(max_concurrency)
    )

    async def arrive(number: int, record: RequestRecord) -> None:
        async with places:
            await ask(number, record)

    start = arrival = clock()
    async with asyncio.TaskGroup() as group:
        for gap in gaps:
            arrival += gap
            if limits.reached(len(records), arrival - start):
                return
            if (wait := arrival - clock()) > 0:
                await sleep(wait)
            record = RequestRecord(scheduled=arrival)
            records.append(record)
            group.create_task(arrive(len(records) - 1, record))


def poisson_gaps(rate: float, seed: int) -> Iterator[float]:
    """Seconds between the arrivals of a Poisson process of `rate` arrivals/s."""
    draw = Random(seed)
    while True:
        yield draw.expovariate(rate)
