"""How requests end early, and applications in a server."""

from __future__ import annotations

import asyncio
from typing import Any

from framework.conformance.subject import Subject
from framework.conformance.suites.http_routes.base import STUCK_S, HttpRoutesPart
from framework.conformance.worlds.asgi import ask, begin
from framework.conformance.worlds.engine_client import Mood
from framework.conformance.worlds.leftovers import Leftovers
from framework.conformance.worlds.patience import within
from framework.conformance.worlds.routes import Rig, in_loop, known_requests
from framework.conformance.worlds.servers import fetch, server_of

__all__ = ["Ends"]


class Ends(HttpRoutesPart):
    """What ends leaves nothing behind."""

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
