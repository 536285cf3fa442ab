"""Requests and applications that do not touch each other."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final

from framework.conformance.subject import Subject
from framework.conformance.suites.http_routes.base import UNKNOWN, HttpRoutesPart
from framework.conformance.worlds.asgi import Answer, Asked, ask
from framework.conformance.worlds.engine_client import Mood
from framework.conformance.worlds.routes import Rig, in_loop, known_requests

__all__ = ["Independence"]

MANY: Final = 12
"""Requests at once."""
HOLD_S: Final = 0.1
"""Seconds without a break of the event loop: a hundred times what most answers take."""


class Independence(HttpRoutesPart):
    """Answers are of their own request and application."""

    def test_answers_are_not_mixed_up(self, subject: Subject) -> None:
        """Requires nothing.
        Does: asks many at once, each with a word of its own in path and query, of an engine that
        answers the last one first.
        Must: tell nobody the word of another, and answer each as alone.
        """

        async def work(rig: Rig) -> list[tuple[Answer, Answer]]:
            pairs: list[tuple[Answer, Answer]] = []
            for asked in [*known_requests(subject), Asked(path=UNKNOWN)]:
                each = list(_marked(asked))
                app = rig.mount(Mood.SLOW).app
                together = await asyncio.gather(*(ask(app, one) for one in each))
                alone = [await ask(rig.mount().app, one) for one in each]
                pairs += zip(together, alone, strict=True)
            return pairs

        for answer, alone in in_loop(subject, work, "an application with many requests"):
            fault = answer.fault()
            assert fault is None, fault
            assert answer.status == alone.status, (
                f"{answer.asked}: {answer.status} among others, {alone.status} alone"
            )
            said = answer.said()
            own = _word_of(answer.asked)
            for number in range(MANY):
                word = _word(number)
                assert word == own or word not in said, (
                    f"the answer to {answer.asked} has the word {word!r} of another request"
                )

    def test_the_event_loop_is_left_to_others(self, subject: Subject) -> None:
        """Requires nothing.
        Does: asks the same five times in a row beside a task that only counts, and looks for how
        long it did not come to its turn.
        Must: not hold the event loop for long each time, for all requests and outputs wait
        meanwhile. What waits or computes belongs into a thread, such as of `asyncio.to_thread`.
        """

        async def work(rig: Rig) -> list[tuple[Asked, float]]:
            app = rig.mount().app
            return [(asked, await _shortest_hold(app, asked)) for asked in known_requests(subject)]

        for asked, seconds in in_loop(subject, work, "an application beside another task"):
            assert seconds < HOLD_S, (
                f"{asked} holds the event loop for {seconds:.2f} s or longer each time"
            )

    def test_two_applications_share_nothing(self, subject: Subject) -> None:
        """Requires nothing.
        Does: makes two, with two engines, and asks one.
        Must: ask its own engine, never the other's.
        """

        async def work(rig: Rig) -> tuple[int, int]:
            first, second = rig.mount(), rig.mount()
            for asked in known_requests(subject):
                await ask(first.app, asked)
            strange = second.engine.calls.total()
            first.engine.calls.clear()
            for asked in known_requests(subject):
                await ask(second.app, asked)
            return strange, first.engine.calls.total()

        of_second, of_first = in_loop(subject, work, "two applications")
        assert of_second == of_first == 0, (
            f"asked one, the application called the engine of the other {of_second + of_first} "
            "times; use the context of the object that `asgi` was called on"
        )


async def _shortest_hold(app: Any, asked: Asked) -> float:
    """Seconds for which the event loop was held without a break; of five requests the least, since
    a busy machine delays some, and what blocks holds up all."""
    holds = []
    for _ in range(5):
        heart = asyncio.create_task(_longest_pause())
        await asyncio.sleep(0)
        await ask(app, asked)
        heart.cancel()
        holds.append(await heart)
    return min(holds)


async def _longest_pause() -> float:
    """Seconds between two turns of this task, until it is cancelled."""
    longest, before = 0.0, time.perf_counter()
    with suppress(asyncio.CancelledError):
        while True:
            await asyncio.sleep(0)
            now = time.perf_counter()
            longest, before = max(longest, now - before), now
    return max(longest, time.perf_counter() - before)


def _word(number: int) -> bytes:
    return b"conformance-word-%d-end" % number


def _word_of(asked: Asked) -> bytes:
    return asked.query.rpartition(b"conform=")[2]


def _marked(asked: Asked) -> Iterator[Asked]:
    for number in range(MANY):
        word = _word(number)
        query = b"&".join(filter(None, [asked.query, b"conform=" + word]))
        path = f"{asked.path}-{word.decode()}" if asked.path == UNKNOWN else asked.path
        yield asked._replace(path=path, query=query)
