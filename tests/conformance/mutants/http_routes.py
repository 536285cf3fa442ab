"""Broken HTTP routes."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterable
from typing import Any, ClassVar
from urllib.parse import parse_qs

from hookspecs import EngineHooks, PluginInfo, ProcessRole, Provider, hookimpl
from hookspecs.contracts.frontend import EngineClient, HttpRoutes, HttpRoutesContext
from hookspecs.errors import FrameworkError
from tests.conformance.mutants.mutant import Mutant, providing

__all__ = ["MUTANTS"]


class _Routes(HttpRoutes):
    """`/` tells the state of the engine; right in all that its subclasses do not replace."""

    def asgi(self) -> Any:
        return self.app

    async def app(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            raise ValueError("only http")
        status, body = await self.answer(scope, receive)
        await self.reply(send, status, body)

    async def answer(self, scope: Any, receive: Any) -> tuple[int, Any]:
        path = scope["path"].removeprefix(scope["root_path"])
        if path != "/":
            return 404, f"there is no {path}"
        return await self.state(scope)

    async def state(self, scope: Any) -> tuple[int, Any]:
        return 200, await self.context.engine.command("get_status", {})

    async def reply(self, send: Any, status: int, body: Any) -> None:
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": json.dumps(body).encode()})


class AnswersTwice(_Routes):
    async def reply(self, send: Any, status: int, body: Any) -> None:
        await super().reply(send, status, body)
        await super().reply(send, status, body)


class NeverEnds(_Routes):
    """Says of its last piece that more follows."""

    async def reply(self, send: Any, status: int, body: Any) -> None:
        await send({"type": "http.response.start", "status": status})
        await send({"type": "http.response.body", "body": b"{}", "more_body": True})


class IsNotThere(_Routes):
    async def answer(self, scope: Any, receive: Any) -> tuple[int, Any]:
        return 404, ""


class KnowsItsPaths(_Routes):
    async def answer(self, scope: Any, receive: Any) -> tuple[int, Any]:
        routes = {"/": self.state}
        return await routes[scope["path"].removeprefix(scope["root_path"])](scope)


class SilentForOthers(_Routes):
    """Sends nothing for methods that it does not take."""

    async def app(self, scope: Any, receive: Any, send: Any) -> None:
        if scope.get("method") in ("GET", "HEAD"):
            await super().app(scope, receive, send)


class ReadsJson(_Routes):
    async def state(self, scope: Any) -> tuple[int, Any]:
        json.loads(scope["query_string"] or b"{}")
        return await super().state(scope)


class TrustsBodies(_Routes):
    """Fails for bodies in pieces that it can not decode."""

    async def answer(self, scope: Any, receive: Any) -> tuple[int, Any]:
        message = await receive()
        message.get("body", b"").decode()
        return await super().answer(scope, receive)


class LooksAtTheWholePath(_Routes):
    """Answers outside of root_path: it knows one mount."""

    async def answer(self, scope: Any, receive: Any) -> tuple[int, Any]:
        if scope["path"] != "/plugins/conform/":
            return 404, ""
        return await self.state(scope)


class RedirectsToTheTop(_Routes):
    async def reply(self, send: Any, status: int, body: Any) -> None:
        await send(
            {"type": "http.response.start", "status": 307, "headers": [(b"location", b"/home")]}
        )
        await send({"type": "http.response.body"})


class BeginsBeforeItAsks(_Routes):
    """The engine's error comes in the middle of its answer."""

    async def app(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            raise ValueError("only http")
        await send({"type": "http.response.start", "status": 200})
        state = await self.context.engine.command("get_status", {})
        await send({"type": "http.response.body", "body": json.dumps(state).encode()})


class TakesDeathForItsOwn(_Routes):
    async def state(self, scope: Any) -> tuple[int, Any]:
        try:
            return await super().state(scope)
        except FrameworkError as error:
            raise KeyError("state") from error


class PollsWithoutAwait(_Routes):
    """Blocks the event loop until the engine answers, which it can not meanwhile."""

    async def state(self, scope: Any) -> tuple[int, Any]:
        loop = asyncio.get_running_loop()
        asked = asyncio.run_coroutine_threadsafe(
            self.context.engine.command("get_status", {}), loop
        )
        return 200, asked.result()


class SleepsBeforeItAsks(_Routes):
    """Holds the event loop, though not for what the engine needs it for."""

    async def state(self, scope: Any) -> tuple[int, Any]:
        time.sleep(0.2)
        return await super().state(scope)


class ReadsNumbers(_Routes):
    """Takes what is in its query for a number."""

    async def answer(self, scope: Any, receive: Any) -> tuple[int, Any]:
        path, _, number = scope["path"].removeprefix(scope["root_path"]).rpartition("/")
        if path == "/state" and int(number) > 1:
            return 404, "there is one state"
        if not path and not number:
            query = parse_qs(scope["query_string"], keep_blank_values=True)
            int(query.get(b"limit", [b"1"])[0])
            return await self.state(scope)
        return 404, f"there is no {path}"


class RemembersOnePath(_Routes):
    """Leaks between requests."""

    async def app(self, scope: Any, receive: Any, send: Any) -> None:
        self.query = scope.get("query_string", b"")
        await super().app(scope, receive, send)

    async def state(self, scope: Any) -> tuple[int, Any]:
        await super().state(scope)
        return 200, self.query.decode("latin-1")


class OneAtATime(_Routes):
    busy = False

    async def state(self, scope: Any) -> tuple[int, Any]:
        if self.busy:
            return 429, "one at a time"
        self.busy = True
        try:
            return await super().state(scope)
        finally:
            self.busy = False


class SharesAnEngine(_Routes):
    engine: ClassVar[EngineClient]

    def __init__(self, context: HttpRoutesContext) -> None:
        super().__init__(context)
        type(self).engine = context.engine

    async def state(self, scope: Any) -> tuple[int, Any]:
        return 200, await self.engine.command("get_status", {})


class NeedsItsClient(_Routes):
    async def answer(self, scope: Any, receive: Any) -> tuple[int, Any]:
        found = await super().answer(scope, receive)
        await receive()
        left = asyncio.ensure_future(receive())
        await asyncio.sleep(0)
        if left.done():
            raise RuntimeError("the client has left")
        left.cancel()
        return found


class GoesOnInTheBack(_Routes):
    """What it asks of the engine goes on when its request is cancelled."""

    tasks: ClassVar[set[Any]] = set()

    async def state(self, scope: Any) -> tuple[int, Any]:
        asking = asyncio.ensure_future(super().state(scope))
        self.tasks.add(asking)
        return await asyncio.shield(asking)


class StartsATaskEachTime(_Routes):
    tasks: ClassVar[set[Any]] = set()

    async def state(self, scope: Any) -> tuple[int, Any]:
        self.tasks.add(asyncio.ensure_future(asyncio.Event().wait()))
        return await super().state(scope)


class LifespanAsRequest(_Routes):
    async def app(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self.reply(send, 404, "")
        else:
            await super().app(scope, receive, send)


class KnowsThePretender(_Routes):
    """Asks for what an `EngineClient` need not have."""

    async def state(self, scope: Any) -> tuple[int, Any]:
        engine: Any = self.context.engine
        return 200, engine.calls.total()


class KnowsThePretenderPlugin(EngineHooks):
    """Not in the process of the engine core."""

    PLUGIN = PluginInfo(
        name="mutant", api=">=1.0,<2", roles=frozenset({ProcessRole.LAUNCHER, ProcessRole.FRONTEND})
    )

    @hookimpl
    def register_http_routes(self) -> Iterable[Provider[Any]]:
        yield Provider("mutant", f"{__name__}:KnowsThePretender")


def _mutant(fault: str, part: type[HttpRoutes], *caught_by: str) -> Mutant:
    return Mutant("http_routes", fault, providing("http_routes", part), caught_by)


MUTANTS = [
    _mutant("answers twice", AnswersTwice, "test_what_it_knows_is_answered"),
    _mutant("an answer without end", NeverEnds, "test_what_it_knows_is_answered"),
    _mutant("nothing succeeds", IsNotThere, "test_what_it_knows_is_answered"),
    _mutant("fails on other paths", KnowsItsPaths, "test_what_it_does_not_know_is_answered"),
    _mutant("silent on other methods", SilentForOthers, "test_what_it_does_not_know_is_answered"),
    _mutant("trusts queries", ReadsJson, "test_garbage_is_answered"),
    *(
        Mutant(
            "http_routes",
            f"takes any {what} for a number",
            providing("http_routes", ReadsNumbers),
            ("test_garbage_is_answered",),
            examples={"http_routes:mutant": {"requests": [request]}},
        )
        for what, request in {"value": "GET /?limit=3", "part of a path": "GET /state/1"}.items()
    ),
    _mutant("trusts bodies", TrustsBodies, "test_garbage_is_answered"),
    _mutant("knows one mount", LooksAtTheWholePath, "test_it_lives_where_it_is_mounted"),
    _mutant("redirects to the top", RedirectsToTheTop, "test_it_lives_where_it_is_mounted"),
    _mutant("begins before it asks", BeginsBeforeItAsks, "test_an_engine_in_trouble_is_told_of"),
    _mutant("takes death for its own", TakesDeathForItsOwn, "test_an_engine_in_trouble_is_told_of"),
    _mutant("blocks the loop", PollsWithoutAwait, "test_a_slow_engine_holds_nobody_else_up"),
    _mutant("sleeps", SleepsBeforeItAsks, "test_the_event_loop_is_left_to_others"),
    _mutant("leaks between requests", RemembersOnePath, "test_answers_are_not_mixed_up"),
    _mutant("one request at a time", OneAtATime, "test_answers_are_not_mixed_up"),
    _mutant("shares an engine", SharesAnEngine, "test_two_applications_share_nothing"),
    _mutant("fails when its client leaves", NeedsItsClient, "test_a_client_may_leave"),
    _mutant("goes on when cancelled", GoesOnInTheBack, "test_what_is_cancelled_ends"),
    _mutant("a task for each request", StartsATaskEachTime, "test_nothing_piles_up"),
    _mutant(
        "takes a lifespan for a request",
        LifespanAsRequest,
        "test_other_scopes_are_served_or_refused",
    ),
    Mutant(
        "http_routes",
        "knows the pretender",
        KnowsThePretenderPlugin(),
        ("test_it_answers_in_a_server",),
    ),
]
