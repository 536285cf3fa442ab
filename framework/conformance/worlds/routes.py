"""Applications of HTTP routes, each with a pretended engine of its own, in an event loop."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Final, NamedTuple, TypeVar
from urllib.parse import unquote

from framework.conformance.subject import Subject
from framework.conformance.worlds.asgi import Asked
from framework.conformance.worlds.engine_client import Mood, PretendedEngine
from framework.conformance.worlds.patience import PATIENCE_S, within

__all__ = ["METHODS", "Mounted", "Rig", "altered", "garbage", "in_loop", "known_requests"]

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
_ODD: Final = (b"x", b"", b"-1", b"0", b"1e9", b"nan", b"9" * 30, b"9" * 5000, b"%00", b"%ff")
"""In place of a value: no number, none, and ones that are too large for a list or an int."""
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


def altered(known: list[Asked]) -> Iterator[Asked]:
    """The same requests, each time with another value of one parameter or another part of the
    path."""
    for asked in known:
        pairs = asked.query.split(b"&") if asked.query else []
        for index, pair in enumerate(pairs):
            key = pair.partition(b"=")[0]
            for odd in (key, *(key + b"=" + value for value in _ODD)):
                query = b"&".join([*pairs[:index], odd, *pairs[index + 1 :]])
                yield asked._replace(query=query)
        parts = asked.path.split("/")
        for index in range(1, len(parts)):
            for value in _ODD:
                odd_part = unquote(value.decode(), errors="replace")
                path = "/".join([*parts[:index], odd_part, *parts[index + 1 :]])
                yield asked._replace(path=path)


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
