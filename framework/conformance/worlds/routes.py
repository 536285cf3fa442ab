"""Applications of HTTP routes, each with a pretended engine of its own, in an event loop."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Final, NamedTuple, TypeVar

from framework.conformance.subject import Subject
from framework.conformance.worlds.asgi import Asked
from framework.conformance.worlds.engine_client import Mood, PretendedEngine
from framework.conformance.worlds.patience import PATIENCE_S, within

__all__ = ["METHODS", "Mounted", "Rig", "garbage", "in_loop", "known_requests"]

T = TypeVar("T")
METHODS: Final = ("GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "BREW")
_JUNK: Final = (
    b"",
    b"%",
    b"%zz=%ff&&=&a=b=c",
    b"limit=-1",
    b"limit=" + b"9" * 400,
    b"a=" + b"x" * 5000,
    b"a[]=1&a[]=2",
    b"\xff\xfe",
)
_BODIES: Final = (
    (b"",),
    (b"{",),
    (b"null",),
    (b"[" * 500,),
    (b'{"a": 1e999, "b": "\\ud800"}',),
    (b"\xff\xfe\x00" * 100,),
    (b"",) * 50 + (b"x",),
    (b"0123456789abcdef" * 4096,) * 16,
)
_TYPES: Final = (b"application/json", b"text/plain", b"application/x-www-form-urlencoded", b"\xff")


class Mounted(NamedTuple):
    """An application and the engine that it asks."""

    app: Any
    engine: PretendedEngine


class Rig:
    """Makes applications in the running event loop."""

    def __init__(self, subject: Subject, engine: Any) -> None:
        self._manager = subject.manager()
        self._provider = subject.provider
        self._engine = engine

    def mount(self, mood: Mood = Mood.WELL) -> Mounted:
        """A new one."""
        engine = PretendedEngine(self._engine, mood)
        routes = self._manager.create("http_routes", self._provider, engine=engine)
        return Mounted(routes.asgi(), engine)


def in_loop(
    subject: Subject, work: Callable[[Rig], Awaitable[T]], what: str, seconds: float = PATIENCE_S
) -> T:
    """The result of `work` in an event loop of its own, whose commands are those of a real engine
    in the same thread. AssertionError when it does not end, as when the loop is blocked."""

    async def run(rig: Rig) -> T:
        return await work(rig)

    def live() -> T:
        with subject.launch() as engine:
            return asyncio.run(run(Rig(subject, engine)))

    return within(live, what, seconds)


def known_requests(subject: Subject) -> list[Asked]:
    """Those of the example, and the root."""
    given = subject.examples.get("requests", [])
    assert isinstance(given, list), f"the example's requests are {given!r}; they must be a list"
    return [Asked(), *map(Asked.read, given)]


def garbage(seed: int, known: list[Asked], count: int) -> Iterator[Asked]:
    """What scanners and broken clients send."""
    rng = random.Random(seed)
    for _ in range(count):
        path = rng.choice((*(asked.path for asked in known), "//", "/..", "/%2e%2e/x", "/a" * 2000))
        headers = (
            (b"content-type", rng.choice(_TYPES)),
            (b"accept", rng.choice((b"*/*", b";;,", b"\xff"))),
            (b"cookie", b"a=" + bytes(rng.randrange(128, 256) for _ in range(20))),
        )
        yield Asked(rng.choice(METHODS), path, rng.choice(_JUNK), headers, rng.choice(_BODIES))
