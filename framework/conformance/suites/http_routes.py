"""Suite of HTTP routes: an ASGI application with a pretended engine, and once in a server."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, Final

from framework.conformance.base import Conformance
from framework.conformance.subject import Subject
from framework.conformance.worlds.asgi import Answer, Asked, ask, begin
from framework.conformance.worlds.engine_client import TROUBLES, Mood
from framework.conformance.worlds.leftovers import Leftovers
from framework.conformance.worlds.patience import within
from framework.conformance.worlds.routes import METHODS, Rig, garbage, in_loop, known_requests
from framework.conformance.worlds.servers import fetch, server_of

__all__ = ["HttpRoutesConformance"]

STUCK_S = 3.0
"""Seconds in which a request that takes milliseconds must be done, or the event loop is blocked."""
MANY: Final = 12
"""Requests at once."""
UNKNOWN: Final = "/conformance-knows-that-this-is-not-there"


class HttpRoutesConformance(Conformance):
    """An application answers every request once, blocks nothing, and mixes nothing up.

    The example of a provider has `requests`: a list of texts such as `GET /status?limit=3`, with
    paths below the mount, that it answers with success. `GET /` is asked in any case.
    """

    kind = "http_routes"

    # Answers

    def test_what_it_knows_is_answered(self, subject: Subject) -> None:
        """Requires nothing.
        Does: asks for `/` and what the example names, of an engine that is well.
        Must: answer each with one start and one end, none as a failure of the server, and at
        least one with success.
        """

        async def work(rig: Rig) -> list[Answer]:
            return [await ask(rig.mount().app, asked) for asked in known_requests(subject)]

        answers = in_loop(subject, work, "an application")
        _check(answers)
        statuses = {str(answer.asked): answer.status for answer in answers}
        assert any(answer.status and answer.status < 400 for answer in answers), (
            f"no request that the kit knows succeeds ({statuses}), so it can test little; name "
            "some as requests in the table of examples in conform.toml"
        )

    def test_what_it_does_not_know_is_answered(self, subject: Subject) -> None:
        """Requires nothing.
        Does: asks for paths that are not there, and by all methods, one of which is none.
        Must: answer each once, and not as a failure of the server.
        """

        async def work(rig: Rig) -> list[Answer]:
            app = rig.mount().app
            paths = ["", UNKNOWN, UNKNOWN + "/", *(each.path for each in known_requests(subject))]
            return [await ask(app, Asked(m, path)) for path in paths for m in METHODS]

        _check(in_loop(subject, work, "an application"))

    def test_garbage_is_answered(self, subject: Subject, seed: int) -> None:
        """Requires nothing.
        Does: sends random queries, headers and bodies that no client of its own would send.
        Must: answer each once, and not as a failure of the server.
        """

        async def work(rig: Rig) -> list[Answer]:
            app, known = rig.mount().app, known_requests(subject)
            return [await ask(app, asked) for asked in garbage(seed, known, 120)]

        _check(in_loop(subject, work, f"an application that is sent garbage (seed {seed})"))

    def test_it_lives_where_it_is_mounted(self, subject: Subject) -> None:
        """Requires nothing.
        Does: mounts it in three places, of which a proxy adds one, and asks the same.
        Must: answer with the same status in each, and redirect to nothing above its place.
        """
        roots = ["/plugins/conform", "/plugins/another", "/outer/plugins/conform"]

        async def work(rig: Rig) -> list[list[Answer]]:
            app = rig.mount().app
            asked = [*known_requests(subject), Asked(path=UNKNOWN)]
            return [[await ask(app, each, root=root) for root in roots] for each in asked]

        for answers in in_loop(subject, work, "an application"):
            statuses = [answer.status for answer in answers]
            assert len(set(statuses)) == 1, (
                f"{answers[0].asked} is answered {statuses}, mounted at {roots}; the path to look "
                "at is scope['path'] without scope['root_path']"
            )
            for root, answer in zip(roots, answers, strict=True):
                for target in _redirects(answer):
                    inside = not target.startswith("/") or target.startswith(root)
                    assert inside, f"{answer.asked}, mounted at {root}, redirects to {target}"

    # Engines

    def test_an_engine_in_trouble_is_told_of(self, subject: Subject) -> None:
        """Requires nothing.
        Does: asks while the engine is dead, unavailable, full, refuses, and fails in the middle.
        Must: answer, or let the engine's error out before it has begun to answer; the front end
        has an answer for that.
        """

        async def work(rig: Rig) -> list[tuple[Mood, Answer]]:
            pairs = [(mood, asked) for mood in TROUBLES for asked in known_requests(subject)]
            return [(mood, await ask(rig.mount(mood).app, asked)) for mood, asked in pairs]

        for mood, answer in in_loop(subject, work, "an application whose engine is in trouble"):
            fault = answer.fault()
            assert fault is None, f"with an engine that is {mood.value}: {fault}"

    def test_a_slow_engine_holds_nobody_else_up(self, subject: Subject) -> None:
        """Requires nothing.
        Does: asks while the engine answers only after other tasks had their turn.
        Must: await it; a call that waits without `await` blocks the event loop, and with it the
        engine's answer and all requests.
        """

        async def work(rig: Rig) -> list[Answer]:
            app = rig.mount(Mood.SLOW).app
            return [await ask(app, asked) for asked in known_requests(subject)]

        answers = in_loop(subject, work, "a request, for it blocks the event loop,", STUCK_S)
        _check(answers)

    # Each for itself

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

    # Ends

    def test_a_client_may_leave(self, subject: Subject) -> None:
        """Requires nothing.
        Does: lets the client go away while the engine works, and the engine answer later.
        Must: come to an end, and leave no request open in the engine.
        """

        async def work(rig: Rig) -> list[str]:
            faults = []
            for asked in known_requests(subject):
                mounted = rig.mount(Mood.SLOW)
                exchange = begin(mounted.app, asked)
                for _ in range(4):
                    await asyncio.sleep(0)
                exchange.leave()
                answer = await exchange.ended()
                expected = (OSError, type(None))
                fault = None if isinstance(answer.error, expected) else answer.fault()
                faults += [fault] if fault else []
                faults += [f"{asked}: {len(mounted.engine.open)} calls stay open"] * bool(
                    mounted.engine.open
                )
            return faults

        faults = in_loop(subject, work, "a request whose client has left")
        assert not faults, f"after its client had left: {faults[0]}"

    def test_what_is_cancelled_ends(self, subject: Subject) -> None:
        """Requires nothing.
        Does: cancels requests that wait for an engine which never answers, as a server that stops
        does.
        Must: end at once, and leave no request open in the engine.
        """

        async def work(rig: Rig) -> list[str]:
            left = []
            for asked in known_requests(subject):
                mounted = rig.mount(Mood.SILENT)
                exchange = begin(mounted.app, asked)
                for _ in range(10):
                    await asyncio.sleep(0)
                exchange.task.cancel()
                done, _ = await asyncio.wait({exchange.task}, timeout=STUCK_S)
                if not done:
                    exchange.task.cancel()
                    left.append(f"{asked} goes on")
                await _turns()
                if mounted.engine.open:
                    left.append(f"{asked} leaves {sorted(mounted.engine.open)} open")
            return left

        left = in_loop(subject, work, "a request that was cancelled")
        assert not left, f"cancelled, {left[0]}"

    def test_nothing_piles_up(self, subject: Subject) -> None:
        """Requires nothing.
        Does: asks a few times, then many times, and counts tasks and threads.
        Must: leave none behind for each request, and no thread when the loop has ended.
        """

        async def work(rig: Rig) -> list[int]:
            mounted, counts = rig.mount(), []
            for rounds in (2, 20):
                for _ in range(rounds):
                    for asked in known_requests(subject):
                        await ask(mounted.app, asked)
                await _turns()
                counts.append(len(asyncio.all_tasks()) + len(mounted.engine.open))
            return counts

        leftovers = Leftovers()
        few, many = in_loop(subject, work, "many requests")
        assert many <= few + 2, f"{few} tasks and calls after 2 rounds of requests, {many} after 20"
        left = leftovers.names()
        assert not left, f"after the event loop has ended there is still: {', '.join(left)}"

    def test_other_scopes_are_served_or_refused(self, subject: Subject) -> None:
        """Requires nothing.
        Does: calls it for the lifespan of a server, which front ends of this project do not.
        Must: follow ASGI 3: raise, or answer with messages of a lifespan and end.
        """

        async def work(rig: Rig) -> list[str]:
            return await _lifespan(rig.mount().app)

        sent = in_loop(subject, work, "an application that is called for a lifespan", STUCK_S)
        strange = [kind for kind in sent if not kind.startswith("lifespan.")]
        assert not strange, f"called for the scope lifespan it sent {strange[0]}"

    # In a server

    def test_it_answers_in_a_server(self, subject: Subject) -> None:
        """Requires nothing; where the configured front end lacks its packages, the application is
        called without it.
        Does: starts a server with an engine in a process of its own, and asks for `/` and what the
        example names.
        Must: answer there what it answers in the pretended engine, below /plugins/.
        """

        async def alone(rig: Rig) -> list[int | None]:
            return [(await ask(rig.mount().app, each)).status for each in known_requests(subject)]

        async def serve() -> list[int | None]:
            async with server_of(subject) as server:
                return [await fetch(server, each) for each in known_requests(subject)]

        expected = in_loop(subject, alone, "an application")
        found = within(lambda: asyncio.run(serve()), "a server with the application")
        asked = [str(each) for each in known_requests(subject)]
        assert found == expected, f"{asked} are answered {found} in a server, not {expected}"


def _check(answers: list[Answer]) -> None:
    for answer in answers:
        fault = answer.fault()
        assert fault is None, fault
        assert not answer.failed, (
            f"{answer.asked} with the query {answer.asked.query[:60]!r} is answered "
            f"{answer.status}, as a failure of the server: {answer.error or answer.body[:200]!r}"
        )


def _redirects(answer: Answer) -> Iterator[str]:
    """Paths that it leads to."""
    if answer.status is not None and 300 <= answer.status < 400:
        for name, value in answer.headers:
            if name.lower() == b"location":
                yield value.decode("latin-1").removeprefix("http://localhost")


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


async def _turns() -> None:
    """Lets tasks end that are about to."""
    for _ in range(50):
        await asyncio.sleep(0)


async def _lifespan(app: Any) -> list[str]:
    """Types of the messages that an application sends."""
    sent: list[str] = []
    told = iter(["lifespan.startup", "lifespan.shutdown"])

    async def receive() -> dict[str, Any]:
        return {"type": next(told, "lifespan.shutdown")}

    async def send(message: dict[str, Any]) -> None:
        sent.append(str(message.get("type")))

    scope = {"type": "lifespan", "asgi": {"version": "3.0", "spec_version": "2.0"}, "state": {}}
    try:
        await app(scope, receive, send)
    except Exception:
        return sent
    return sent
